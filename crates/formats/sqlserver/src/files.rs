//! SQL Server: data files, the first page of log files, backups.
//!
//! | path | what is read |
//! |---|---|
//! | `.mdf`, `.ndf` | all pages of the file; see `data_file` |
//! | `.ldf` | its first page, and the blocks of the log behind it; see `log_file` |
//! | `.bak`, `.trn` | all pages and all log in it; see `backup` |
//!
//! Names say nothing here but in doubt: a file is known by its pages.

#![deny(clippy::arithmetic_side_effects)]

use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};

use crate::page::header::{Header, Tested, tested};
use crate::page::system::FileHeader;
use pagewarden_core::database::{Evidence, OpenOptions, Probe, Target};
use pagewarden_core::error::Error;
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::source::store::StorePath;
use pagewarden_core::verdict::{Note, Protection};

mod allocation;
pub mod backup;
pub(crate) mod data_file;
mod log_file;
mod strays;
mod structure;

/// The first bytes of a file, which show what it is if it is not SQL Server's.
const HEAD_BYTES: usize = backup::HEAD_BYTES;

pub(super) fn probe(path: &Path, metadata: &Metadata) -> Probe {
    if !metadata.is_file() {
        return Probe::No;
    }
    let is_known = |file: File| {
        read_head(&file).is_ok_and(|head| backup::is_backup(&head))
            || data_file::identify(&file, path).is_some()
            || (has_our_name(path)
                && (data_file::identify_by_sample(&file).is_some()
                    || backup::is_backup_without_its_beginning(&file)))
    };
    let known = open_file(path).is_ok_and(is_known);
    match (known, has_our_name(path)) {
        (true, _) => Probe::Yes,
        (false, true) => Probe::Maybe,
        (false, false) => Probe::No,
    }
}

pub(super) fn open(
    path: &Path,
    metadata: &Metadata,
    options: &OpenOptions,
) -> Result<Target, Error> {
    if !metadata.is_file() {
        return Err(Error::unrecognised(
            path,
            "not a file",
            "name the files of a SQL Server database or backup: x.mdf, x.ndf, x.bak",
        ));
    }
    let file = open_file(path).map_err(|source| Error::io("open", path, source))?;
    let head = read_head(&file).map_err(|source| Error::io("read", path, source))?;
    if backup::is_backup(&head)
        || backup::is_backup_without_its_beginning(&file)
        || (is_named_one_of(path, &["bak", "trn"]) && backup::ends_as_backup(&file))
    {
        return backup::open(&[StorePath::local(path)]);
    }
    let identity =
        data_file::identify(&file, path).or_else(|| data_file::identify_by_sample(&file));
    match identity {
        Some(identity) => data_file::open(path, &file, identity, options),
        None => Err(without_its_beginning(path, &file).unwrap_or_else(|| not_ours(path, &head))),
    }
}

/// A file that begins with a page of a file, and not the first one.
fn without_its_beginning(path: &Path, file: &File) -> Option<Error> {
    let page = data_file::read_page(file, 0)?;
    let header = Header::parse(&page);
    let is_page = header.is_formatted()
        && header.page > 0
        && header.file > 0
        && tested(&page, &header) == Tested::Sound;
    is_page.then(|| {
        Error::damaged(
            path,
            format!(
                "its first bytes are page {}:{} of a SQL Server file: what comes before that page \
                 was cut off",
                header.file, header.page
            ),
            "fetch the file again from where it was copied",
        )
    })
}

/// Files, named together, that say that they belong to another database than the first data files
/// among them, with what is to be said of each.
#[must_use]
pub fn strangers(paths: &[PathBuf]) -> Vec<(PathBuf, Note)> {
    let named = paths.iter().filter(|path| paths.len() > 1 && has_our_name(path));
    let files: Vec<_> = named.filter_map(|path| Some((path, binding_of(path)?))).collect();
    let firsts: Vec<_> = files.iter().filter(|(_, of)| of.is_first).collect();
    let is_strange = |of: &Belonging| firsts.iter().all(|(_, first)| first.binding != of.binding);
    let [(first, _), ..] = firsts.as_slice() else { return Vec::new() };
    let strange = files.iter().filter(|(_, of)| !of.is_first && is_strange(of));
    strange
        .map(|(path, _)| {
            let text = format!(
                "it says that it belongs to another database than {}: their file headers name \
                 different ones",
                file_name(first)
            );
            ((*path).clone(), Note { file: file_name(path), text })
        })
        .collect()
}

/// Which database a file belongs to.
struct Belonging {
    /// It is the first data file.
    is_first: bool,
    binding: [u8; 16],
}

fn binding_of(path: &Path) -> Option<Belonging> {
    let file = open_file(path).ok()?;
    let identity = data_file::identify(&file, path)?;
    let header = FileHeader::parse(&data_file::read_page(&file, 0)?)?;
    Some(Belonging { is_first: identity.number == 1, binding: header.binding? })
}

/// Opens a regular file, through a link that was named.
pub(crate) fn open_file(path: &Path) -> std::io::Result<File> {
    open_regular(&std::fs::canonicalize(path)?)
}

/// The bytes that tell what a file is.
pub(crate) fn read_head(file: &File) -> std::io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD_BYTES];
    let length = read_fully(file, &mut head, 0)?;
    head.truncate(length);
    Ok(head)
}

fn has_our_name(path: &Path) -> bool {
    const KNOWN: [&str; 5] = ["mdf", "ndf", "ldf", "bak", "trn"];
    const COMPRESSED: [&str; 4] = ["gz", "xz", "zst", "bz2"];
    let inner = || path.file_stem().is_some_and(|stem| is_named_one_of(Path::new(stem), &KNOWN));
    is_named_one_of(path, &KNOWN) || (is_named_one_of(path, &COMPRESSED) && inner())
}

