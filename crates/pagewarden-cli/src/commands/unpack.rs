//! `pagewarden unpack`: extracts the files of a pack, or the data files of a SQL
//! Server backup, verified on the way.
//!
//! A backup is checked as `pagewarden check` does it; the code that writes the
//! files is one more receiver of its pages. Each file is written under a temporary name beside
//! its own, and gets that when all of it is on the disk.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail, ensure};
use pagewarden::database::{Target, parts};
use pagewarden::formats::sqlserver::checksum::{PAGE_BYTES, is_zero, restore_torn_bits};
use pagewarden::formats::sqlserver::files::backup::{
    SetKind, SetWords, Taker, is_backup, is_backup_without_its_beginning, media,
    open_stream_with_taker, open_with_taker,
};
use pagewarden::formats::sqlserver::mtf::details::DatabaseFile;
use pagewarden::formats::sqlserver::page::header::{HAS_TORN_BITS, Header};
use pagewarden::pack::{is_pack, is_pack_in};
use pagewarden::page::standings::Standings;
use pagewarden::page::{PageRun, Witness};
use pagewarden::report::json::JsonReport;
use pagewarden::report::several::Several;
use pagewarden::report::text::TextReport;
use pagewarden::report::{Report as _, RunEnd, TargetEnd};
use pagewarden::source::acting::Acting;
use pagewarden::source::decode::decode;
use pagewarden::source::store::{StorePath, Stores as _};
use pagewarden::source::trusted_path::End;
use pagewarden::system::{FileExt as _, open_folder, sync_folder, with_mode};
use pagewarden::verdict::{Note, Standing, Verdict};
use pagewarden::verify::{Options, Sink as _, Summary, verify};
use pagewarden::words::bytes;
use tempfile::NamedTempFile;

use crate::args::Unpack;
use crate::commands::storage::Storage;
use crate::exit::{self, Exit};
use crate::owner_rights;
use crate::progress::Show;
use crate::signals::stop_on_signals;
use crate::terminal::colours;

mod packed;
mod place;

const PAGE: u64 = PAGE_BYTES as u64;
/// How many first bytes tell what a file is.
const HEAD_BYTES: usize = 512;

/// Runs the command.
pub fn run(arguments: Unpack) -> Result<Exit> {
    exit::or_json("unpack", arguments.json, || {
        let arguments = arguments.take_folder().context(
            "a folder for what is unpacked is missing\nhint: pagewarden unpack FILE DIR",
        )?;
        unpack(&arguments)
    })
}

fn unpack(arguments: &Unpack) -> Result<Exit> {
    let paths = arguments.files.as_slice();
    let stop = stop_on_signals()?;
    let named = paths.iter().chain(&arguments.base);
    let storage = Storage::begin(named, &arguments.storage, arguments.pace.rate, &stop)?;
    if let Some(place) = first_pack(paths, &storage)? {
        let stop = &stop;
        return packed::run(&packed::Packed { arguments, place, storage: &storage, stop });
    }
    let is_for_packs = !arguments.only.is_empty()
        || !arguments.base.is_empty()
        || !arguments.tablespace_mapping.is_empty()
        || arguments.salvage;
    ensure!(
        !is_for_packs,
        "--only, --base, --tablespace-mapping and --salvage are for packs, and this is none"
    );
    let show = Show::choose(arguments.pace.quiet, arguments.pace.progress);
    let mut reports = Several::default();
    if arguments.json {
        reports.add(JsonReport::begin(show.output(), "unpack")?);
    } else {
        reports.add(TextReport::new(show.output(), colours()));
    }
    let mut summary = Summary::default();
    let mut setting = None;
    let mut opened = 0;
    let unpacked = prepare(arguments, &storage, &stop).and_then(
        |Prepared { target, unpacked, acting, families }| {
            opened = 1;
            reports.begin_target(&target.description)?;
            let verified = verify(target, &options(arguments, &unpacked), &show, &mut reports)?;
            (summary, setting) = (verified.summary.clone(), verified.description.setting);
            let kept = unpacked.keep(summary.stopped, arguments);
            for note in kept.iter().flatten() {
                reports.note(note)?;
            }
            reports.end_target(&TargetEnd {
                verified: &verified,
                listed_bytes: None,
                ended: SystemTime::now(),
                overall: None,
            })?;
            let kept = kept.map_err(|error| owner_rights::explain(error, acting.as_ref()));
            kept.and_then(|_| if summary.stopped { Ok(()) } else { all_named(paths, families) })
        },
    );
    show.end();
    let mut verdict = summary.verdict(setting);
    if let Err(error) = &unpacked {
        verdict = verdict.min(Verdict::Incomplete);
        let path = paths.first().map_or(Path::new(""), PathBuf::as_path);
        let error = format!("{error:#}");
        reports.failed_target(&path.to_string_lossy(), &error, SystemTime::now())?;
    }
    reports.end(&RunEnd {
        verdict,
        total: &summary,
        opened,
        protection_missed: false,
        storage: storage.traffic(),
        drill: None,
        ended: SystemTime::now(),
    })?;
    drop(reports);
    Ok(match unpacked {
        Err(error) => exit::report(&error),
        Ok(()) if summary.stopped => Exit::Stopped,
        Ok(()) => Exit::from(verdict),
    })
}

