//! `unpack FILE.pwk DIR`: the very files again.
//!
//! Everything is written below folders with temporary names (`place`), which get
//! their own when all of it is tested and on the device.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use pagewarden::pack::{
    Entry, Pack, Places, Restored, Restoring, Salvaged, SalvagedFiles, Search, fresh_bytes,
    open_chain_in, restore,
};
use pagewarden::shell::quoted;
use pagewarden::source::rate::Rate;
use pagewarden::source::store::{StorePath, Stores as _};
use pagewarden::source::trusted_path::End;
use pagewarden::system::identity;
use pagewarden::system::{OsStrExt as _, OsStringExt as _};
use pagewarden::verify::mib_per_second;
use pagewarden::words::{bytes, counted, duration, grouped, printable, rate};
use pagewarden::{Error, ErrorKind};
use serde_json::{Value, json};

use super::place::{Place, held_bytes};
use crate::args::Unpack;
use crate::commands::storage::Storage;
use crate::exit::Exit;
use crate::owner_rights;
use crate::progress::Show;

/// Lost parts that are shown as text; more are counted.
const SHOWN_MAX: usize = 100;

/// A pack that is to be unpacked.
pub(super) struct Packed<'a> {
    pub(super) arguments: &'a Unpack,
    pub(super) place: StorePath,
    pub(super) storage: &'a Storage,
    pub(super) stop: &'a Arc<AtomicBool>,
}

pub(super) fn run(packed: &Packed<'_>) -> Result<Exit> {
    let begin = Instant::now();
    let Packed { arguments, place, storage, stop } = packed;
    let path = place.path();
    ensure!(arguments.files.len() == 1, "name one pack at a time");
    ensure!(
        arguments.set == 1 && !arguments.restore_bits && !arguments.full_size,
        "--set, --restore-bits and --full-size are for backups of SQL Server; {} is a pack",
        path.display()
    );
    let bases: Result<Vec<_>, _> = arguments.base.iter().map(|base| storage.at(base)).collect();
    let bases = bases?;
    if arguments.salvage {
        return salvage(packed, &bases, begin);
    }
    let pack = open_chain_in(place, &bases, Search::Beside)?;
    check_names(arguments, path, &pack)?;
    let acting = owner_rights::take(&places(arguments))?;
    unpack(packed, path, &pack, stop, begin)
        .map_err(|error| owner_rights::explain(error, acting.as_ref()))
}

/// Where something will be written. What is there makes room by its name.
fn places(arguments: &Unpack) -> Vec<(&Path, End)> {
    let new = arguments.tablespace_mapping.iter().map(|(_, new)| new.as_path());
    std::iter::once(arguments.folder.as_path()).chain(new).map(|path| (path, End::Name)).collect()
}

fn unpack(
    packed: &Packed<'_>,
    path: &Path,
    pack: &Pack,
    stop: &Arc<AtomicBool>,
    begin: Instant,
) -> Result<Exit> {
    let arguments = packed.arguments;
    let wanted = |entry: &Entry| is_wanted(entry, &arguments.only);
    let targets = Targets::prepare(arguments, pack, &wanted, &state_of(arguments, pack))?;
    targets.have_room(path, pack, &wanted)?;
    let show = Show::choose(arguments.pace.quiet, arguments.pace.progress);
    show.expect(pack.entries().iter().filter(|entry| wanted(entry)).map(Entry::bytes).sum());
    let restored = restore(&Restoring {
        pack,
        places: &targets.places(),
        wanted: &wanted,
        jobs: jobs(arguments),
        rate: arguments.pace.rate.and_then(Rate::ceiling),
        stop,
        progress: &show,
    });
    show.end();
    if stop.load(Ordering::Relaxed) {
        stopped(arguments, "the same command goes on where it ended", begin, &show)?;
        return Ok(Exit::Stopped);
    }
    let restored = match restored {
        Err(error) if error.kind() == ErrorKind::Damaged => {
            // What was written is no beginning of anything.
            let error = targets.with_final_names(error);
            targets.discard();
            return Err(error.into());
        }
        restored => restored.map_err(|error| targets.with_final_names(error))?,
    };
    targets.keep(pack)?;
    report(packed, pack, restored, begin, &show)?;
    Ok(Exit::Fine)
}

