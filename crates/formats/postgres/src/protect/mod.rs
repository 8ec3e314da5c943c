//! PostgreSQL 9.6 to 18: data checksums on or off.
//!
//! What a server does with the setting decides what is safe. It verifies checksums
//! only if `pg_control` says so, and else takes any value of `pd_checksum` for
//! right. So pages can be given theirs one by one, in any order, and a write that
//! power failure tears changes nothing but two bytes that no server reads yet. When
//! the device holds all of them, one sector of `pg_control` makes them count.
//!
//! | step | what a power failure leaves |
//! | --- | --- |
//! | lock: no server starts | a stale lock file, which stops no server |
//! | pages, each file synced, read back, then put into the journal | checksums off, pages sound |
//! | folders synced | the same |
//! | first sector of `pg_control` written and synced | off or on, both true |
//! | journal and lock taken away | checksums on, and files that no server minds |
//!
//! Turning checksums off is the sector alone.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use crate::files::control::{
    CONTROL_BYTES, ClusterState, Control, ONLINE_SWITCHING, with_checksums,
};
use crate::files::is_root;
use crate::page::Checksums;
use pagewarden_core::error::Error;
use pagewarden_core::protect::disk::{Disk, System, Written, sync_folder};
use pagewarden_core::protect::journal::{self, Journal};
use pagewarden_core::protect::plan::{Cost, Feature, Request, Wish};
use pagewarden_core::protect::{Engine, Options, Outcome, check_mode};
use pagewarden_core::source::file::read_small;
use pagewarden_core::verdict::Protection;
use pagewarden_core::verify::{Caching, Progress};

mod copy;
mod files;
mod judge;
pub(crate) mod lock;
mod pages;
mod read_back;
#[cfg(test)]
pub(crate) mod tests;

use files::Listing;
use judge::Layout;
use lock::{ServerLock, check_not_running};
use pages::{BATCH_FILES, RUN_BYTES, Work, server_came};

/// The line in the registry of engines.
pub const ENGINE: Engine = Engine {
    name: "postgres",
    summary: "PostgreSQL data directory, 9.6 to 18",
    has_setting: true,
    modes: &[Protection::Checksum, Protection::None],
    features: &[Feature::Tablespaces],
    probe: is_root,
    run,
};

fn run(request: &Request, options: &Options, progress: &dyn Progress) -> Result<Outcome, Error> {
    Run {
        disk: &System,
        request,
        options,
        progress,
        caching: Caching::Auto,
        run_bytes: RUN_BYTES,
        batch_files: BATCH_FILES,
    }
    .run()
}

/// A request on its way.
struct Run<'a> {
    disk: &'a dyn Disk,
    request: &'a Request,
    options: &'a Options,
    progress: &'a dyn Progress,
    caching: Caching,
    run_bytes: usize,
    batch_files: usize,
}

/// A cluster that may be changed: at rest, and of a version that we know.
pub(crate) struct Cluster {
    pub(crate) root: PathBuf,
    pub(crate) owner: Metadata,
    pub(crate) version: String,
    /// The control file, byte for byte.
    pub(crate) bytes: Vec<u8>,
    pub(crate) control: Control,
}

