//! Barman, on its own disks and in clouds.
//!
//! | what | what lies in `base/ID/` |
//! | --- | --- |
//! | method `postgres`, plain | `data/` as from `pg_basebackup`, with its manifest; tablespaces in `OID/` |
//! | method `postgres`, tar | `data/base.tar*`, `data/OID.tar*`, `data/backup_manifest` |
//! | methods `rsync`, `local-rsync` | `data/`, a copy of a running server; tablespaces in `OID/` |
//! | `barman-cloud-backup` | `data.tar*` and `OID.tar*`, a copy of a running server, packed by the client |
//!
//! The server's own backups are judged by the rules of `pg_basebackup`, the others as copies.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::tars::{Form, StoredTar, Tars, stored_finding};
use super::whole::{self, Whole, WholeLog};
use crate::files;
use crate::files::archived_log::{ArchivedLog, LogArchive, LogFolder, decoded};
use crate::files::backup::ground::Ground;
use crate::files::backup::label::{LABEL, Label};
use crate::files::backup::manifest;
use crate::files::backup::members::{SetJudge, SetTerms};
use crate::files::backup::stream::ArchiveWalk;
use crate::files::backup::taking::Opening;
use pagewarden_core::database::repository::{
    Backup, Lsn, Outcomes, RepositoryKind, RepositoryPart, Sets,
};
use pagewarden_core::database::{OpenOptions, Probe, Step, Target};
use pagewarden_core::error::Error;
use pagewarden_core::source::store::{Listed, Seen, StorePath, is_not_read};
use pagewarden_core::verdict::{Finding, Kind, Note, Severity, StoredPlace, Unread};

mod info;

use info::{Info, Status};

/// The tool.
pub(super) const REPOSITORY: RepositoryKind = RepositoryKind { tool: TOOL, probe, open };

const TOOL: &str = "Barman";
const BACKUPS: &str = "base";
const INFO: &str = "backup.info";
const META: &str = "meta";
const DATA: &str = "data";
const LOG: &str = "wals";
/// A label has a few lines.
const LABEL_BYTES_MAX: usize = 64 << 10;
/// Folders that are looked at before one is taken for something else.
const LOOKED_AT: usize = 64;

/// The folder of a server's backups.
#[derive(Clone)]
struct Server {
    /// The server's folder.
    root: StorePath,
    /// The folder that has the backups.
    backups: StorePath,
    /// The one backup that was named.
    only: Option<String>,
    /// The log that is kept for it.
    log: Option<Arc<dyn LogArchive>>,
}

impl Server {
    fn of(place: &StorePath) -> Option<Self> {
        // A data directory has a folder of this name, too.
        if place.join(BACKUPS).is_folder() && place.join("PG_VERSION").look().is_err() {
            let backups = place.join(BACKUPS);
            return Some(Self { root: place.clone(), backups, only: None, log: None });
        }
        let place = place.absolute().ok()?;
        let backups = place.parent()?;
        let is_below_base = backups.name() == Some(BACKUPS);
        let root = if is_below_base { backups.parent()? } else { backups.clone() };
        let only = Some(place.name()?.to_owned());
        let server = Self { root, backups, only: only.clone(), log: None };
        let has_info = server.info(&only?).is_some_and(|info| info.is_file());
        has_info.then_some(server)
    }

    /// Where a backup's info is; `None` if there is none.
    fn info(&self, label: &str) -> Option<StorePath> {
        let places = [
            self.backups.join(label).join(INFO),
            self.root.join(META).join(format!("{label}-{INFO}")),
        ];
        places.into_iter().find(StorePath::is_there)
    }

