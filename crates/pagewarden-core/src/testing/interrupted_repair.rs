//! The suite that the repair of every engine passes: killed at any change to the disk, or after a power
//! failure at any, it is finished by the same command, and `--undo` brings every byte back.

use std::io;
use std::path::Path;

use crate::error::Error;
use crate::protect::disk::{Disk, Written};
use crate::repair::copies::Packs;
use crate::repair::{Engine, Means, Options, Outcome, Request, Verdict, repair_with};
use crate::testing::recorder::{
    Change, Hasty, Image, Recorder, after_each_power_failure, image, laid_out,
};

/// A run that was recorded, and how it is done again.
pub struct InterruptedRepair<'a> {
    /// The engine.
    pub engine: Engine,
    /// The files before it.
    pub before: &'a Image,
    /// What it changed.
    pub changes: &'a [Change],
    /// The same request for files that were laid out in another folder.
    pub request: &'a dyn Fn(&Path) -> Request,
    /// The name of its undo file in that folder.
    pub undo_file: &'a str,
    /// True if all that was damaged is repaired.
    pub is_repaired: &'a dyn Fn(&Path) -> bool,
}

/// A disk on which files can be made, and nothing can be written.
#[derive(Debug)]
struct Full;

impl Disk for Full {
    fn write_at(&self, _: &Written, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }
}

impl std::fmt::Debug for InterruptedRepair<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InterruptedRepair").field("engine", &self.engine).finish_non_exhaustive()
    }
}

/// A repair by one engine, without packs.
///
/// # Errors
/// As [`repair_with`].
pub fn run(engine: Engine, disk: &dyn Disk, request: &Request) -> Result<Outcome, Error> {
    let means = Means { disk, engines: &[engine], packs: Packs::NONE };
    repair_with(means, request, &Options::default(), &())
}

impl InterruptedRepair<'_> {
    /// Kills it at each of its changes, at least `least` of them. Each time it is finished and undone;
    /// and once more undone at once where an undo file is there already, at least `least_undone` times.
    pub fn is_finished_or_undone_when_killed(&self, least: usize, least_undone: usize) {
        self.leaves_nothing_where_there_is_no_room();
        let count = self.changes.len();
        assert!(count >= least, "{count} moments");
        let mut undone = 0;
        for lives in 0..count {
            for undoes_at_once in [false, true] {
                let (_folder, root) = laid_out(self.before);
                let recorder = Recorder::new(&root, lives, lives as u64 + 1);
                let _ = run(self.engine, &recorder, &(self.request)(&root));
                let case = format!("killed after {lives} of {count}");
                let has_undo = root.join(self.undo_file).exists();
                if undoes_at_once && has_undo {
                    undone += 1;
                    self.undo(&root, &case);
                } else if !undoes_at_once {
                    self.finish_and_undo(&root, &case);
                }
            }
        }
        assert!(undone >= least_undone, "{undone}");
    }

    /// What could not be written whole does not take the room that is left.
    fn leaves_nothing_where_there_is_no_room(&self) {
        let (_folder, root) = laid_out(self.before);
        let request = (self.request)(&root);
        if request.copy_to.is_none() {
            assert!(run(self.engine, &Full, &request).is_err());
            let left = image(&root);
            let new: Vec<_> = left.keys().filter(|name| !self.before.contains_key(*name)).collect();
            assert!(left == *self.before, "something is left: {new:?}");
        }
    }

    /// Lays out what a power failure at each change may leave; each time it is finished and undone.
    pub fn is_finished_and_undone_after_power_failures(&self) {
        after_each_power_failure(self.before, self.changes, 3, |root, end| {
            self.finish_and_undo(root, &format!("power failed after {end}"));
        });
    }

    /// What is left is finished by the same command; and what that leaves is undone.
    fn finish_and_undo(&self, root: &Path, case: &str) {
        let outcome = run(self.engine, &Hasty, &(self.request)(root));
        let outcome = outcome.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert!((self.is_repaired)(root), "{case}: not finished: {outcome:?}");
        self.undo(root, case);
    }

    /// Every byte is as it was before the run.
    pub fn undo(&self, root: &Path, case: &str) {
        let request = (self.request)(root);
        let path = match (&request.copy_to, request.path.file_name()) {
            (Some(copy), Some(name)) if request.path.is_file() => copy.join(name),
            (Some(copy), _) => copy.clone(),
            (None, _) => request.path,
        };
        let undo = Some(root.join(self.undo_file));
        let request = Request { undo, write: true, ..Request::new(&path) };
        let outcome = run(self.engine, &Hasty, &request);
        let outcome = outcome.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(outcome.verdict, Verdict::Undone);
        assert!(image(root) == *self.before, "{case}: not every byte is back");
    }
}
