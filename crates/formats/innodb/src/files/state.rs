//! Whether a data directory is at rest, in use, crashed or a backup, and what
//! evidence therefore proves.
//!
//! | circumstances | a page that fails is | what files say of one another is |
//! | --- | --- | --- |
//! | shut down: the log ends at its checkpoint, and there are no temporary tables | damage | damage |
//! | a prepared backup: the same | damage | damage |
//! | in use | damage, once it has stood still over several reads | not asked |
//! | crashed | a notice if recovery mends it; damage if it is known that it cannot; else suspect | suspect |
//! | a backup to be prepared | damage: the program that made it refuses pages that fail | not asked |
//! | unknown: no log, or a faulty one | damage: no server can recover it | suspect |
//!
//! Who uses a directory holds a lock on `ibdata1` (InnoDB) or `aria_log_control`
//! (Aria). It is asked for, and never taken.

use std::path::{Path, PathBuf};

use crate::files::places::Places;
use crate::files::redo::{MYSQL_FOLDER, NoLog, Pending, RedoLog};
use crate::page::encryption::Keyring;
use pagewarden_core::source::file::{self, open_regular};
use pagewarden_core::source::hold::is_locked;
use pagewarden_core::source::store::Listed;
use pagewarden_core::verdict::Severity;

/// What is happening to a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Circumstances {
    /// Shut down: recovery has nothing to do.
    AtRest,
    /// A backup that was made consistent.
    Prepared,
    /// A server holds it.
    Running,
    /// Not shut down, and no server holds it.
    Crashed,
    /// A backup whose log is yet to be applied.
    Backup,
    /// There is no log, or none that can be believed.
    Unknown,
}

impl Circumstances {
    /// True while files may change under us.
    #[must_use]
    pub fn may_change(self) -> bool {
        self == Self::Running
    }

    /// True if all that was changed is in the files.
    #[must_use]
    pub fn is_settled(self) -> bool {
        matches!(self, Self::AtRest | Self::Prepared)
    }

    /// For people.
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Self::AtRest => "shut down cleanly",
            Self::Prepared => "a prepared backup",
            Self::Running => "in use by a server",
            Self::Crashed => "not shut down cleanly: recovery has yet to run",
            Self::Backup => "a backup: its log has yet to be applied",
            Self::Unknown => "state unknown",
        }
    }

    /// What a page that fails is where nothing else is known of it.
    #[must_use]
    pub fn failure(self) -> Severity {
        match self {
            Self::AtRest | Self::Prepared | Self::Running | Self::Backup | Self::Unknown => {
                Severity::Damage
            }
            Self::Crashed => Severity::Suspect,
        }
    }

    /// What a finding is that rests on what one file or page says of another;
    /// `None` where such evidence is none.
    #[must_use]
    pub fn cross_file(self) -> Option<Severity> {
        match self {
            Self::AtRest | Self::Prepared => Some(Severity::Damage),
            Self::Crashed | Self::Unknown => Some(Severity::Suspect),
            Self::Running | Self::Backup => None,
        }
    }
}

/// What xtrabackup or mariabackup say of a backup they made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupLabel {
    /// `full-backuped`, `full-prepared`, `log-applied`, `incremental`.
    pub kind: String,
    /// The LSN up to which the backup's log was copied.
    pub last_lsn: Option<u64>,
}

/// The files in which they say so: of every version, and of later ones of
/// MariaDB's.
pub(super) const LABELS: [&str; 2] = ["xtrabackup_checkpoints", "mariadb_backup_checkpoints"];
/// The file by which a folder is known for a data directory, a backup of one, or a folder of tables whose
/// files come in pairs.
#[must_use]
pub fn mark_among(listed: &[Listed]) -> Option<String> {
    let is_of_a_pair = |name: &str| PAIRS.iter().any(|ending| name.ends_with(ending));
    let pair = || listed.iter().find(|one| is_of_a_pair(&one.name)).map(|one| one.name.clone());
    pagewarden_core::database::mark_among(listed, MARKS).or_else(pair)
}

/// Files of one table of Aria or MyISAM.
const PAIRS: [&str; 4] = [".MAI", ".MAD", ".MYI", ".MYD"];
/// Files that only a data directory or a backup of one has.
const MARKS: &[&str] = &[
    "ibdata1",
    "ib_logfile0",
    "mysql.ibd",
    "aria_log_control",
    "xtrabackup_checkpoints",
    "mariadb_backup_checkpoints",
    "xtrabackup_info",
    "mariadb_backup_info",
];
const LABEL_BYTES_MAX: usize = 4096;