    /// All backups of which there is a folder or an info.
    fn labels(&self) -> io::Result<Vec<String>> {
        let names = |folder: &StorePath| -> io::Result<Vec<String>> {
            Ok(folder.list()?.into_iter().map(|entry| entry.name).collect())
        };
        let mut labels = names(&self.backups)?;
        match names(&self.root.join(META)) {
            Ok(infos) => {
                let label =
                    |name: &String| name.strip_suffix(INFO)?.strip_suffix('-').map(str::to_owned);
                labels.extend(infos.iter().filter_map(label));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        labels.retain(|label| is_label(label));
        labels.sort_unstable();
        labels.dedup();
        Ok(labels)
    }

    fn shown(&self, place: &StorePath) -> String {
        place.below(&self.root)
    }
}

/// `20261123T091301`: the moment at which it was begun.
fn is_label(name: &str) -> bool {
    let mut letters = name.bytes().enumerate();
    name.len() == 15
        && letters
            .all(|(at, letter)| if at == 8 { letter == b'T' } else { letter.is_ascii_digit() })
}

fn probe(place: &StorePath) -> Probe {
    let Some(server) = Server::of(place) else { return Probe::No };
    let labels = match &server.only {
        Some(only) => vec![only.clone()],
        None => server.labels().unwrap_or_default(),
    };
    let has_info = |label: &String| {
        let info = server.info(label).and_then(|path| Info::read(&path).ok()?);
        info.is_some()
    };
    // One whose info is damaged is still a backup, by its name and by what lies in it.
    let has_data = |label: &String| {
        let folder = server.backups.join(label);
        let data = folder.join(DATA);
        server.info(label).is_some()
            && (data.join(LABEL).is_file()
                || archive_in(&data, BACKUPS).is_some()
                || archive_in(&folder, DATA).is_some())
    };
    let mut looked_at = labels.iter().take(LOOKED_AT);
    Probe::yes_if(looked_at.any(|label| has_info(label) || has_data(label)))
}

/// A backup that is to be checked.
#[derive(Debug, Clone)]
struct Set {
    label: String,
    info: Info,
    /// What was found when the info was read.
    faults: Vec<(Kind, String)>,
    /// Why it was not read.
    unread: Option<String>,
}

fn open(place: &StorePath, options: &OpenOptions) -> Result<Sets, Error> {
    open_for(place, &options.into())
}

pub(super) fn open_for(place: &StorePath, options: &Opening) -> Result<Sets, Error> {
    let path = place.path();
    let Some(mut server) = Server::of(place) else {
        let hint = "name the folder of a server, or one of its backups: SERVER/base/ID";
        return Err(Error::unrecognised(path, "no folder of Barman", hint));
    };
    let wanted = &options.repository;
    whole::refuse_stanza(path, wanted)?;
    let labels = match &server.only {
        Some(only) => vec![only.clone()],
        None => {
            server.labels().map_err(|source| Error::io("list", server.backups.path(), source))?
        }
    };
    if let Some(absent) = wanted.sets.iter().find(|label| !labels.contains(label)) {
        let hint = format!("there are: {}", labels.join(", "));
        return Err(Error::refused(
            server.root.path(),
            format!("there is no backup {absent}"),
            hint,
        ));
    }
    let mut notes = Vec::new();
    let mut sets = Vec::new();
    for label in labels.into_iter().filter(|label| wanted.wants(label)) {
        match server.set(&label) {
            Ok(set) => sets.push(set),
            Err(text) => {
                let file = server.shown(&server.backups.join(&label));
                notes.push(Step::Note(Note { file, text }));
            }
        }
    }
    if wanted.latest {
        sets.drain(..sets.len().saturating_sub(1));
    }
    let has_whole = server.only.is_none() || sets.is_empty();
    let count = sets.len() + usize::from(has_whole);
    let log = if wanted.no_log { WholeLog::LeftOut } else { server.log(&sets) };
    let outcomes = Outcomes::default();
    let outline = log.outline();
    let whole = has_whole.then(|| {
        let root = server.root.path().to_owned();
        let outcomes = outcomes.clone();
        whole::target(Whole { root, tool: TOOL, sets: sets.len(), steps: notes, log, outcomes })
    });
    let options = options.clone();
    let targets = sets.into_iter().map(move |set| server.target(&set, &options)).chain(whole);
    Ok(Sets::of(count, targets, outcomes).with_outline(outline))
}

impl Server {
    /// The log of the server, which needs all sets that are checked.
    fn log(&mut self, sets: &[Set]) -> WholeLog {
        let is_of_cloud = |set: &Set| archive_in(&self.backups.join(&set.label), DATA).is_some();
        let waited = |set: &Set| set.info.get("status") == Some("DONE") && !is_of_cloud(set);
        match LogFolder::list(&self.root, &self.root.join(LOG), Box::new(decoded)) {
            Ok(log) => {
                let archive: Arc<dyn LogArchive> = Arc::new(log);
                self.log = Some(Arc::clone(&archive));
                let backups = sets.iter().map(|set| set.info.backup(TOOL, &set.label, None));
                WholeLog::Read(vec![ArchivedLog {
                    name: TOOL.to_owned(),
                    archive,
                    sets: backups.map(Arc::new).collect(),
                    asked: None,
                    waits_for_log: sets.iter().all(waited),
                }])
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                WholeLog::Unread(format!("there is no folder {LOG}"))
            }
            Err(error) => WholeLog::Unread(error.to_string()),
        }
    }

    /// A backup; the reason why it is none to be judged.
    fn set(&self, label: &str) -> Result<Set, String> {
        let Some(path) = self.info(label) else {
            return Err("a backup without its backup.info: Barman has not finished it, or is \
                        removing it; it was not judged"
                .to_owned());
        };
        let shown = self.shown(&path);
        let mut unread = None;
        let (info, mut faults) = match Info::read(&path) {
            Ok(Some(info)) => (info, Vec::new()),
            Ok(None) => {
                let fault = format!("{shown} cannot be believed: it is no list of keys and values");
                (Info::default(), vec![(Kind::Header, fault)])
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (Info::default(), vec![(Kind::Missing, format!("{shown} is not there"))])
            }
            Err(error) => {
                unread = Some(format!("{shown} cannot be read: {error}"));
                (Info::default(), Vec::new())
            }
        };
        match info.status() {
            Status::Unfinished => {
                let word = info.get("status").unwrap_or_default();
                return Err(format!(
                    "a backup that Barman has not finished ({word}): it was not judged"
                ));
            }
            Status::Unknown if faults.is_empty() && unread.is_none() => {
                let fault =
                    format!("{shown} cannot be believed: it names no status that Barman writes");
                faults.push((Kind::Header, fault));
            }
            Status::Unknown | Status::Done => {}
        }
        Ok(Set { label: label.to_owned(), info, faults, unread })
    }

    fn target(&self, set: &Set, options: &Opening) -> Target {
        let folder = self.backups.join(&set.label);
        let backup = Arc::new(set.info.backup(TOOL, &set.label, bytes_in(&folder)));
        let path = PathBuf::from(format!("{}#{}", self.root.path().display(), set.label));
        let mut target = self.content(set, &folder, &path, &backup, options);
        let mut steps = Vec::new();
        for (kind, fault) in &set.faults {
            let shown = self.info(&set.label).map(|path| self.shown(&path)).unwrap_or_default();
            steps.push(Step::Finding(stored_finding(&shown, *kind, fault.clone())));
        }
        if let Some(error) = &set.unread {
            let shown = self.shown(&self.backups.join(&set.label));
            steps.push(Step::Unread(Unread::of_file(shown, error.clone())));
        }
        if let Some(parent) = set.info.parent().filter(|parent| self.info(parent).is_none()) {
            let detail = "the backup that this one builds on is not there";
            let shown = self.shown(&self.backups.join(parent));
            steps.push(Step::Finding(stored_finding(&shown, Kind::Missing, detail)));
        }
        target.description.path = path;
        target.description.part = Some(RepositoryPart::Set(backup));
        target.steps = Box::new(steps.into_iter().chain(target.steps));
        target
    }

    fn content(
        &self,
        set: &Set,
        folder: &StorePath,
        path: &Path,
        backup: &Arc<Backup>,
        options: &Opening,
    ) -> Target {
        let data = folder.join(DATA);
        let log = self.log.clone();
        let listed = [folder, &data].map(StorePath::list);
        let archives = Archives { log, server: self, set, path, backup, options };
        // What is not in a list that the store did not give is not missing.
        if let Some(error) = listed.into_iter().filter_map(Result::err).find(is_not_read) {
            let shown = self.shown(folder);
            return archives.nothing(Step::Unread(Unread::of_file(shown, error.to_string())));
        }
        if archive_in(&data, BACKUPS).is_some() {
            return archives.open(&data, BACKUPS);
        }
        if archive_in(folder, DATA).is_some() {
            return archives.open(folder, DATA);
        }
        if let (true, None) = (data.is_folder(), data.local_path()) {
            let error = "a data directory in files of its own, which is read on disks only: copy \
                         the backup to one and check that";
            let shown = self.shown(&data);
            return archives.nothing(Step::Unread(Unread::of_file(shown, error)));
        }
        if let Some(data) = data.local_path().filter(|data| data.is_dir()) {
            if let Some(taking) = &options.taking {
                let target = archives.empty();
                taking.is_folder(data);
                return target;
            }
            let opened = std::fs::metadata(data)
                .map_err(|source| Error::io("open", data, source))
                .and_then(|metadata| match set.info.get("mode") {
                    // A manifest in there is that of the backup which the server was made from.
                    Some(mode) if mode.starts_with("rsync") => {
                        files::open_copy(data, &metadata, options)
                    }
                    _ => {
                        // The log lies elsewhere in the repository, and is judged with that.
                        let mut without_log = options.options.clone();
                        without_log.repository.no_log = true;
                        files::open(data, &metadata, &without_log)
                    }
                });
            match opened {
                Ok(mut target) => {
                    let label = label_fault(&folder.join(DATA), backup).map(Step::Finding);
                    target.steps = Box::new(label.into_iter().chain(target.steps));
                    return archives.with_tablespaces(target, folder);
                }
                Err(error) => {
                    return archives.nothing(Step::Unread(Unread::of_file(DATA, error.reason())));
                }
            }
        }
        let shown = self.shown(&data);
        archives.nothing(match data.look() {
            Err(error) if !data.is_there() && error.kind() != io::ErrorKind::NotFound => {
                Step::Unread(Unread::of_file(shown, error.to_string()))
            }
            _ if set.info.get("mode").is_some_and(|mode| mode.starts_with("snapshot")) => {
                let error = "a snapshot of the server's disks, which leaves nothing here: check the \
                             disks of a server that was recovered from it";
                Step::Unread(Unread::of_file(shown, error.to_owned()))
            }
            _ => {
                let detail = "neither a data directory nor an archive of one is there";
                Step::Finding(stored_finding(&shown, Kind::Missing, detail))
            }
        })
    }
}

/// What is wrong with the label of a data directory: every backup of Barman's has one, and without it a
/// server does not replay the log from where the backup began.
fn label_fault(data: &StorePath, backup: &Backup) -> Option<Finding> {
    let finding =
        |kind, detail: String| Some(Finding::of_file(LABEL, Severity::Damage, kind, detail));
    let bytes = match data.join(LABEL).first_bytes(LABEL_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let detail = "a server would not replay the log from where the backup began";
            return finding(Kind::Missing, detail.to_owned());
        }
        // That is said where the folder is gone through.
        Err(_) => return None,
    };
    let Some(start) = Label::parse(&bytes).start_lsn else {
        let detail = "it does not say where replay of the log begins";
        return finding(Kind::Header, detail.to_owned());
    };
    let begun = backup.from_lsn.filter(|begun| begun.0 != start)?;
    let detail =
        format!("it is that of another backup: it begins at {}, this set at {begun}", Lsn(start));
    finding(Kind::Misplaced, detail)
}

/// A set of archives.
struct Archives<'a> {
    log: Option<Arc<dyn LogArchive>>,
    server: &'a Server,
    set: &'a Set,
    path: &'a Path,
    backup: &'a Arc<Backup>,
    options: &'a Opening,
}

