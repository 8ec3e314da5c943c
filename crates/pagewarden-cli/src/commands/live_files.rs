//! `check --server`: the files of a running MySQL or MariaDB, compared with what the server says that it
//! has.
//!
//! | seen of a file that the server has | | |
//! | --- | --- | --- |
//! | it is not here | `missing`, damage | a table that is not open in a MariaDB: unread |
//! | it is shorter than its own first page says | `truncated`, damage | |
//! | its first page is all zero | `zeroed`, damage | of MySQL only: in MariaDB it may be in the log alone |
//! | its first page has another number | unread | |
//!
//! Tables are made, renamed, emptied and removed meanwhile, and the dictionary and the files change one
//! after the other. So what looks wrong is looked at again after the server was asked again, with
//! growing pauses: a table that is gone or has another number or name, or a file that is right now, is
//! dropped; what was the same in every round is believed; what kept changing, and a file that has
//! another name now, is unread.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use pagewarden::database::{Evidence, Step, Target};
use pagewarden::formats::innodb::files::tablespace::{Context, open_file};
use pagewarden::source::file::open_regular;
use pagewarden::system::FileExt as _;
use pagewarden::verdict::{ByteOffset, Finding, Kind, Note, PageNo, Place, Severity, Unread};
use pagewarden_db::engine::mysql::tablespaces::{Files, Tablespace};
use pagewarden_db::location::Location;

/// Before each look again. A rename has its file renamed and is not in the dictionary for as long as a
/// disk takes to sync.
const PAUSES_MS: [u64; 7] = [50, 100, 200, 400, 800, 1500, 2000];
const FIRST_BYTES: usize = 4096;
/// Where page 0 has the number of its tablespace.
const SPACE_ID: usize = 34;

const EVIDENCE: Evidence = Evidence {
    tested_by: "32-bit checksums, page and tablespace numbers, and the server's own list of its files",
    unseen: "older versions of a page; zeroed pages, of MySQL those that are not the first one and that no \
             older page beside them leads to; what is missing of the system and undo tablespaces",
};

/// The target to verify instead: behind its files come those that are not as the server has them.
///
/// # Errors
/// The server cannot be asked, or is another's.
pub fn with_server(target: Target, location: &Location) -> anyhow::Result<Target> {
    let path = target.description.path.clone();
    anyhow::ensure!(
        target.description.format == "innodb" && target.description.live && path.is_dir(),
        "{}: not the data directory of a MySQL or MariaDB that runs\n\
         hint: --server is for one; leave it out, or name the directory that SELECT @@datadir tells",
        path.display()
    );
    let mut files = Files::of(location)?;
    let its = files.data_directory()?;
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    anyhow::ensure!(
        real(&its) == real(&path),
        "{} has its data in {}, not in {}\nhint: name the directory that belongs to the server",
        location,
        its.display(),
        path.display()
    );
    let mut target = target;
    target.description.evidence = EVIDENCE;
    let inner = std::mem::replace(&mut target.steps, Box::new(std::iter::empty()));
    let behind = std::iter::once_with(move || compare(&mut files, &path)).flatten();
    target.steps = Box::new(inner.chain(behind));
    Ok(target)
}

/// What a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Look {
    Fine,
    Missing,
    Cut {
        page: u64,
        bytes: u64,
        wanted: u64,
    },
    Blank,
    /// Of another tablespace.
    Other,
    Closed(String),
}

/// A file that is not as it should be, and how often it was seen so.
#[derive(Debug)]
struct Suspect {
    tablespace: Tablespace,
    look: Look,
    /// It was the same in all rounds.
    stood_still: bool,
}

fn compare(files: &mut Files, root: &Path) -> Vec<Step> {
    let asked = |error: &pagewarden_db::error::Error| {
        let error = format!("its files were not compared with what the server has: {error}");
        vec![Step::Unread(Unread::of_file("", error.replace('\n', "; ")))]
    };
    let known = match files.tablespaces() {
        Ok(known) => known,
        Err(error) => return asked(&error),
    };
    let is_mariadb = files.is_mariadb();
    let count = known.len();
    let suspect = |tablespace: Tablespace| {
        let look = look(root, &tablespace, is_mariadb);
        (look != Look::Fine).then_some(Suspect { tablespace, look, stood_still: true })
    };
    let mut suspects: Vec<_> = known.into_iter().filter_map(suspect).collect();
    for pause in PAUSES_MS {
        if suspects.is_empty() {
            break;
        }
        thread::sleep(Duration::from_millis(pause));
        let known = match files.tablespaces() {
            Ok(known) => known,
            Err(error) => return asked(&error),
        };
        suspects.retain_mut(|suspect| {
            let now = known.iter().find(|it| it.space == suspect.tablespace.space);
            let Some(now) = now else { return false };
            let look = look(root, now, is_mariadb);
            suspect.stood_still &= look == suspect.look && *now == suspect.tablespace;
            suspect.tablespace = now.clone();
            suspect.look = look;
            suspect.look != Look::Fine
        });
    }
    // The answer must have been true before the last look and behind it.
    if !suspects.is_empty() {
        match files.tablespaces() {
            Ok(known) => suspects.retain(|it| known.contains(&it.tablespace)),
            Err(error) => return asked(&error),
        }
    }
    let text = format!("{count} files that {} has were looked for", files.server());
    let mut steps = vec![Step::Note(Note { file: String::new(), text })];
    steps.extend(suspects.iter().map(|suspect| told(root, suspect)));
    steps
}

