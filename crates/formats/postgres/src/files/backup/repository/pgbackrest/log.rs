//! The log of a stanza.
//!
//! ```text
//! archive/STANZA/archive.info[.copy]                        opens the segments, where they are encrypted
//! archive/STANZA/15-1/0000000100000000/NAME-SHA1[.gz...]    a segment; the SHA-1 is that of its plain bytes
//! archive/STANZA/15-1/00000002.history                      a timeline's history
//! ```
//!
//! A folder is named by the server's version and by the number of the cluster in the stanza's history.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use sha1::{Digest as _, Sha1};

use super::cipher::Passphrase;
use super::info::{self, InfoFault, hex};
use super::set::{KEY_HINT, info_step, stored};
use super::stanza::{Stanza, system_of};
use super::stored::{Codec, Coding};
use crate::files::archived_log::{
    ArchivedLog, LogArchive, NoSegment, StoredSegment, no_segment, plain_file,
};
use pagewarden_core::database::Step;
use pagewarden_core::source::store::{Listed, Seen, StorePath};
use pagewarden_core::verdict::{Finding, Kind, Severity, Unread};

const INFO: &str = "archive.info";
const NAME_DIGITS: usize = 24;
const SUM_DIGITS: usize = 40;
const HISTORY_BYTES_MAX: u64 = 1 << 20;
const FILES_MAX: usize = 1 << 26;

/// The logs of a stanza's clusters: of the one that it has now, and of those that it had before.
pub(super) fn of_stanza(
    repository: &StorePath,
    stanza: &Stanza,
    passphrase: Option<&Passphrase>,
    asked: Option<&[String]>,
    steps: &mut Vec<Step>,
) -> Vec<ArchivedLog> {
    let shown = format!("archive/{}", stanza.name);
    let folder = repository.join(&shown);
    let Books { key, versions, systems } = match books_of(&folder, &shown, passphrase, steps) {
        Ok(books) => books,
        Err(step) => {
            steps.push(*step);
            return Vec::new();
        }
    };
    let mut other = systems.iter().filter_map(|(number, system)| {
        let listed = stanza.systems.get(number).filter(|listed| *listed != system)?;
        Some((number, system, listed))
    });
    if let Some((number, system, listed)) = other.next() {
        let shown = format!("{shown}/{INFO}");
        let detail = format!(
            "it is of another cluster: number {number} has the system identifier {system} here, and \
             {listed} in backup.info. The tool refuses to fetch log for a restore"
        );
        let finding = Finding::of_file(&shown, Severity::Damage, Kind::Misplaced, detail)
            .with_hint("copy the file that belongs to this stanza over it")
            .stored_at(stored(&shown));
        steps.push(Step::Finding(finding));
    }
    let clusters = match clusters_in(&folder) {
        // A folder of another name is none that the tool looks into.
        Ok(mut clusters) => {
            clusters.retain(|(name, number)| {
                let version = versions.get(number);
                version.is_none_or(|version| *name == format!("{version}-{number}"))
            });
            clusters
        }
        Err(error) => {
            steps.push(Step::Unread(Unread::of_file(shown, error.to_string())));
            return Vec::new();
        }
    };
    let mut logs = Vec::new();
    let is_here = |cluster: &u64| clusters.iter().any(|(_, number)| number == cluster);
    for cluster in stanza.clusters().into_iter().filter(|cluster| !is_here(cluster)) {
        let sets = stanza.sets_of_log(cluster);
        logs.push(ArchivedLog {
            name: stanza.name.clone(),
            archive: Arc::new(Listing::default()),
            sets: sets.sets,
            asked: asked.map(<[String]>::to_vec),
            waits_for_log: sets.waited_for_log,
        });
    }
    for (name, cluster) in clusters {
        let listing = Listing { key: key.clone(), ..Listing::default() };
        match listing.of(repository, &folder.join(&name)) {
            Ok(listing) => {
                let sets = stanza.sets_of_log(cluster);
                logs.push(ArchivedLog {
                    name: format!("{} {name}", stanza.name),
                    archive: Arc::new(listing),
                    sets: sets.sets,
                    asked: asked.map(<[String]>::to_vec),
                    waits_for_log: sets.waited_for_log,
                });
            }
            Err(error) => {
                let shown = format!("{shown}/{name}");
                steps.push(Step::Unread(Unread::of_file(shown, error.to_string())));
            }
        }
    }
    logs
}