fn jobs(arguments: &Unpack) -> usize {
    let cores = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    arguments.jobs.unwrap_or(cores).get()
}

/// What is asked for must be there.
fn check_names(arguments: &Unpack, path: &Path, pack: &Pack) -> Result<()> {
    for name in &arguments.only {
        let found = pack.entries().iter().any(|entry| entry.name.starts_with(name));
        ensure!(found, "{} holds no {}", path.display(), name.display());
    }
    for (old, _) in &arguments.tablespace_mapping {
        let found = pack.entries().iter().any(|entry| entry.link.as_ref() == Some(old));
        ensure!(found, "{} holds no link to {}", path.display(), old.display());
    }
    Ok(())
}

/// What was asked for, what lies below it, and the folders that lead to it.
fn is_wanted(entry: &Entry, only: &[PathBuf]) -> bool {
    let leads = |name: &PathBuf| {
        entry.name.starts_with(name)
            || name.starts_with(&entry.name)
            || entry.name == Path::new(".")
    };
    only.is_empty() || only.iter().any(leads)
}

/// What another run must be after to go on with what is there.
fn state_of(arguments: &Unpack, pack: &Pack) -> String {
    let mut state = format!("root {}\n", pack.root());
    for name in &arguments.only {
        let name: String =
            name.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        state.push_str(&format!("only {name}\n"));
    }
    state
}

/// The option's value for what lay at `old`, as it is parsed: `=` in a path is `\=`.
fn mapping_of(old: &Path) -> OsString {
    let mut bytes = Vec::new();
    for byte in old.as_os_str().as_bytes() {
        if *byte == b'=' {
            bytes.push(b'\\');
        }
        bytes.push(*byte);
    }
    bytes.extend(b"=NEW");
    OsString::from_vec(bytes)
}

/// The folders that will be there.
struct Targets {
    main: Place,
    /// What lies behind links: the link, the place, and where that will be.
    links: Vec<(PathBuf, Place, PathBuf)>,
}

impl Targets {
    fn prepare(
        arguments: &Unpack,
        pack: &Pack,
        wanted: &dyn Fn(&Entry) -> bool,
        state: &str,
    ) -> Result<Self> {
        let links: Vec<(&Entry, &PathBuf)> = pack
            .entries()
            .iter()
            .filter(|entry| wanted(entry))
            .filter_map(|entry| Some((entry, entry.link.as_ref()?)))
            .collect();
        let new_of = |old: &Path| {
            arguments.tablespace_mapping.iter().find(|(one, _)| one == old).map(|(_, new)| new)
        };
        let unmapped: Vec<_> =
            links.iter().filter(|(_, old)| new_of(old).is_none()).map(|(_, old)| old).collect();
        if let Some(first) = unmapped.first() {
            let options: Vec<_> = unmapped
                .iter()
                .map(|old| format!("--tablespace-mapping {}", quoted(&mapping_of(old))))
                .collect();
            bail!(
                "part of it lay elsewhere, at {}, and needs a place of its own\n\
                 hint: add {} (NEW must not exist or be empty)",
                printable(&first.to_string_lossy()),
                options.join(" ")
            );
        }
        let main = Place::prepare(&arguments.folder, state)?;
        let mut targets = Self { main, links: Vec::new() };
        for (entry, old) in links {
            let Some(new) = new_of(old) else { continue };
            let state = format!("{state}link {}\n", entry.name.display());
            let place = Place::prepare(new, &state)?;
            targets.links.push((entry.name.clone(), place, new.clone()));
        }
        Ok(targets)
    }

    fn places(&self) -> Places {
        let mut places = Places::new(self.main.files());
        for (name, place, target) in &self.links {
            places.add_link(name.clone(), place.files(), target.clone());
        }
        places
    }