impl Archives<'_> {
    /// The archives in `folder`, of which `first` is that of the data directory.
    fn open(&self, folder: &StorePath, first: &str) -> Target {
        let mut tars = Vec::new();
        let mut encrypted = None;
        let tablespaces = match &self.set.unread {
            None => self.set.info.tablespaces(),
            // Nothing says which ones there are.
            Some(_) => tablespaces_in(folder),
        };
        let names = std::iter::once((first.to_owned(), String::new())).chain(
            tablespaces.into_iter().map(|oid| (oid.to_string(), format!("pg_tblspc/{oid}/"))),
        );
        for (name, prefix) in names {
            let mut paths = archives_in(folder, &name);
            if paths.is_empty() {
                // Opening it says that it is not there.
                paths.push(folder.join(format!("{name}.tar")));
            }
            for path in paths {
                if path.has_ending("gpg") {
                    encrypted.get_or_insert_with(|| path.clone());
                }
                let shown = self.server.shown(&path);
                tars.push(StoredTar {
                    place: path,
                    shown,
                    prefix: prefix.clone(),
                    form: Form::default(),
                });
            }
        }
        if let Some(path) = encrypted {
            let error = format!(
                "encrypted with GnuPG, which is not read here: check each archive in a pipe, gpg -d {} | pagewarden check -",
                path.path().display()
            );
            return self.nothing(Step::Unread(Unread::of_file(self.server.shown(folder), error)));
        }
        let mut walk = ArchiveWalk::new(self.path.to_owned(), self.options);
        if first == BACKUPS && folder.join(manifest::NAME).is_there() {
            walk.find_manifest(folder);
        }
        let what = match first {
            BACKUPS => "backup by Barman in tar archives",
            _ => "backup by barman-cloud-backup in tar archives",
        };
        let terms = SetTerms { judge: judge_of(&tars), ..self.terms(what) };
        walk.into_set(terms, Box::new(Tars::new(tars, false)))
    }

    fn terms(&self, what: &str) -> SetTerms {
        SetTerms {
            backup: Arc::clone(self.backup),
            what: format!("{} {what}", self.backup.kind.name()),
            ground: Ground::Copied,
            is_whole: true,
            log: self.log.clone(),
            judge: Arc::new(|_, _| {}),
        }
    }

    /// A set of which nothing is read, and why.
    fn nothing(&self, why: Step) -> Target {
        let mut target = self.empty();
        target.steps = Box::new(std::iter::once(why).chain(target.steps));
        target
    }

    fn empty(&self) -> Target {
        let walk = ArchiveWalk::new(self.path.to_owned(), self.options);
        let terms = SetTerms { is_whole: false, ..self.terms("backup by Barman") };
        walk.into_set(terms, Box::new(Tars::new([], false)))
    }

    /// A data directory, with a word on tablespaces that are gone.
    fn with_tablespaces(&self, mut target: Target, folder: &StorePath) -> Target {
        let mut steps = Vec::new();
        for oid in self.set.info.tablespaces() {
            let link = folder.join(DATA).join("pg_tblspc").join(oid.to_string());
            let beside = folder.join(oid.to_string());
            let is_gone = |place: &StorePath| {
                place.look().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
            };
            if is_gone(&link) && is_gone(&beside) {
                let detail = "the backup has this tablespace, and its folder is not there";
                let shown = self.server.shown(&beside);
                let mut finding = stored_finding(&shown, Kind::Missing, detail);
                finding.place.file = format!("pg_tblspc/{oid}");
                steps.push(Step::Finding(finding));
            }
        }
        target.steps = Box::new(steps.into_iter().chain(target.steps));
        target
    }
}