impl BackupLabel {
    /// Looks for a label in a folder.
    #[must_use]
    pub fn find(root: &Path) -> Option<Self> {
        let text = LABELS.iter().find_map(|name| read_small(&root.join(name), LABEL_BYTES_MAX))?;
        Self::parse(&String::from_utf8_lossy(&text))
    }

    /// Lines of `name = value`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let value = |wanted: &str| {
            text.lines().find_map(|line| {
                let (name, value) = line.split_once('=')?;
                (name.trim() == wanted).then(|| value.trim())
            })
        };
        Some(Self {
            kind: value("backup_type")?.to_owned(),
            last_lsn: value("last_lsn").and_then(|number| number.parse().ok()),
        })
    }

    /// Its log was applied.
    #[must_use]
    pub fn is_prepared(&self) -> bool {
        matches!(self.kind.as_str(), "full-prepared" | "log-applied")
    }

    /// The files hold changed pages only.
    #[must_use]
    pub fn is_incremental(&self) -> bool {
        self.kind == "incremental"
    }
}

/// A data directory's state, and what it was told by.
#[derive(Debug)]
pub struct State {
    /// What is happening to it.
    pub circumstances: Circumstances,
    /// Its log, where there is one that can be believed. Of a directory in use
    /// nothing is known for longer than a moment: there it is not read.
    pub log: Option<RedoLog>,
    /// Why there is no log.
    pub no_log: Option<NoLog>,
    /// What made it, if it is a backup, or was one.
    pub label: Option<BackupLabel>,
}

impl State {
    /// Of what a server has open.
    #[must_use]
    pub fn in_use() -> Self {
        Self { circumstances: Circumstances::Running, log: None, no_log: None, label: None }
    }

    /// Finds out about a data directory. Keys are needed of an encrypted log only.
    #[must_use]
    pub fn find(root: &Path, keyring: Option<&Keyring>) -> Self {
        let in_use = || Self { label: BackupLabel::find(root), ..Self::in_use() };
        if is_in_use(root) {
            return in_use();
        }
        let found = Self::of_idle(root, keyring);
        // One that came to life while its log was read.
        if is_in_use(root) { in_use() } else { found }
    }

    /// The same for a directory that cannot come to life: who asks holds its locks.
    pub(crate) fn of_idle(root: &Path, keyring: Option<&Keyring>) -> Self {
        let label = BackupLabel::find(root);
        let log = RedoLog::read(root, keyring);
        let is_prepared = label.as_ref().is_some_and(BackupLabel::is_prepared);
        let (log, no_log) = match log {
            // What Percona's program applied already.
            Ok(_) if is_prepared && !has_log_of_a_server(root) => (None, Some(NoLog::Missing)),
            Ok(log) => (Some(log), None),
            Err(no_log) => (None, Some(no_log)),
        };
        let circumstances = match judge(log.as_ref(), no_log.as_ref(), label.as_ref()) {
            Circumstances::AtRest if has_temporary_tables(root) => Circumstances::Crashed,
            other => other,
        };
        Self { circumstances, log, no_log, label }
    }
}

/// A server removes this when it is shut down: one that was killed while it had
/// nothing to do has left it, and other engines at their work.
fn has_temporary_tables(root: &Path) -> bool {
    root.join("ibtmp1").exists()
}

fn has_log_of_a_server(root: &Path) -> bool {
    root.join("ib_logfile0").is_file() || root.join(MYSQL_FOLDER).is_dir()
}

fn judge(
    log: Option<&RedoLog>,
    no_log: Option<&NoLog>,
    label: Option<&BackupLabel>,
) -> Circumstances {
    let kind = label.map_or("", |label| label.kind.as_str());
    match (log, no_log) {
        // Without a log of its own: the server makes a new one.
        (None, Some(NoLog::Missing)) if matches!(kind, "full-prepared" | "log-applied") => {
            Circumstances::Prepared
        }
        (None, Some(NoLog::Missing)) if !kind.is_empty() => Circumstances::Backup,
        (None, _) => Circumstances::Unknown,
        (Some(log), _) => match (&log.pending, kind) {
            (Pending::Nothing, "full-prepared" | "log-applied") => Circumstances::Prepared,
            // Its pages were copied while they were changing, and what was
            // changed may be in a log that was not copied with them.
            (_, "full-backuped" | "incremental") => Circumstances::Backup,
            (Pending::Nothing, _) => Circumstances::AtRest,
            _ if log.faults.iter().any(|fault| !fault.may_be_healthy) => Circumstances::Unknown,
            _ => Circumstances::Crashed,
        },
    }
}