fn first_pack(paths: &[PathBuf], storage: &Storage) -> Result<Option<StorePath>> {
    for path in paths {
        let (place, is_pack) = match storage.file(path).transpose()? {
            Some(place) => {
                let read = is_pack_in(&place);
                let is_pack = read.with_context(|| format!("cannot read {}", path.display()))?;
                (place, is_pack)
            }
            None => (StorePath::local(path), is_pack(path)),
        };
        if is_pack {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

/// A backup that is open.
struct Prepared {
    target: Target,
    unpacked: Arc<Unpacked>,
    acting: Option<Acting>,
    /// Of how many files the backup consists.
    families: u16,
}

/// Opens the backup, and says in time what cannot be unpacked.
fn prepare(arguments: &Unpack, storage: &Storage, stop: &Arc<AtomicBool>) -> Result<Prepared> {
    let (paths, folder) = (arguments.files.as_slice(), arguments.folder.as_path());
    let place = |path: &PathBuf| match storage.place(path) {
        Some(place) => Ok(place?),
        None => look_at(path).map(|()| StorePath::local(path)),
    };
    let places = paths.iter().map(place).collect::<Result<Vec<_>>>()?;
    ensure!(
        parts::grouped(&places, None).len() == 1,
        "these are not the files of one backup\nhint: name the stripes of one backup, or one file"
    );
    let acting = owner_rights::take(&[(folder, End::Inside)])?;
    make_folder(folder).map_err(|error| owner_rights::explain(error, acting.as_ref()))?;
    let unpacked = Arc::new(Unpacked {
        folder: folder.to_owned(),
        restore_bits: arguments.restore_bits,
        stop: Arc::clone(stop),
        files: Mutex::default(),
        sets: Arc::default(),
        failure: Mutex::default(),
    });
    let begin = {
        let unpacked = Arc::clone(&unpacked);
        move |number, listed: Option<&DatabaseFile>| unpacked.begin(number, listed)
    };
    let taker =
        Taker { set: arguments.set, file: Box::new(begin), sets: Arc::clone(&unpacked.sets) };
    let opened = match places.as_slice() {
        [place] if place.local_path().is_none() => open_stored(place, taker),
        _ => {
            let families = places.first().and_then(media).map(|media| media.families);
            let target = open_with_taker(&places, taker).map_err(anyhow::Error::from);
            target.map(|target| (target, families))
        }
    };
    let (target, families) =
        opened.map_err(|error| owner_rights::explain(error, acting.as_ref()))?;
    Ok(Prepared { target, unpacked, acting, families: families.unwrap_or(1) })
}

/// Opens a backup of a store, and says how many files it has.
fn open_stored(place: &StorePath, taker: Taker) -> Result<(Target, Option<u16>)> {
    let path = place.path();
    let cannot = || format!("cannot read {}", path.display());
    let decoded = decode(Box::new(place.open().with_context(cannot)?)).with_context(cannot)?;
    ensure!(is_backup(&decoded.begin), "{}", no_backup(path));
    let (target, media) = open_stream_with_taker(path, decoded, taker)?;
    Ok((target, media.map(|media| media.families)))
}

fn options(arguments: &Unpack, unpacked: &Unpacked) -> Options {
    let cores = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    Options {
        jobs: arguments.jobs.unwrap_or(cores),
        rate: arguments.pace.rate.unwrap_or_default(),
        stop: Arc::clone(&unpacked.stop),
        ..Options::default()
    }
}

/// Half of a backup is not the backup.
fn all_named(paths: &[PathBuf], families: u16) -> Result<()> {
    ensure!(
        usize::from(families) <= paths.len(),
        "{} of {families} files of this backup were named: what lies in the others is a hole\n\
         hint: name all of them together",
        paths.len()
    );
    Ok(())
}

/// Says of a file that it is no backup.
fn look_at(path: &Path) -> Result<()> {
    let shown = path.display();
    let mut head = vec![0; HEAD_BYTES];
    // What is no file, such as a pipe, is not opened: that might take forever.
    let metadata = fs::metadata(path).with_context(|| format!("cannot open {shown}"))?;
    ensure!(metadata.is_file(), "{shown} is no file\nhint: name a pack or the files of a backup");
    let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    let length = file.read_at(&mut head, 0).with_context(|| format!("cannot read {shown}"))?;
    head.truncate(length);
    ensure!(is_backup(&head) || is_backup_without_its_beginning(&file), "{}", no_backup(path));
    Ok(())
}

fn no_backup(path: &Path) -> String {
    format!(
        "{} is neither a pack nor a SQL Server backup\n\
         hint: name a pack, or the files of one backup, and then a folder: \
         pagewarden unpack x.pwk DIR",
        path.display()
    )
}

fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// The files that are being written.
#[derive(Debug)]
struct Unpacked {
    folder: PathBuf,
    restore_bits: bool,
    stop: Arc<AtomicBool>,
    files: Mutex<Vec<Arc<Extraction>>>,
    /// The backup sets that came.
    sets: Arc<Mutex<Vec<SetWords>>>,
    /// Why no more is written.
    failure: Mutex<Option<anyhow::Error>>,
}

/// A file that is being written.
#[derive(Debug)]
struct Extraction {
    name: String,
    number: u16,
    /// What it said to be long, before it was backed up.
    listed_bytes: Option<u64>,
    file: Mutex<Option<NamedTempFile>>,
    /// For writes at any place, by several threads.
    writer: File,
    restore_bits: bool,
    pages: AtomicU64,
    end: AtomicU64,
    stop: Arc<AtomicBool>,
    failure: Mutex<Option<io::Error>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Unpacked {
    /// Begins the file of this number.
    fn begin(&self, number: u16, listed: Option<&DatabaseFile>) -> Option<Arc<dyn Witness>> {
        match self.try_begin(number, listed) {
            Ok(file) => Some(file),
            Err(error) => {
                lock(&self.failure).get_or_insert(error);
                self.stop.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    fn try_begin(&self, number: u16, listed: Option<&DatabaseFile>) -> Result<Arc<Extraction>> {
        let mut files = lock(&self.files);
        let taken: HashSet<String> = files.iter().map(|file| file.name.to_lowercase()).collect();
        let mut name = file_name(number, listed);
        if taken.contains(&name.to_lowercase()) {
            name = format!("file-{number}-{name}");
        }
        let path = self.folder.join(&name);
        if fs::symlink_metadata(&path).is_ok() {
            bail!(
                "{} exists and is not overwritten\nhint: name a folder of its own",
                path.display()
            );
        }
        let mut builder = tempfile::Builder::new();
        // For the owner and the group only: it is a database.
        let temporary = with_mode(builder.prefix(".pagewarden-").suffix(".tmp"), 0o640)
            .tempfile_in(&self.folder)
            .with_context(|| format!("cannot write into {}", self.folder.display()))?;
        let writer = temporary.as_file().try_clone()?;
        let file = Arc::new(Extraction {
            name,
            number,
            listed_bytes: listed.map(|listed| listed.bytes),
            file: Mutex::new(Some(temporary)),
            writer,
            restore_bits: self.restore_bits,
            pages: AtomicU64::new(0),
            end: AtomicU64::new(0),
            stop: Arc::clone(&self.stop),
            failure: Mutex::default(),
        });
        files.push(Arc::clone(&file));
        Ok(file)
    }

    /// Gives the files their names, when all was written; says what they are.
    fn keep(&self, is_stopped: bool, arguments: &Unpack) -> Result<Vec<Note>> {
        if let Some(error) = lock(&self.failure).take() {
            return Err(error);
        }
        let files = std::mem::take(&mut *lock(&self.files));
        for file in &files {
            if let Some(error) = lock(&file.failure).take() {
                let shown = self.folder.join(&file.name);
                return Err(error).context(format!("cannot write {}", shown.display()));
            }
        }
        if is_stopped {
            return Ok(Vec::new());
        }
        ensure!(
            !files.is_empty(),
            "backup set {} has no data file that can be extracted\n\
             hint: a full backup is needed; --set N names another set of the file",
            arguments.set
        );
        let mut notes: Vec<_> = self.which_set(arguments).into_iter().collect();
        for file in &files {
            let path = self.folder.join(&file.name);
            let length =
                file.keep(&path).with_context(|| format!("cannot write {}", path.display()))?;
            notes.push(Note {
                file: file.name.clone(),
                text: format!(
                    "unpacked: file {} of the database, {} pages in {}",
                    file.number,
                    file.pages.load(Ordering::Relaxed),
                    bytes(length)
                ),
            });
        }
        // Names last when the folder does.
        open_folder(&self.folder)
            .and_then(|folder| sync_folder(&folder))
            .with_context(|| format!("cannot write {}", self.folder.display()))?;
        Ok(notes)
    }
}

impl Unpacked {
    /// Which of several backup sets was taken, and which of the others is the newest.
    fn which_set(&self, arguments: &Unpack) -> Option<Note> {
        let sets = lock(&self.sets);
        let taken = sets.iter().find(|one| one.set == arguments.set)?;
        let newest = sets
            .iter()
            .filter(|one| one.kind == SetKind::Full && one.begun > taken.begun)
            .max_by_key(|one| one.begun);
        let mut text = format!("of {} backup sets, set {} was taken", sets.len(), taken.set);
        text.push_str(&format!(": {}", taken.text()));
        if let Some(newest) = newest {
            text.push_str(&format!(
                "; set {} is newer: {}; name it with --set {}",
                newest.set,
                newest.text(),
                newest.set
            ));
        }
        let file = arguments.files.first().and_then(|path| path.file_name());
        let file = file.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        (sets.len() > 1).then_some(Note { file, text })
    }
}

impl Extraction {
    /// Gives the file its name; how long it is.
    ///
    /// It is as long as it was: behind the last page that was backed up is a hole. A server, and
    /// `pagewarden check`, take a file that is shorter than its header says for one that was cut.
    fn keep(&self, path: &Path) -> io::Result<u64> {
        let end = self.end.load(Ordering::Relaxed);
        // What a backup says may be anything; no data file is larger than this.
        const BYTES_MAX: u64 = 16 << 40;
        let listed = self.listed_bytes.filter(|listed| *listed <= BYTES_MAX);
        let length = listed.map_or(end, |listed| end.max(listed));
        let Some(file) = lock(&self.file).take() else { return Ok(length) };
        file.as_file().set_len(length)?;
        file.as_file().sync_all()?;
        file.persist_noclobber(path).map_err(|error| error.error)?;
        Ok(length)
    }

    fn write(&self, run: PageRun<'_>, standings: &Standings) -> io::Result<()> {
        let mut standings =
            standings.iter().flat_map(|(standing, count)| (0..count).map(move |_| standing));
        for (page, index) in run.bytes.as_chunks::<PAGE_BYTES>().0.iter().zip(0..) {
            let standing = standings.next().flatten();
            let number = run.first.plus(index).0;
            let begin = number.checked_mul(PAGE).ok_or(io::ErrorKind::FileTooLarge)?;
            let end = begin.checked_add(PAGE).ok_or(io::ErrorKind::FileTooLarge)?;
            let before = self.end.fetch_max(end, Ordering::Relaxed);
            self.pages.fetch_add(1, Ordering::Relaxed);
            // A hole does; but for a page that came before with something on it.
            if begin >= before && is_zero(page) {
                continue;
            }
            if self.restore_bits && standing == Some(Standing::Ok) {
                self.writer.write_all_at(&with_own_bits(page), begin)?;
            } else {
                self.writer.write_all_at(page, begin)?;
            }
        }
        Ok(())
    }
}

/// The page without torn bits.
fn with_own_bits(page: &[u8; PAGE_BYTES]) -> [u8; PAGE_BYTES] {
    const FLAGS_AT: usize = 4;
    let mut own = *page;
    let flags = Header::parse(page).flags;
    if flags & HAS_TORN_BITS != 0 {
        restore_torn_bits(&mut own);
        if let Some(field) = own.get_mut(FLAGS_AT..).and_then(<[u8]>::first_chunk_mut) {
            *field = (flags & !HAS_TORN_BITS).to_le_bytes();
        }
    }
    own
}

impl Witness for Extraction {
    fn see(&self, run: PageRun<'_>, standings: &Standings) {
        if self.stop.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = self.write(run, standings) {
            lock(&self.failure).get_or_insert(error);
            // Whatever follows is for nothing.
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// What to call a file: as it was called on its server, without its folder.
fn file_name(number: u16, listed: Option<&DatabaseFile>) -> String {
    let extension = if number == 1 { "mdf" } else { "ndf" };
    let physical = listed.and_then(|listed| listed.path.rsplit(['\\', '/']).next());
    let logical = listed.map(|listed| format!("{}.{extension}", listed.name));
    let fits = |name: &str| {
        let stem = name.trim_end_matches(['.', ' ']);
        let is_name = !stem.is_empty() && name.len() <= 200 && !name.starts_with('.');
        is_name && !name.chars().any(|c| c.is_control() || matches!(c, '/' | '\\' | ':'))
    };
    physical
        .map(str::to_owned)
        .into_iter()
        .chain(logical)
        .find(|name| fits(name))
        .unwrap_or_else(|| format!("file-{number}.{extension}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, path: &str) -> DatabaseFile {
        DatabaseFile {
            id: 3,
            pages: 8,
            is_log: false,
            bytes: 65_536,
            page_bytes: 8192,
            sector_bytes: 512,
            name: name.to_owned(),
            path: path.to_owned(),
        }
    }

    /// The names come out of the backup, which may be anybody's.
    #[test]
    fn names_never_lead_out_of_the_folder() {
        for (name, path, expected) in [
            ("pubs", "C:\\Data\\pubs.mdf", "pubs.mdf"),
            ("pubs", "/var/opt/mssql/data/pubs.ndf", "pubs.ndf"),
            ("pubs", "C:\\Data\\..", "pubs.ndf"),
            ("pubs", "", "pubs.ndf"),
            ("..", "..\\..", "file-3.ndf"),
            ("/etc/passwd", "C:\\x\\", "file-3.ndf"),
            ("a\nb", ".hidden", "file-3.ndf"),
            ("c:x", "a/c:x", "file-3.ndf"),
        ] {
            assert_eq!(file_name(3, Some(&listed(name, path))), expected, "{name} {path}");
        }
        assert_eq!(file_name(1, None), "file-1.mdf");
    }
}