impl Run<'_> {
    fn run(&self) -> Result<Outcome, Error> {
        let root = &self.request.path;
        let (wanted, costs) = self.plan()?;
        check_mode(&ENGINE, root, wanted)?;
        if let Some(target) = &self.request.copy_to {
            let outcome = copy::run(self, target, wanted)?;
            return Ok(Outcome { costs, ..outcome });
        }
        if self.request.dry_run {
            check_not_running(root)?;
            let outcome = self.in_place(wanted, None)?;
            return Ok(Outcome { costs, ..outcome });
        }
        let owner = fs::metadata(root).map_err(|error| Error::io("open", root, error))?;
        // Before the state is looked at: no server can change it from here on.
        let lock = ServerLock::take(self.disk, root, &owner)?;
        let outcome = self.in_place(wanted, Some(&lock));
        lock.release();
        Ok(Outcome { costs, ..outcome? })
    }

    /// The setting that is wanted, and what the two ways to fit two clusters cost.
    fn plan(&self) -> Result<(Protection, Option<[Cost; 2]>), Error> {
        let (other, like) = match &self.request.wish {
            Wish::Mode(mode) => return Ok((*mode, None)),
            Wish::ForUpgrade(other) => (other, false),
            Wish::Like(other) => (other, true),
        };
        let path = &self.request.path;
        let ours = setting(path)?;
        let theirs = setting(other)?;
        let listing = Listing::of(path, &tablespace_folder(path)?)?;
        if like && listing.holds_user_data() {
            return Err(Error::refused(
                path,
                "this cluster holds databases or tables of users, so it is not the new one",
                "with --like, PATH is the new, still empty cluster; to change the old one: --for-upgrade",
            ));
        }
        let others = Listing::of(other, &tablespace_folder(other)?)?;
        let chosen = cost(path, &ours, &listing, theirs.checksums);
        let otherwise = cost(other, &theirs, &others, ours.checksums);
        Ok((protection(theirs.checksums), Some([chosen, otherwise])))
    }

    fn in_place(&self, wanted: Protection, lock: Option<&ServerLock>) -> Result<Outcome, Error> {
        let cluster = Cluster::open(&self.request.path)?;
        let before = cluster.protection();
        let journal = cluster.root.join(journal::NAME);
        let mut outcome = cluster.outcome(wanted);
        if before == wanted || wanted == Protection::None {
            if self.request.dry_run {
                return Ok(outcome);
            }
            if before != wanted {
                self.write_setting(&cluster, wanted)?;
                outcome.after = wanted;
            }
            self.discard(&journal)?;
            return Ok(outcome);
        }
        let listing = Listing::of(&cluster.root, &cluster.tablespace_folder())?;
        let (begun, done) = self.open_journal(&cluster, &journal)?;
        let is_held = || lock.is_none_or(ServerLock::is_held);
        let work = Work {
            disk: self.disk,
            options: self.options,
            progress: self.progress,
            listing: &listing,
            layout: cluster.layout(),
            dry_run: self.request.dry_run,
            skip_damaged: self.request.skip_damaged,
            copy: None,
            done,
            journal: begun.map(Mutex::new),
            may_write: &is_held,
            caching: self.caching,
            run_bytes: self.run_bytes,
            batch_files: self.batch_files,
        };
        let worked = work.run()?;
        let had_journal = work.journal.is_some();
        drop(work);
        outcome.warnings.extend(listing.warnings.iter().cloned());
        outcome.add(worked);
        if self.options.stop.load(Ordering::Relaxed) {
            outcome.stopped = true;
            return Ok(outcome);
        }
        if self.request.dry_run {
            return Ok(outcome);
        }
        if outcome.pages.damaged > 0 && !self.request.skip_damaged {
            self.discard(&journal)?;
            return Ok(outcome);
        }
        for folder in &listing.folders {
            sync_folder(self.disk, self.options, &folder.path)?;
        }
        if !is_held() {
            return Err(server_came(&cluster.root));
        }
        self.write_setting(&cluster, wanted)?;
        outcome.after = wanted;
        if had_journal {
            self.discard(&journal)?;
        }
        Ok(outcome)
    }

    /// None where nothing is written.
    fn open_journal(
        &self,
        cluster: &Cluster,
        path: &Path,
    ) -> Result<(Option<Journal<'_>>, Option<journal::Done>), Error> {
        if self.request.dry_run {
            return Ok((None, None));
        }
        let control = blake3::hash(&cluster.bytes);
        let title = (ENGINE.name, &control as &dyn std::fmt::Display);
        Journal::of_run(self.disk, self.options, path, title, &cluster.owner)
    }

    fn discard(&self, journal: &Path) -> Result<(), Error> {
        Journal::discard(self.disk, self.options, journal)
    }

    /// The one write that makes the pages' checksums count, or not.
    fn write_setting(&self, cluster: &Cluster, wanted: Protection) -> Result<(), Error> {
        let path = cluster.control_path();
        if read_control(&path)? != cluster.bytes {
            return Err(server_came(&cluster.root));
        }
        let sector = cluster.sector(wanted)?;
        let file = Written::open(&path).map_err(|error| Error::io("open", &path, error))?;
        let write = || {
            self.disk.write_at(&file, &sector, 0)?;
            if self.options.sync { self.disk.sync(&file) } else { Ok(()) }
        };
        write().map_err(|error| Error::io("write", &path, error))?;
        let written = Control::parse(&read_control(&path)?).map(|now| now.checksums);
        if written.map(protection) != Ok(wanted) {
            return Err(Error::lost_write(
                &path,
                "the control file does not read back as it was written",
                "restore it from a backup of the same cluster",
            ));
        }
        Ok(())
    }
}

impl Cluster {
    /// Opens a cluster that is at rest.
    pub(crate) fn open(root: &Path) -> Result<Self, Error> {
        let owner = fs::metadata(root).map_err(|error| Error::io("open", root, error))?;
        let path = root.join("global").join("pg_control");
        let bytes = read_control(&path)?;
        let control = Control::parse(&bytes).map_err(|fault| {
            Error::damaged(
                &path,
                format!("the control file cannot be believed: {}", fault.detail),
                "restore it from a backup of the same cluster; nothing is changed without it",
            )
        })?;
        let version = version(root)?;
        let cluster = Self { root: root.to_owned(), owner, version, bytes, control };
        cluster.check_version()?;
        cluster.check_state()?;
        Ok(cluster)
    }