    /// Makes sure that all of it fits, before anything is written.
    fn have_room(&self, path: &Path, pack: &Pack, wanted: &dyn Fn(&Entry) -> bool) -> Result<()> {
        // By device: several of the folders may lie on one.
        let mut needed: BTreeMap<u64, (u64, PathBuf)> = BTreeMap::new();
        let places = std::iter::once((None, &self.main))
            .chain(self.links.iter().map(|(name, place, _)| (Some(name), place)));
        for (name, place) in places {
            let is_here = |entry: &Entry| {
                let behind = self.links.iter().filter(|(link, _, _)| entry.name.starts_with(link));
                let link =
                    behind.map(|(link, _, _)| link).max_by_key(|link| link.components().count());
                wanted(entry) && link == name
            };
            let bytes = fresh_bytes(pack, &is_here)
                .with_context(|| format!("cannot read {}", path.display()))?;
            let parent = place.parent();
            let known = fs::metadata(parent).and_then(|metadata| identity(&metadata, parent));
            let device = known.map_or(0, |(device, _)| device);
            let entry = needed.entry(device).or_insert_with(|| (0, place.parent().to_owned()));
            let fresh = bytes.saturating_sub(held_bytes(&place.files()));
            entry.0 = entry.0.saturating_add(fresh);
        }
        for (needed, folder) in needed.values() {
            let Ok(status) = pagewarden::system::fs::statvfs(folder) else { continue };
            let free = status.f_bavail.saturating_mul(status.f_frsize);
            ensure!(
                free >= *needed,
                "cannot unpack {}: {} are needed, and {} are free in {}\n\
                 hint: make room, or unpack to another device",
                path.display(),
                bytes(*needed),
                bytes(free),
                folder.display()
            );
        }
        Ok(())
    }

    /// Gives the folders their names, that to which the others belong last.
    fn keep(self, pack: &Pack) -> Result<()> {
        if !pack.entries().iter().any(|entry| entry.name == Path::new(".")) {
            self.main.open()?;
        }
        for (_, place, _) in self.links {
            place.keep()?;
        }
        self.main.keep()?;
        Ok(())
    }

    /// What went wrong, told of the files that are to be.
    fn with_final_names(&self, error: Error) -> Error {
        let places =
            || std::iter::once(&self.main).chain(self.links.iter().map(|(_, place, _)| place));
        let named =
            |path: PathBuf| places().find_map(|place| place.final_name(&path)).unwrap_or(path);
        let path = named(error.path().to_owned());
        error.about(&path)
    }

    fn discard(self) {
        for (_, place, _) in self.links {
            place.discard();
        }
        self.main.discard();
    }
}

fn stopped(arguments: &Unpack, what: &str, begin: Instant, show: &Show) -> Result<()> {
    let text = format!("stopped early; {what}");
    let mut out = show.output();
    if arguments.json {
        let object = json!({
            "pagewarden": pagewarden::VERSION,
            "command": "unpack",
            "verdict": "incomplete",
            "error": text,
            "seconds": begin.elapsed().as_secs_f64(),
        });
        writeln!(out, "{object}")?;
    } else {
        writeln!(out, "Unpack {text}")?;
    }
    out.flush()?;
    Ok(())
}

fn report(
    packed: &Packed<'_>,
    pack: &Pack,
    restored: Restored,
    begin: Instant,
    show: &Show,
) -> Result<()> {
    let elapsed = begin.elapsed();
    let traffic = packed.storage.traffic();
    let mut out = show.output();
    if packed.arguments.json {
        let mut object = json!({
            "pagewarden": pagewarden::VERSION,
            "command": "unpack",
            "verdict": "intact",
            "root": pack.root().to_string(),
            "base": pack.base_root().map(|root| root.to_string()),
            "files": restored.files,
            "bytes": restored.bytes,
            "kept_bytes": restored.kept_bytes,
            "seconds": elapsed.as_secs_f64(),
        });
        if let (Some(traffic), Some(object)) = (traffic, object.as_object_mut()) {
            object.insert("storage".to_owned(), json!(traffic));
        }
        writeln!(out, "{object}")?;
    } else {
        if let Some(traffic) = traffic {
            writeln!(out, "Object storage: {traffic}")?;
        }
        writeln!(
            out,
            "Unpacked {} ({}) in {} ({} MiB/s)",
            counted(restored.files, "file"),
            bytes(restored.bytes),
            duration(elapsed),
            rate(mib_per_second(restored.bytes, elapsed)),
        )?;
        if restored.kept_bytes > 0 {
            writeln!(out, "{} were there from an earlier run", bytes(restored.kept_bytes))?;
        }
    }
    out.flush()?;
    Ok(())
}