/// True if a process holds a lock on the directory.
#[must_use]
pub fn is_in_use(root: &Path) -> bool {
    const LOCKED: [&str; 4] = ["ibdata1", "aria_log_control", "ib_logfile0", "mysql.ibd"];
    let is_held = |path: &Path| open_regular(path).is_ok_and(|file| is_locked(&file));
    LOCKED.iter().any(|name| is_held(&root.join(name)))
        || Places::of(root).system.is_some_and(|place| is_held(&place.join("ibdata1")))
}

/// The data directory that a file or folder lies in: at most two levels up.
#[must_use]
pub fn directory_above(path: &Path) -> Option<PathBuf> {
    const DEEPEST: usize = 2;
    let absolute = std::path::absolute(path).ok()?;
    absolute.ancestors().skip(1).take(DEEPEST).find(|above| is_root(above)).map(Path::to_owned)
}

/// True for a folder that InnoDB or Aria use as their data directory, or a backup
/// of one.
#[must_use]
pub fn is_root(folder: &Path) -> bool {
    let has_file = |name: &str| folder.join(name).is_file();
    has_file("ibdata1")
        || has_file("aria_log_control")
        || has_file("ib_logfile0")
        || has_file("mysql.ibd")
        // All of these lie elsewhere, and an options file says where.
        || folder.join("mysql").is_dir()
            && Places::of(folder).system.is_some_and(|place| place.join("ibdata1").is_file())
        || folder.join(MYSQL_FOLDER).is_dir()
        || LABELS.iter().any(|name| has_file(name))
        // Compressed, or the changed pages only.
        || ["ibdata1.zst", "ibdata1.lz4", "ibdata1.qp", "ibdata1.delta"].iter().any(|name| has_file(name))
}

/// The first bytes of a small regular file, if they can be read.
pub(crate) fn read_small(path: &Path, bytes_max: usize) -> Option<Vec<u8>> {
    file::read_small(path, bytes_max).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::files::redo::{Layout, PageChanges};

    fn log(pending: Pending) -> RedoLog {
        RedoLog {
            layout: Layout::MiniTransactions,
            creator: String::new(),
            checkpoint: 1,
            end: Some(1),
            pending,
            faults: Vec::new(),
            untested: None,
        }
    }

    #[test]
    fn log_and_label_decide_together() {
        let changes = || Pending::Pages(PageChanges::default());
        for (kind, pending, expected) in [
            ("", Some(Pending::Nothing), Circumstances::AtRest),
            ("", Some(changes()), Circumstances::Crashed),
            ("", Some(Pending::Unknown), Circumstances::Crashed),
            ("", None, Circumstances::Unknown),
            ("full-prepared", Some(Pending::Nothing), Circumstances::Prepared),
            // A server was started on it.
            ("full-prepared", Some(changes()), Circumstances::Crashed),
            ("full-prepared", None, Circumstances::Prepared),
            ("full-backuped", Some(Pending::Nothing), Circumstances::Backup),
            ("full-backuped", None, Circumstances::Backup),
            ("incremental", Some(changes()), Circumstances::Backup),
            ("log-applied", Some(changes()), Circumstances::Crashed),
            ("log-applied", Some(Pending::Nothing), Circumstances::Prepared),
        ] {
            let label = format!("backup_type = {kind}\nfrom_lsn = 0\nto_lsn = 7\nlast_lsn = 9\n");
            let label = BackupLabel::parse(&label).filter(|_| !kind.is_empty());
            let log = pending.map(log);
            let no_log = log.is_none().then_some(NoLog::Missing);
            let found = judge(log.as_ref(), no_log.as_ref(), label.as_ref());
            assert_eq!(found, expected, "{kind}: {log:?}");
        }
    }

    #[test]
    fn label_is_read_by_its_names() {
        let label = BackupLabel::parse("backup_type = incremental\nlast_lsn = 46\n").unwrap();
        assert!(label.is_incremental());
        assert_eq!(label.last_lsn, Some(46));
        assert_eq!(BackupLabel::parse("to_lsn = 4"), None);
    }

    #[test]
    fn lock_of_another_process_is_seen_and_none_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ibdata1");
        fs::write(&path, [0; 10]).unwrap();
        assert!(!is_in_use(folder.path()));
        let script = "import fcntl, sys, time; f = open(sys.argv[1], 'r+b'); \
                      fcntl.lockf(f, fcntl.LOCK_EX); print(1, flush=True); time.sleep(60)";
        let holder = std::process::Command::new("python3")
            .args(["-c", script])
            .arg(&path)
            .stdout(std::process::Stdio::piped())
            .spawn();
        let Ok(mut holder) = holder else { return };
        let mut line = [0; 1];
        std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut line).unwrap();
        assert!(is_in_use(folder.path()));
        assert_eq!(State::find(folder.path(), None).circumstances, Circumstances::Running);
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert!(!is_in_use(folder.path()));
    }
}