/// Says of a failing page in which archive it is, where only one can have it.
fn judge_of(tars: &[StoredTar]) -> SetJudge {
    let places: Vec<_> = tars.iter().map(|tar| (tar.prefix.clone(), tar.shown.clone())).collect();
    Arc::new(move |finding, _| {
        let name = &finding.place.file;
        let own = |prefix: &str| !prefix.is_empty() && name.starts_with(prefix);
        let is_beside = places.iter().any(|(prefix, _)| own(prefix));
        let mut fitting = places
            .iter()
            .filter(|(prefix, _)| if is_beside { own(prefix) } else { prefix.is_empty() });
        if let (Some((_, shown)), None) = (fitting.next(), fitting.next()) {
            let stored_file = shown.clone();
            finding.origin = Some(Box::new(StoredPlace { stored_file, stored_offset: None }));
        }
    })
}

/// The first of the archives of that name.
fn archive_in(folder: &StorePath, name: &str) -> Option<StorePath> {
    archives_in(folder, name).into_iter().next()
}

/// `data.tar`, `data.tar.gz`, `data_0001.tar.gz` ..., in this order.
fn archives_in(folder: &StorePath, name: &str) -> Vec<StorePath> {
    let is_one = |file: &str| is_part_of(file, name).unwrap_or(false);
    let entries = folder.list().into_iter().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.name).filter(|name| is_one(name)).collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    names.into_iter().map(|name| folder.join(name)).collect()
}