fn is_named_one_of(path: &Path, endings: &[&str]) -> bool {
    let extension = path.extension().map(std::ffi::OsStr::to_ascii_lowercase);
    extension.is_some_and(|extension| endings.iter().any(|known| extension == *known))
}

/// How compressed files begin, what they are called, and what unpacks them.
const COMPRESSED: [(&[u8], &str, &str); 4] = [
    (b"\x1F\x8B", "gzip", "zcat"),
    (b"\xFD7zXZ\0", "xz", "xzcat"),
    (b"\x28\xB5\x2F\xFD", "zstd", "zstdcat"),
    (b"BZh", "bzip2", "bzcat"),
];

/// Why a file is none of SQL Server's, in words that fit what it is.
pub(crate) fn not_ours(path: &Path, head: &[u8]) -> Error {
    const HINT: &str = "name the files of a SQL Server database or backup: x.mdf, x.ndf, x.bak";
    let text = String::from_utf8_lossy(head).trim_start().to_ascii_lowercase();
    if head.is_empty() {
        return Error::unrecognised(path, "an empty file", "there is nothing in it to check");
    }
    if text.starts_with("version https://git-lfs") {
        return Error::unrecognised(
            path,
            "not a SQL Server file but a Git LFS pointer to one",
            "fetch the file itself: git lfs pull",
        );
    }
    if ["<!doctype", "<html", "<?xml"].iter().any(|begin| text.starts_with(begin)) {
        return Error::unrecognised(
            path,
            "not a SQL Server file but a web page or XML text",
            "it may be the page of a download that was refused: fetch the file again",
        );
    }
    if head.starts_with(b"PK\x03\x04") {
        return Error::unrecognised(
            path,
            "not a SQL Server file but a zip archive or an office document",
            "unpack it, and name the file in it",
        );
    }
    if let Some((_, what, tool)) = COMPRESSED.iter().find(|(mark, ..)| head.starts_with(mark)) {
        let name = path.to_string_lossy().replace('\'', "'\\''");
        return Error::unrecognised(
            path,
            format!("not a SQL Server file itself: it is compressed with {what}"),
            format!(
                "a backup is read as it comes out: {tool} < '{name}' | pagewarden check -; a data \
                 file is unpacked first: {tool} < '{name}' > x.mdf"
            ),
        );
    }
    if head.iter().all(|byte| *byte == 0) {
        return Error::unrecognised(path, "not a SQL Server file: it begins with zeroes", HINT);
    }
    Error::unrecognised(path, "not a SQL Server file: none of its first pages is one", HINT)
}

fn setting_in_words(setting: Protection) -> &'static str {
    match setting {
        Protection::Checksum => "PAGE_VERIFY CHECKSUM",
        Protection::Torn => "PAGE_VERIFY TORN_PAGE_DETECTION",
        Protection::None => "PAGE_VERIFY NONE",
    }
}

/// How much "ok" is worth. The checksum is linear, which is weaker than its 32 bits sound.
fn evidence_of(setting: Option<Protection>) -> Evidence {
    match setting {
        Some(Protection::Checksum) => Evidence {
            tested_by: "32-bit linear checksums or torn bits, page numbers, and what pages say of themselves and of one another",
            unseen: "words of a sector that changed places, 1 in 30 pairs of flipped bits, a sector of one repeated word turned into another (free space), older versions of a page",
        },
        None => Evidence {
            tested_by: "32-bit linear checksums or torn bits, page numbers, the page free space, and what pages say of themselves",
            unseen: "words of a sector that changed places, 1 in 30 pairs of flipped bits, a sector of one repeated word turned into another (free space, allocation maps), older versions of a page",
        },
        Some(Protection::Torn) => Evidence {
            tested_by: "torn bits, page numbers, and what pages say of themselves and of one another",
            unseen: "damage to the content of a page: torn bits show torn writes and little else",
        },
        Some(Protection::None) => Evidence {
            tested_by: "page numbers, what pages say of themselves and of one another, and the checksums of pages written before",
            unseen: "damage to the content of pages written since checksums were turned off",
        },
    }
}

/// The same of a backup: around its pages stand blocks with names, dates and other details, of which
/// only the headers have sums.
fn evidence_of_backup(setting: Option<Protection>) -> Evidence {
    let unseen = match setting {
        Some(Protection::Checksum) | None => {
            "words of a sector that changed places, 1 in 30 pairs of flipped bits, a sector of one repeated word turned into another (free space, allocation maps), older versions of a page; around the pages, what carries no sum: details in the blocks of the backup, and what a set says of itself in other words at its end"
        }
        Some(Protection::Torn) => {
            "damage to the content of a page: torn bits show torn writes and little else; around the pages, what carries no sum: details in the blocks of the backup, and what a set says of itself in other words at its end"
        }
        Some(Protection::None) => {
            "damage to the content of pages written since checksums were turned off; around the pages, what carries no sum: details in the blocks of the backup, and what a set says of itself in other words at its end"
        }
    };
    let tested_by = match setting {
        Some(Protection::Checksum) | None => {
            "32-bit linear checksums or torn bits, page numbers, and the page free space"
        }
        Some(Protection::Torn) => "torn bits, page numbers, and the page free space",
        Some(Protection::None) => {
            "page numbers, the page free space, and the checksums of pages written before"
        }
    };
    Evidence { tested_by, unseen }
}

pub(crate) fn file_name(path: &Path) -> String {
    path.file_name()
        .map_or_else(|| path.to_string_lossy(), |name| name.to_string_lossy())
        .into_owned()
}
