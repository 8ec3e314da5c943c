//! `mount --repack`, killed at any moment: the old pack with its delta, or the new pack
//! with an empty one, is whole, and nothing half done has the new pack's name.

use super::*;
use crate::packs::{json, kills};

/// A pack with a delta over it, as they were before the first run, and their content.
struct Repacking {
    packed: Packed,
    expected: Vec<u8>,
    /// Where the program makes folders of its own.
    temporary: PathBuf,
}

impl Repacking {
    fn new() -> Option<Self> {
        let packed = Packed::new()?;
        let temporary = packed.path("temporary");
        fs::create_dir(&temporary).unwrap();
        let this = Self { packed, expected: Vec::new(), temporary };
        let mount = this.mount(&this.packed.pack).unwrap_or_else(|outcome| panic!("{outcome:?}"));
        let place = &mount.folder;
        sqlite::shell(place, ".open shop.db\nUPDATE stock SET quantity = 7 WHERE id % 50 = 0;");
        let expected = fs::read(place.join("shop.db")).unwrap();
        assert!(expected != this.packed.plain);
        mount.end();
        copy(&this.durable(), &this.path("saved"));
        Some(Self { expected, ..this })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.packed.path(name)
    }

    fn durable(&self) -> PathBuf {
        self.path("durable")
    }

    fn new_pack(&self) -> PathBuf {
        self.path("new.pwk")
    }

    /// What the delta says of this pack, by a mount or by a refusal.
    fn mount(&self, pack: &Path) -> Result<Mount, Outcome> {
        let mut command = pagewarden();
        command.args(["mount", "--json", "--durable"]).arg(self.durable()).arg(pack);
        let place = self.path("files");
        Mount::attempt(command.arg(&place), &place)
    }

    fn command(&self) -> Command {
        let mut command = pagewarden();
        command.env("TMPDIR", &self.temporary).args(["mount", "--durable"]).arg(self.durable());
        command.arg("--repack").arg(self.new_pack()).arg(&self.packed.pack);
        command
    }

    /// As if nothing had ever been run.
    fn put_back(&self) {
        let _ = fs::remove_file(self.new_pack());
        fs::remove_dir_all(self.durable()).unwrap();
        copy(&self.path("saved"), &self.durable());
    }

    /// Takes away what a killed run has mounted.
    fn clean_up(&self) {
        for entry in fs::read_dir(&self.temporary).unwrap() {
            let folder = entry.unwrap().path();
            let outcome = run(pagewarden().args(["mount", "--cleanup"]).arg(&folder));
            assert_eq!(outcome.status, Some(0), "{outcome:?}");
            fs::remove_dir(folder).unwrap();
        }
    }

    /// Looks at what a killed run has left. True if it had come to its end.
    fn is_done_and_whole(&self) -> bool {
        let has_new = self.new_pack().exists();
        if has_new {
            json("check", &[&self.new_pack()], 0);
        }
        let (mount, is_done) = match self.mount(&self.packed.pack) {
            Ok(mount) => (mount, false),
            Err(refused) => {
                assert!(refused.stderr.contains("over another pack"), "{refused:?}");
                assert!(has_new, "the delta belongs to a pack that is not there");
                (self.mount(&self.new_pack()).unwrap_or_else(|it| panic!("{it:?}")), true)
            }
        };
        let found = fs::read(mount.folder.join("shop.db")).unwrap();
        assert!(found == self.expected, "what was written has changed");
        let (_, told) = mount.end();
        assert_eq!(told["has_lasting_changes"], !is_done, "{told}");
        is_done
    }
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

#[test]
fn whoever_is_killed_while_repacking_loses_nothing() {
    let Some(repacking) = Repacking::new() else { return };
    let begin = Instant::now();
    let whole = run(&mut repacking.command());
    let length = begin.elapsed();
    assert_eq!(whole.status, Some(0), "{whole:?}");
    assert!(repacking.is_done_and_whole());
    let (mut dice, mut done) = (Dice::seeded(), 0);
    let kills = kills(6);
    for kill in 0..kills {
        repacking.put_back();
        let started = Started::spawn(&mut repacking.command());
        // Equally many in each part of its run, the end included.
        let part = length.mul_f64(1.1 / f64::from(kills));
        let within = f64::from(u32::try_from(dice.within(0..1000)).unwrap()) / 1000.0;
        thread::sleep(part.mul_f64(f64::from(kill) + within));
        started.signal(Signal::KILL);
        started.wait();
        repacking.clean_up();
        if repacking.is_done_and_whole() {
            done += 1;
            continue;
        }
        // The new pack may be there, and its delta not be empty yet.
        let _ = fs::remove_file(repacking.new_pack());
        let again = run(&mut repacking.command());
        assert_eq!(again.status, Some(0), "kill {kill}: {again:?}");
        assert!(repacking.is_done_and_whole(), "kill {kill}");
    }
    println!("of {kills} runs that were killed {done} had come to their end");
}