/// The tablespaces of which there are archives.
fn tablespaces_in(folder: &StorePath) -> Vec<u32> {
    let entries = folder.list().into_iter().flatten();
    let oids = entries.filter_map(|entry| {
        let digits = entry.name.bytes().take_while(u8::is_ascii_digit).count();
        let (oid, _) = entry.name.split_at_checked(digits)?;
        is_part_of(&entry.name, oid).filter(|is_one| *is_one).and_then(|_| oid.parse().ok())
    });
    let mut oids: Vec<u32> = oids.collect();
    oids.sort_unstable();
    oids.dedup();
    oids
}

/// True for a file that is the archive of that name, or a numbered part of it.
fn is_part_of(file: &str, name: &str) -> Option<bool> {
    let rest = file.strip_prefix(name)?;
    let rest = match rest.strip_prefix('_').and_then(|rest| rest.split_once('.')) {
        Some((number, _)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            rest.get(number.len().saturating_add(1)..)?
        }
        _ => rest,
    };
    let ending = rest.strip_prefix(".tar")?;
    Some(ending.is_empty() || ending.starts_with('.'))
}

/// Bytes of the archives in a backup's folders; `None` where it lies in files of the database.
fn bytes_in(folder: &StorePath) -> Option<u64> {
    let files = |folder: &StorePath| {
        let entries = folder.list().into_iter().flatten();
        let bytes = entries.map(|Listed { seen, .. }| match seen {
            Seen::File(bytes) => bytes,
            Seen::Folder | Seen::Other => 0,
        });
        bytes.fold(0, u64::saturating_add)
    };
    let data = folder.join(DATA);
    let is_archive = archive_in(&data, BACKUPS).is_some() || archive_in(folder, DATA).is_some();
    is_archive.then(|| files(folder).saturating_add(files(&data)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_known_by_their_names_in_any_compression() {
        let folder = tempfile::tempdir().unwrap();
        for name in
            ["data.tar.gz", "data_0001.tar.gz", "data_0010.tar.gz", "data.tarx", "data2.tar", "x"]
        {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let names: Vec<_> = archives_in(&folder.path().into(), "data")
            .iter()
            .map(|place| place.name().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["data.tar.gz", "data_0001.tar.gz", "data_0010.tar.gz"]);
    }

    #[test]
    fn labels_are_moments() {
        assert!(is_label("20261123T091301"));
        for name in ["16384", "20261123T09130", "20261123-091301", "latest"] {
            assert!(!is_label(name), "{name}");
        }
    }
}