    fn check_version(&self) -> Result<(), Error> {
        let fits = match self.control.version {
            960 => self.version == "9.6",
            1002 => self.version == "10",
            1100 => self.version == "11",
            1201 => self.version == "12",
            1300 => matches!(&*self.version, "13" | "14" | "15" | "16"),
            1700 => self.version == "17",
            1800 => self.version == "18",
            _ => false,
        };
        let hint = if self.control.version >= ONLINE_SWITCHING {
            "from 19 on a running server does it: SELECT pg_enable_data_checksums()"
        } else {
            "clusters of PostgreSQL 9.6 to 18 can be changed"
        };
        if !fits {
            let reason = format!(
                "PG_VERSION says {} and the control file {}, which is not a pair that is known",
                self.version, self.control.version
            );
            return Err(Error::refused(&self.root, reason, hint));
        }
        if self.control.checksums == Checksums::Changing {
            let reason = "checksums are being switched on or off by a server";
            return Err(Error::in_use(&self.root, reason, "let the server finish it"));
        }
        Ok(())
    }

    fn check_state(&self) -> Result<(), Error> {
        let refuse = |reason: &str, hint: &str| Err(Error::refused(&self.root, reason, hint));
        if self.root.join("backup_label").exists() {
            return refuse(
                "a backup that has yet to be recovered",
                "start a server on it, let it recover, and stop it cleanly",
            );
        }
        match (self.control.state, self.control.backup_start_lsn) {
            (ClusterState::ShutDown | ClusterState::ShutDownInRecovery, 0) => Ok(()),
            (ClusterState::ShutDownInRecovery, _) => refuse(
                "a standby that was stopped before its backup became consistent",
                "start it, let it catch up, and stop it cleanly",
            ),
            _ => refuse(
                "it was not shut down cleanly",
                "stop its server (pg_ctl stop); after a crash, start it once so that it recovers, and stop it",
            ),
        }
    }

    fn protection(&self) -> Protection {
        protection(self.control.checksums)
    }

    fn control_path(&self) -> PathBuf {
        self.root.join("global").join("pg_control")
    }

    fn tablespace_folder(&self) -> String {
        format!("PG_{}_{}", self.version, self.control.catalog_version)
    }

    fn layout(&self) -> Layout {
        Layout {
            page_size: self.control.page_size,
            max_align: self.control.max_align,
            segment_pages: u64::from(self.control.segment_pages),
        }
    }

    /// The first sector of the control file with the setting that is wanted.
    fn sector(&self, wanted: Protection) -> Result<[u8; 512], Error> {
        with_checksums(&self.bytes, wanted == Protection::Checksum).map_err(|fault| {
            Error::damaged(&self.control_path(), fault.detail, "nothing was changed")
        })
    }

    fn outcome(&self, wanted: Protection) -> Outcome {
        let engine = format!("PostgreSQL {}", self.version);
        let mut outcome = Outcome::of(engine, self.protection(), wanted);
        if self.control.state == ClusterState::ShutDownInRecovery && wanted != self.protection() {
            outcome.warnings.push(
                "this is a standby: its primary and other standbys are not changed, and backups \
                 of one do not fit another"
                    .to_owned(),
            );
        }
        outcome
    }
}

pub(crate) fn read_control(path: &Path) -> Result<Vec<u8>, Error> {
    read_small(path, CONTROL_BYTES).map_err(|error| Error::io("read", path, error))
}

/// What PG_VERSION says: `15`, `9.6`.
fn version(root: &Path) -> Result<String, Error> {
    let path = root.join("PG_VERSION");
    let bytes = read_small(&path, 64).map_err(|error| Error::io("read", &path, error))?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// The control file of a cluster in any state.
fn setting(root: &Path) -> Result<Control, Error> {
    let path = root.join("global").join("pg_control");
    let control = Control::parse(&read_control(&path)?);
    let control = control.map_err(|fault| {
        Error::damaged(&path, fault.detail, "name two data directories of PostgreSQL")
    })?;
    if control.checksums == Checksums::Changing {
        let reason = "checksums are being switched on or off by a server";
        return Err(Error::in_use(root, reason, "let the server finish it"));
    }
    Ok(control)
}

fn tablespace_folder(root: &Path) -> Result<String, Error> {
    Ok(format!("PG_{}_{}", version(root)?, setting(root)?.catalog_version))
}

fn protection(checksums: Checksums) -> Protection {
    match checksums {
        Checksums::On => Protection::Checksum,
        Checksums::Off | Checksums::Changing | Checksums::Pending => Protection::None,
    }
}

fn cost(path: &Path, control: &Control, listing: &Listing, wanted: Checksums) -> Cost {
    let rewrites = control.checksums != wanted && wanted == Checksums::On;
    let bytes = if rewrites { listing.bytes() } else { 0 };
    Cost {
        path: path.to_owned(),
        wanted: protection(wanted),
        pages: bytes.checked_div(control.page_size as u64).unwrap_or(0),
        bytes,
    }
}