fn salvage(packed: &Packed<'_>, bases: &[StorePath], begin: Instant) -> Result<Exit> {
    let Packed { arguments, place, stop, .. } = packed;
    let salvaged = Salvaged::open(place, bases)?;
    check_names(arguments, place.path(), salvaged.pack())?;
    let acting = owner_rights::take(&places(arguments))?;
    write_salvaged(arguments, place.path(), &salvaged, stop, begin)
        .map_err(|error| owner_rights::explain(error, acting.as_ref()))
}

fn write_salvaged(
    arguments: &Unpack,
    path: &Path,
    salvaged: &Salvaged,
    stop: &Arc<AtomicBool>,
    begin: Instant,
) -> Result<Exit> {
    let pack = salvaged.pack();
    let wanted = |entry: &Entry| is_wanted(entry, &arguments.only);
    // What was taken of another pack, or of this one before, is no beginning.
    let state = format!("salvage {}\n", std::process::id());
    let targets = Targets::prepare(arguments, pack, &wanted, &state)?;
    if salvaged.has_table() {
        targets.have_room(path, pack, &wanted)?;
    }
    let show = Show::choose(arguments.pace.quiet, arguments.pace.progress);
    let restored = salvaged.restore(&Restoring {
        pack,
        places: &targets.places(),
        wanted: &wanted,
        jobs: 1,
        rate: arguments.pace.rate.and_then(Rate::ceiling),
        stop,
        progress: &show,
    });
    show.end();
    let files = match restored {
        Ok(files) => files,
        Err(error) => {
            let error = targets.with_final_names(error);
            targets.discard();
            if stop.load(Ordering::Relaxed) {
                stopped(arguments, "nothing was kept", begin, &show)?;
                return Ok(Exit::Stopped);
            }
            return Err(error.into());
        }
    };
    targets.keep(salvaged.pack())?;
    report_salvaged(arguments, salvaged, &files, begin, &show)?;
    let is_whole = files.missing.is_empty() && files.problems.is_empty();
    Ok(if is_whole { Exit::Fine } else { Exit::Wrong })
}

fn report_salvaged(
    arguments: &Unpack,
    salvaged: &Salvaged,
    files: &SalvagedFiles,
    begin: Instant,
    show: &Show,
) -> Result<()> {
    let is_whole = files.missing.is_empty() && files.problems.is_empty();
    let mut out = show.output();
    if arguments.json {
        let missing: Vec<Value> = files
            .missing
            .iter()
            .map(|part| {
                let file = part.file.to_string_lossy();
                json!({ "file": file, "offset": part.offset, "length": part.bytes })
            })
            .collect();
        let root = salvaged.has_table().then(|| salvaged.pack().root().to_string());
        let object = json!({
            "pagewarden": pagewarden::VERSION,
            "command": "unpack",
            "verdict": if is_whole { "intact" } else { "damaged" },
            "root": root,
            "base": salvaged.pack().base_root().map(|root| root.to_string()),
            "files": files.whole,
            "partial_files": files.partial,
            "bytes": files.bytes,
            "missing": missing,
            "problems": files.problems,
            "seconds": begin.elapsed().as_secs_f64(),
        });
        writeln!(out, "{object}")?;
        out.flush()?;
        return Ok(());
    }
    for problem in &files.problems {
        writeln!(out, "{}", printable(problem))?;
    }
    for part in files.missing.iter().take(SHOWN_MAX) {
        writeln!(
            out,
            "lost: {} from byte {} on, {}",
            printable(&part.file.to_string_lossy()),
            grouped(part.offset),
            bytes(part.bytes)
        )?;
    }
    if let Some(more) = files.missing.len().checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
        writeln!(out, "lost: {more} more parts")?;
    }
    let lost = files.missing.iter().fold(0_u64, |sum, part| sum.saturating_add(part.bytes));
    writeln!(
        out,
        "Salvaged {} whole and {} in part ({}), {} lost, in {}",
        counted(files.whole, "file"),
        grouped(files.partial),
        bytes(files.bytes),
        bytes(lost),
        duration(begin.elapsed()),
    )?;
    out.flush()?;
    Ok(())
}