fn path_of(root: &Path, tablespace: &Tablespace) -> PathBuf {
    // An absolute path stays what it is.
    root.join(tablespace.path.strip_prefix("./").unwrap_or(&tablespace.path))
}

fn look(root: &Path, tablespace: &Tablespace, is_mariadb: bool) -> Look {
    let path = path_of(root, tablespace);
    let file = match open_regular(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Look::Missing,
        Err(error) => return Look::Closed(error.to_string()),
    };
    let mut first = [0; FIRST_BYTES];
    match file.read_exact_at(&mut first, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            let bytes = file.metadata().map_or(0, |metadata| metadata.len());
            return Look::Cut { page: 0, bytes, wanted: FIRST_BYTES as u64 };
        }
        Err(error) => return Look::Closed(error.to_string()),
    }
    if first.iter().all(|byte| *byte == 0) {
        return if is_mariadb { Look::Fine } else { Look::Blank };
    }
    let Ok(opened) = open_file(&path, Context::alone(String::new())) else { return Look::Fine };
    // What fails its own test is reported by `check` itself.
    let Some(header) = opened.header else { return Look::Fine };
    if opened.geometry.space_id != Some(tablespace.space) {
        return Look::Other;
    }
    let page_bytes = opened.geometry.layout.page_size as u64;
    // Servers make a file longer before they say so, and never shorter.
    let wanted = header.pages.saturating_mul(page_bytes);
    let page = opened.bytes.checked_div(page_bytes).unwrap_or(0);
    match opened.bytes < wanted {
        true => Look::Cut { page, bytes: opened.bytes, wanted },
        false => Look::Fine,
    }
}

fn told(root: &Path, suspect: &Suspect) -> Step {
    let Suspect { tablespace, look, stood_still } = suspect;
    let file = tablespace.path.strip_prefix("./").unwrap_or(&tablespace.path);
    let unread = |error: &str| Step::Unread(Unread::of_file(file, error));
    let found = |kind, page: Option<(u64, u64)>, detail: String| {
        let mut finding = Finding::of_file(file, Severity::Damage, kind, detail).with_hint(HINT);
        finding.place = Place {
            file: file.to_owned(),
            page: page.map(|(page, _)| PageNo(page)),
            offset: page.map(|(_, offset)| ByteOffset(offset)),
        };
        Step::Finding(finding)
    };
    if let Look::Closed(error) = look {
        return unread(error);
    }
    if !stood_still {
        return unread(
            "the server has it, and its file kept changing while it was compared: check again",
        );
    }
    match look {
        Look::Missing if !tablespace.is_known => unread(
            "the server has this table and does not have it open, and there is no file of it here: \
             DISCARD TABLESPACE leaves that, and so does a file that was lost; SELECT from the table \
             tells which",
        ),
        Look::Missing => match another_name(root, tablespace) {
            Some(name) => unread(&format!(
                "the server has it by this name, and its file has the name {name}: check again when \
                 what renames it is done"
            )),
            None => {
                found(Kind::Missing, None, "the server has this file, and it is not here".into())
            }
        },
        Look::Cut { page, bytes, wanted } => {
            let detail = format!(
                "{bytes} bytes, and by its first page it has {wanted}: a server that runs makes a file \
                 longer before it says so there"
            );
            found(Kind::Truncated, Some((*page, *bytes)), detail)
        }
        Look::Blank => {
            let detail = "all zero, and the server has a table in this file".to_owned();
            found(Kind::Zeroed, Some((0, 0)), detail)
        }
        Look::Other => unread("its first page is that of another tablespace than the server has"),
        Look::Fine | Look::Closed(_) => unread("it was not compared"),
    }
}

const HINT: &str = "do not stop or restart the server before the table's rows are copied: what it has open \
                    or in memory may be all that is left (mysqldump, SELECT ... INTO OUTFILE)";

/// A file of this tablespace by another name, in the folder where it should be.
fn another_name(root: &Path, tablespace: &Tablespace) -> Option<String> {
    let path = path_of(root, tablespace);
    let entries = fs::read_dir(path.parent()?).ok()?;
    let space = tablespace.space.to_be_bytes();
    entries.flatten().find_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let mut first = [0; SPACE_ID + 4];
        let file = open_regular(&entry.path()).ok().filter(|_| name.ends_with(".ibd"))?;
        file.read_exact_at(&mut first, 0).ok()?;
        first.ends_with(&space).then_some(name)
    })
}