/// Says of which stanzas there is a log, and no folder of backups: the tool makes both at once.
pub(super) fn of_no_stanza(
    repository: &StorePath,
    is_wanted: &dyn Fn(&StorePath) -> bool,
) -> Vec<Step> {
    let archive = repository.join("archive");
    let backup = repository.join("backup");
    let is_alone = |name: &str| {
        let folder = archive.join(name);
        let is_gone = |found: io::Result<Seen>| {
            found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        is_wanted(&folder) && info::is_there(&folder, INFO) && is_gone(backup.join(name).look())
    };
    let listed = archive.list().unwrap_or_default();
    let alone =
        listed.iter().filter(|one| !matches!(one.seen, Seen::File(_)) && is_alone(&one.name));
    alone
        .map(|one| {
            let shown = format!("backup/{}", one.name);
            let detail = "there is a log of this stanza, and no folder with its backups";
            let finding =
                Finding::of_file(&shown, Severity::Damage, Kind::Missing, detail.to_owned())
                    .with_hint("if the stanza was deleted, stanza-delete removes its log too")
                    .stored_at(stored(&shown));
            Step::Finding(finding)
        })
        .collect()
}

/// What the list of clusters says.
#[derive(Default)]
struct Books {
    /// Opens the segments; `None` where they are not encrypted.
    key: Option<Passphrase>,
    /// The versions of the clusters, by their numbers.
    versions: BTreeMap<u64, String>,
    /// Their system identifiers.
    systems: BTreeMap<u64, u64>,
}

fn books_of(
    folder: &StorePath,
    shown: &str,
    passphrase: Option<&Passphrase>,
    steps: &mut Vec<Step>,
) -> Result<Books, Box<Step>> {
    let opened = info::open(folder, INFO, passphrase);
    if let Some((name, fault)) = &opened.other {
        steps.extend(info_step(&format!("{shown}/{name}"), fault, "the other one was used"));
    }
    let mut books = Books::default();
    let read = opened.file.and_then(|file| {
        file.read(&mut |section, name, value| {
            if (section, name) == ("cipher", "cipher-pass") {
                books.key = serde_json::from_str::<String>(value).ok().map(Passphrase::new);
            } else if section == "db:history" {
                let cluster = serde_json::from_str::<serde_json::Value>(value).unwrap_or_default();
                let version = cluster.get("db-version").and_then(serde_json::Value::as_str);
                let version = version.map(str::to_owned);
                books.versions.extend(name.parse().ok().zip(version));
                books.systems.extend(system_of(name, value, "db-id"));
            }
        })
    });
    let Err(fault) = read else { return Ok(books) };
    let shown = format!("{shown}/{INFO}");
    let step = info_step(&shown, &fault, "the log was not read");
    let missing = || Step::Unread(Unread::of_file(&shown, "it is not there".to_owned()));
    let step = step.filter(|_| fault != InfoFault::Missing).unwrap_or_else(missing);
    // Damage of this file does not say that there is any in the log.
    if matches!(step, Step::Finding(_)) {
        let error = "the log was not read: nothing says how its segments are stored";
        steps.push(Step::Unread(Unread::of_file(shown, error)));
    }
    Err(Box::new(step))
}

/// The folders of clusters, with their numbers.
fn clusters_in(folder: &StorePath) -> io::Result<Vec<(String, u64)>> {
    let mut found = Vec::new();
    for Listed { name, .. } in folder.list()? {
        let number = name.rsplit_once('-').and_then(|(version, number)| {
            let is_version = version.starts_with(|digit: char| digit.is_ascii_digit());
            number.parse().ok().filter(|_| is_version)
        });
        found.extend(number.map(|number| (name, number)));
    }
    found.sort_by_key(|(_, number)| *number);
    Ok(found)
}

/// The segments of a cluster.
#[derive(Default)]
struct Listing {
    root: Option<StorePath>,
    key: Option<Passphrase>,
    segments: Vec<StoredSegment>,
    histories: Vec<(u32, Result<String, String>)>,
    /// Names of segments that are stored twice, with other content.
    twice: HashSet<String>,
}

impl Listing {
    fn of(mut self, root: &StorePath, folder: &StorePath) -> io::Result<Self> {
        self.root = Some(root.clone());
        for Listed { name, seen } in folder.list()? {
            let path = folder.join(&name);
            if seen == Seen::Folder {
                self.add_folder(root, &path)?;
            } else if let Some(timeline) = name.strip_suffix(".history") {
                let timeline = u32::from_str_radix(timeline, 16).ok();
                let text = self.text_of(&path).map_err(|error| error.to_string());
                self.histories.extend(timeline.map(|timeline| (timeline, text)));
            }
        }
        self.segments.sort_by(|a, b| (&a.name, &a.stored_file).cmp(&(&b.name, &b.stored_file)));
        let twice = &mut self.twice;
        self.segments.dedup_by(|later, first| {
            let is_twice = later.name == first.name;
            if is_twice {
                twice.insert(first.name.clone());
            }
            is_twice
        });
        Ok(self)
    }

    fn add_folder(&mut self, root: &StorePath, folder: &StorePath) -> io::Result<()> {
        for Listed { name: file_name, seen } in folder.list()? {
            let Some((name, _)) = parts_of(&file_name) else { continue };
            if self.segments.len() >= FILES_MAX {
                return Err(io::Error::other("more files than a log can have"));
            }
            let stored_file = folder.join(&file_name).below(root);
            self.segments.push(StoredSegment {
                name: name.to_owned(),
                stored_file,
                is_partial: false,
                stored_bytes: seen.bytes(),
            });
        }
        Ok(())
    }

    fn reader(&self, place: &StorePath) -> io::Result<Box<dyn Read + Send>> {
        let path = place.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        // What follows the name of a segment that is not compressed is its sum.
        let named = ending.filter(|_| !path.to_string_lossy().ends_with(".history"));
        let codec = named.map_or(Some(Codec::None), Codec::named);
        let codec = codec.ok_or_else(|| {
            let error = format!("compressed in a way that is not known here: {named:?}");
            io::Error::new(io::ErrorKind::Unsupported, error)
        })?;
        let coding = Coding { codec, raw: false, passphrase: self.key.clone() };
        coding.decode(Box::new(place.open()?))
    }

    fn text_of(&self, path: &StorePath) -> io::Result<String> {
        let mut text = String::new();
        self.reader(path)?.take(HISTORY_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    }
}

impl LogArchive for Listing {
    fn segments(&self) -> &[StoredSegment] {
        &self.segments
    }

    fn histories(&self) -> Vec<(u32, Result<String, String>)> {
        self.histories.clone()
    }

    fn open(&self, segment: &StoredSegment) -> Result<File, NoSegment> {
        if self.twice.contains(&segment.name) {
            let words = "stored twice, with other content: pgBackRest gives neither to a server";
            return Err(NoSegment::Damaged(Kind::Structure, None, words.to_owned()));
        }
        let Some(root) = &self.root else {
            return Err(NoSegment::Unread("it was not listed".to_owned()));
        };
        let path = root.join(&segment.stored_file);
        let reader = self.reader(&path).map_err(|error| no_segment(&error))?;
        let mut reader = Summed { reader, hash: Sha1::new() };
        let file = plain_file(&mut reader);
        let name = path.name().unwrap_or_default();
        let listed = parts_of(name).map(|(_, sum)| sum).unwrap_or_default();
        let computed = hex(&reader.hash.finalize());
        let file = file.map_err(|why| match why {
            NoSegment::Damaged(kind, at, words) if self.key.is_some() => {
                let words = format!("{words} (it is encrypted: if all are like this, {KEY_HINT})");
                NoSegment::Damaged(kind, at, words)
            }
            other => other,
        })?;
        match listed == computed {
            true => Ok(file),
            false => {
                let words = format!("its SHA-1 is {computed}, in its name {listed}");
                Err(NoSegment::Damaged(Kind::Checksum, None, words))
            }
        }
    }
}

/// The name of the segment that a file holds, and the SHA-1 of its plain bytes.
fn parts_of(file_name: &str) -> Option<(&str, &str)> {
    let (name, rest) = file_name.split_at_checked(NAME_DIGITS)?;
    let (sum, ending) = rest.strip_prefix('-')?.split_at_checked(SUM_DIGITS)?;
    let is_hexadecimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let codec = ending.strip_prefix('.').and_then(Codec::named);
    let is_one =
        is_hexadecimal(name) && is_hexadecimal(sum) && (ending.is_empty() || codec.is_some());
    is_one.then_some((name, sum))
}

/// A reader that sums what comes.
struct Summed {
    reader: Box<dyn Read + Send>,
    hash: Sha1,
}

impl Read for Summed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(bytes)?;
        self.hash.update(bytes.get(..count).unwrap_or_default());
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_stored_segments_have_their_sum() {
        let (name, sum) = ("000000010000000000000026", "e938f0804438e690cfc076f926a5c07852b1a4e2");
        for ending in ["", ".zst", ".gz"] {
            let file = format!("{name}-{sum}{ending}");
            assert_eq!(parts_of(&file), Some((name, sum)), "{file}");
        }
        for file in [
            format!("{name}.00000028.backup"),
            format!("{name}.partial-{sum}.gz"),
            format!("{name}-{sum}x"),
            format!("{name}-{}", &sum[1..]),
            "\u{e9}".repeat(40),
        ] {
            assert_eq!(parts_of(&file), None, "{file}");
        }
    }
}
