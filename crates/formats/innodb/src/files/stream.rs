//! A backup as a stream of xtrabackup or mariabackup, out of a pipe or a file,
//! compressed or not.
//!
//! | in the stream | |
//! | --- | --- |
//! | tablespaces, `*.delta` behind their `*.meta` | judged page by page as they come |
//! | `*.MAI`, `*.MAD` | judged, if the index file comes first |
//! | `*.zst` of these | unpacked on the way |
//! | `*.lz4`, `*.qp`, `*.xbcrypt` | unread: they have to be unpacked first |
//!
//! Files come in pieces, several in turn. Each piece has a sum of its own, which is
//! tested.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::{HashMap, VecDeque};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zstd::stream::raw::{Decoder, InBuffer, Operation as _, OutBuffer};

use crate::FORMAT;
use crate::files::aria::{DATA_ENDING, INDEX_ENDING};
use crate::files::delta::Meta;
use crate::files::directory::Role;
use crate::files::feed::{Before, CHUNK_BYTES, Feed, unread};
use crate::files::state::{BackupLabel, LABELS, read_small};
use crate::files::tablespace::read_keyring;
use crate::files::untested::{Telling, Untested};
use crate::page::encryption::Keyring;
use crate::xbstream::{Chunk, ChunkKind, Chunks, looks_like_xbstream};
use pagewarden_core::database::{Description, Evidence, OpenOptions, Settled, Step, Target};
use pagewarden_core::error::Error;
use pagewarden_core::source::decode::{Decoded, decode};
use pagewarden_core::source::file::open_regular;
use pagewarden_core::verdict::{Finding, Kind, Note, Protection, Severity};
use pagewarden_format_aria::page::header::AriaHeader;

/// Files that may be under way at a time: the programs copy with dozens of threads.
const FILES_MAX: usize = 128;
/// Small files that are looked into are kept up to this.
const SMALL_BYTES_MAX: usize = 16 << 10;
/// Index files and `.meta` files that are remembered.
const REMEMBERED_MAX: usize = 1 << 18;
/// Holes in one piece of ten mebibytes: whole databases do not shrink further.
const HOLE_BYTES_MAX: u64 = 1 << 30;
/// Output to input, as for other streams.
const RATIO_FREE_BYTES: u64 = 4 << 30;
const RATIO_MAX: u64 = 1000;
/// `window_log_max` of the decoder, as for other streams.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// True for a file that holds a stream.
pub(super) fn is_known(path: &Path) -> bool {
    const HEAD_BYTES: usize = 512;
    let Some(head) = read_small(path, HEAD_BYTES) else { return false };
    if looks_like_xbstream(&head) {
        return true;
    }
    // By its name, before a decompressor is made.
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_named = [".xbstream", ".xb", ".mbstream"].iter().any(|ending| name.contains(ending));
    is_named && decoded(path).is_ok_and(|decoded| looks_like_xbstream(&decoded.begin))
}

fn decoded(path: &Path) -> std::io::Result<Decoded> {
    decode(Box::new(open_regular(&std::fs::canonicalize(path)?)?))
}

/// Opens a file that holds a stream.
///
/// # Errors
/// It cannot be read; or the keys cannot.
pub(super) fn open_file(path: &Path, options: &OpenOptions) -> Result<Target, Error> {
    let decoded = decoded(path).map_err(|source| Error::io("read", path, source))?;
    open(path, decoded, options)
}

/// Opens a stream.
///
/// # Errors
/// The keys cannot be read.
pub(crate) fn open(path: &Path, stream: Decoded, options: &OpenOptions) -> Result<Target, Error> {
    let keyring = options.keyring.as_deref().map(read_keyring).transpose()?;
    let walk = StreamWalk {
        path: path.to_owned(),
        chunks: Chunks::new(Box::new(stream.reader)),
        current: None,
        files: HashMap::new(),
        metas: HashMap::new(),
        aria: HashMap::new(),
        keyring,
        untested: Arc::default(),
        facts: Facts::default(),
        ready: VecDeque::new(),
        is_over: false,
    };
    let description = walk.description();
    let untested = Arc::clone(&walk.untested);
    Ok(Target { description, steps: Box::new(Telling::new(walk, untested)), woken: None })
}

/// What is known of the backup by now.
#[derive(Default)]
struct Facts {
    label: Option<BackupLabel>,
    server: Option<String>,
    /// Data files of Aria that came before their index files, or without.
    aria_without_index: u64,
}

/// A file that is under way.
struct UnderWay {
    feed: Feed,
    unpacker: Option<Decoder<'static>>,
    /// What came for it.
    packed_bytes: u64,
    /// The content of a small file that is looked into.
    small: Option<Vec<u8>>,
    /// The beginning of an index file.
    index: Option<Vec<u8>>,
    /// Where the next piece must begin.
    offset: u64,
    /// It was said that nothing more can be made of it.
    is_given_up: bool,
}

/// The payload that is being read.
struct Current {
    name: String,
    /// Holes that are still to come, each with the payload behind it.
    holes: VecDeque<(u32, u32)>,
    /// What is left of the hole that was reached.
    hole_left: u64,
    /// Payload before the next hole; `None` where no more comes.
    run_left: Option<u64>,
    /// Payload that is being unpacked, and how much of it was.
    packed: Vec<u8>,
    unpacked_to: usize,
}

struct StreamWalk {
    path: PathBuf,
    chunks: Chunks<Box<dyn Read + Send>>,
    current: Option<Current>,
    files: HashMap<String, UnderWay>,
    metas: HashMap<String, Meta>,
    aria: HashMap<String, AriaHeader>,
    keyring: Option<Arc<Keyring>>,
    untested: Arc<Untested>,
    facts: Facts,
    ready: VecDeque<Step>,
    is_over: bool,
}

impl StreamWalk {
    fn description(&self) -> Description {
        let state = match &self.facts.label {
            None => "a stream of a backup".to_owned(),
            Some(label) if label.is_incremental() => {
                "a stream of an incremental backup: changed pages only".to_owned()
            }
            Some(_) => "a stream of a backup: its log has yet to be applied".to_owned(),
        };
        Description {
            part: None,
            path: self.path.clone(),
            format: FORMAT.name,
            engine: self.facts.server.clone().unwrap_or_else(|| "InnoDB".to_owned()),
            page_size: 16_384,
            setting: Some(Protection::Checksum),
            state,
            evidence: Evidence {
                tested_by: "32-bit checksums, page and tablespace numbers",
                unseen: "older versions of a page; zeroed pages; a table that is missing as a whole",
            },
            live: false,
            epoch: None,
        }
    }

    /// One step further; what comes of it is in `ready`. False at the end.
    fn advance(&mut self) -> bool {
        if let Some(current) = self.current.take() {
            self.read_on(current);
            return !self.is_over;
        }
        match self.chunks.next_chunk() {
            Ok(Some(chunk)) => self.begin_chunk(chunk),
            Ok(None) => {
                // Each file has an end of its own.
                let mut open: Vec<_> = self.files.drain().collect();
                open.sort_by(|a, b| a.0.cmp(&b.0));
                for (name, file) in open {
                    let error = "the stream ends before this file does";
                    self.ready.push_back(unread(&name, file.offset, error));
                    file.feed.end(false, &mut self.ready);
                }
                return false;
            }
            Err(error) => {
                self.break_off(&error.to_string());
                return false;
            }
        }
        true
    }

    fn break_off(&mut self, error: &str) {
        let shown = self.path.file_name().unwrap_or(self.path.as_os_str());
        self.ready.push_back(unread(&shown.to_string_lossy(), 0, error));
        for (_, file) in self.files.drain() {
            file.feed.end(false, &mut self.ready);
        }
        self.is_over = true;
    }

    fn begin_chunk(&mut self, chunk: Chunk) {
        if chunk.kind == ChunkKind::Other {
            return;
        }
        if let Some(objection) = chunk.objection {
            self.ready.push_back(unread(
                &chunk.name,
                chunk.offset,
                format!("refused: {objection}"),
            ));
            return;
        }
        if chunk.kind == ChunkKind::End {
            if let Some(file) = self.files.remove(&chunk.name) {
                self.end_file(&chunk.name, file);
            }
            return;
        }
        if !self.files.contains_key(&chunk.name) {
            if self.files.len() >= FILES_MAX {
                let error = format!("the stream is refused: more than {FILES_MAX} files under way");
                return self.break_off(&error);
            }
            let file = self.begin_file(&chunk.name);
            self.files.insert(chunk.name.clone(), file);
        }
        if let Some(file) = self.files.get_mut(&chunk.name)
            && chunk.offset != file.offset
            && !file.is_given_up
        {
            file.is_given_up = true;
            let error =
                format!("a piece for offset {} comes, {} was due", chunk.offset, file.offset);
            self.ready.push_back(unread(&chunk.name, file.offset, error));
        }
        let hole_bytes: u64 = chunk.holes.iter().map(|(hole, _)| u64::from(*hole)).sum();
        if hole_bytes > HOLE_BYTES_MAX {
            return self.break_off("the stream is refused: it has more holes than data can have");
        }
        self.current = Some(Current {
            name: chunk.name,
            run_left: (!chunk.holes.is_empty()).then_some(0),
            holes: chunk.holes.into(),
            hole_left: 0,
            packed: Vec::new(),
            unpacked_to: 0,
        });
    }

    fn begin_file(&mut self, name: &str) -> UnderWay {
        let last = name.rsplit('/').next().unwrap_or(name);
        let (inner, ending) = match Role::of(last) {
            Role::Compressed => name.rsplit_once('.').unwrap_or((name, "")),
            _ => (name, ""),
        };
        let unpacker = (ending == "zst").then(|| {
            let mut decoder = Decoder::new().ok()?;
            let window = zstd::zstd_safe::DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX);
            decoder.set_parameter(window).ok()?;
            Some(decoder)
        });
        let unpacker = unpacker.flatten();
        let is_given_up = !ending.is_empty() && unpacker.is_none();
        if is_given_up {
            let error = format!("packed as {ending} in a stream, which is not unpacked here");
            self.ready.push_back(unread(name, 0, error));
        }
        let stem = |ending: &str| inner.strip_suffix(ending).map(|stem| stem.trim_end_matches('.'));
        let before = Before {
            meta: stem("delta").and_then(|stem| self.metas.get(stem).copied()),
            aria: stem(DATA_ENDING).and_then(|stem| self.aria.get(stem).copied()),
            keyring: self.keyring.clone(),
            untested: Arc::clone(&self.untested),
        };
        if inner.ends_with(DATA_ENDING) && before.aria.is_none() {
            self.facts.aria_without_index = self.facts.aria_without_index.saturating_add(1);
        }
        let is_small = LABELS.contains(&last) || last.ends_with(".meta") || INFOS.contains(&last);
        let feed = Feed::new(inner, self.path.clone(), before);
        if feed.is_lost() {
            let error = "its .meta file did not come before it";
            self.ready.push_back(unread(name, 0, error));
        }
        UnderWay {
            feed,
            unpacker,
            packed_bytes: 0,
            small: is_small.then(Vec::new),
            index: inner.ends_with(INDEX_ENDING).then(Vec::new),
            offset: 0,
            is_given_up,
        }
    }

    /// One piece of the current payload further, or its end.
    fn read_on(&mut self, mut current: Current) {
        let left = self.chunks.data_left();
        let Some(file) = self.files.get_mut(&current.name) else { return };
        if current.unpacked_to < current.packed.len() {
            let rest = current.packed.get(current.unpacked_to..).unwrap_or_default();
            let taken = file.unpack(&current.name, rest, &mut self.ready);
            current.unpacked_to = current.unpacked_to.saturating_add(taken);
        } else if current.hole_left > 0 {
            let length = current.hole_left.min(CHUNK_BYTES as u64);
            current.hole_left = current.hole_left.saturating_sub(length);
            let zeroes = vec![0_u8; usize::try_from(length).unwrap_or(0)];
            file.offset = file.offset.saturating_add(length);
            file.hand_on(&zeroes, &mut self.ready);
        } else if current.run_left == Some(0) {
            let next = current.holes.pop_front();
            current.hole_left = next.map_or(0, |(hole, _)| u64::from(hole));
            current.run_left = next.map(|(_, length)| u64::from(length));
        } else if left == 0 {
            return self.end_payload(&current.name);
        } else {
            let limit = current.run_left.map_or(left, |run| run.min(left));
            let length = usize::try_from(limit).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            let mut bytes = vec![0_u8; length];
            match self.chunks.read_data(&mut bytes) {
                Ok(count) => bytes.truncate(count),
                Err(error) => return self.break_off(&error.to_string()),
            }
            let count = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            current.run_left = current.run_left.map(|run| run.saturating_sub(count));
            file.offset = file.offset.saturating_add(count);
            if file.unpacker.is_some() {
                file.packed_bytes = file.packed_bytes.saturating_add(count);
                current.packed = bytes;
                current.unpacked_to = 0;
            } else {
                file.hand_on(&bytes, &mut self.ready);
            }
        }
        self.current = Some(current);
    }

    fn end_payload(&mut self, name: &str) {
        let Some((stored, computed)) = self.chunks.failing_sum() else { return };
        let detail = "a piece of this file was changed on its way: its sum does not fit";
        let mut finding =
            Finding::of_file(name, Severity::Damage, Kind::Checksum, detail.to_owned());
        finding.stored = Some(format!("{stored:08x}"));
        finding.computed = Some(format!("{computed:08x}"));
        self.ready.push_back(Step::Finding(finding));
    }

    fn end_file(&mut self, name: &str, file: UnderWay) {
        let last = name.rsplit('/').next().unwrap_or(name);
        let small = file.small.map(|small| String::from_utf8_lossy(&small).into_owned());
        if let Some(text) = small {
            if LABELS.contains(&last) {
                self.facts.label = BackupLabel::parse(&text);
            } else if INFOS.contains(&last) {
                self.facts.server = server_of(&text);
            } else if let (Some(meta), Some(stem)) =
                (Meta::parse(&text), name.strip_suffix(".meta"))
                && self.metas.len() < REMEMBERED_MAX
            {
                self.metas.insert(stem.to_owned(), meta);
            }
        }
        let stem = name.strip_suffix(INDEX_ENDING).map(|stem| stem.trim_end_matches('.'));
        if let (Some(stem), Some(head)) = (stem, &file.index)
            && let Some(header) = AriaHeader::parse(head)
            && self.aria.len() < REMEMBERED_MAX
        {
            self.aria.insert(stem.to_owned(), header);
        }
        file.feed.end(!file.is_given_up, &mut self.ready);
    }

    fn finish(&mut self) {
        let count = self.facts.aria_without_index;
        if count > 0 {
            let text = format!(
                "{count} data files of Aria tables came before their index files: they were not \
                 judged"
            );
            self.ready.push_back(Step::Note(Note { file: String::new(), text }));
        }
        let description = self.description();
        self.ready.push_back(Step::Settled(Box::new(Settled {
            description,
            has_sums: true,
            judge: Box::new(|_, _| {}),
        })));
    }
}

/// What the programs say of themselves and of the server.
const INFOS: [&str; 2] = ["xtrabackup_info", "mariadb_backup_info"];

/// The server's version in such a file.
fn server_of(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix("server_version = "))?;
    let version: String = line.trim().chars().filter(|it| !it.is_control()).take(60).collect();
    let (number, rest) = version.split_once('-').unwrap_or((&version, ""));
    let name = if rest.contains("MariaDB") { "MariaDB" } else { "MySQL" };
    Some(format!("{name} {number}"))
}

impl UnderWay {
    /// Takes the next bytes of the file.
    fn hand_on(&mut self, bytes: &[u8], ready: &mut VecDeque<Step>) {
        for kept in [&mut self.small, &mut self.index].into_iter().flatten() {
            let room = SMALL_BYTES_MAX.saturating_sub(kept.len()).min(bytes.len());
            kept.extend_from_slice(bytes.get(..room).unwrap_or_default());
        }
        match self.is_given_up {
            true => ready.push_back(Step::Passed(bytes.len() as u64)),
            false => self.feed.push(bytes, ready),
        }
    }

    /// Unpacks at most a mebibyte and says how much of `packed` it took.
    fn unpack(&mut self, name: &str, packed: &[u8], ready: &mut VecDeque<Step>) -> usize {
        let Some(unpacker) = self.unpacker.as_mut().filter(|_| !self.is_given_up) else {
            return packed.len();
        };
        let mut input = InBuffer::around(packed);
        let mut output = vec![0_u8; CHUNK_BYTES];
        let mut out = OutBuffer::around(&mut output[..]);
        let result = match unpacker.run(&mut input, &mut out) {
            // A frame has ended; another may follow.
            Ok(0) if input.pos() < packed.len() => unpacker.reinit(),
            other => other.map(drop),
        };
        let (taken, made) = (input.pos(), out.pos());
        output.truncate(made);
        self.hand_on(&output, ready);
        let is_bomb = self.feed.bytes() > RATIO_FREE_BYTES
            && self.feed.bytes() / RATIO_MAX > self.packed_bytes;
        let error = match result {
            Err(error) => Some(format!("it cannot be unpacked: {error}")),
            Ok(()) if is_bomb => Some("it is refused as a decompression bomb".to_owned()),
            // Neither taken nor made anything: it never will.
            Ok(()) if taken == 0 && made == 0 => Some("it cannot be unpacked".to_owned()),
            Ok(()) => None,
        };
        if let Some(error) = error {
            self.is_given_up = true;
            ready.push_back(unread(name, self.offset, error));
            return packed.len();
        }
        taken
    }
}

impl Iterator for StreamWalk {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Some(step);
            }
            if self.is_over {
                return None;
            }
            if !self.advance() {
                self.is_over = true;
                self.finish();
            }
        }
    }
}

/// A file of a backup that is compressed by itself: `t.ibd.zst`, `t.ibd.lz4`.
pub(super) struct Unpacking {
    name: String,
    reader: Box<dyn Read + Send>,
    feed: Option<Feed>,
}

impl Unpacking {
    /// Opens it. An error says why it cannot be read.
    pub(super) fn open(path: &Path, shown: &str, before: Before) -> Result<Self, String> {
        let (inner, ending) = shown.rsplit_once('.').unwrap_or((shown, ""));
        if ending == "qp" || ending == "xbcrypt" {
            let how = if ending == "qp" { "compressed with qpress" } else { "encrypted" };
            return Err(format!("{how}, which is not supported: unpack it first"));
        }
        let file = open_regular(path).map_err(|error| error.to_string())?;
        let decoded = decode(Box::new(file)).map_err(|error| error.to_string())?;
        let feed = Feed::new(inner, path.to_owned(), before);
        Ok(Self { name: shown.to_owned(), reader: Box::new(decoded.reader), feed: Some(feed) })
    }

    /// Reads on. False at the end.
    pub(super) fn advance(&mut self, ready: &mut VecDeque<Step>) -> bool {
        let Some(feed) = &mut self.feed else { return false };
        let mut bytes = vec![0_u8; CHUNK_BYTES];
        let mut filled = 0_usize;
        let error = loop {
            let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) else {
                break None;
            };
            match self.reader.read(rest) {
                Ok(0) => break Some(None),
                Ok(count) => filled = filled.saturating_add(count),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => break Some(Some(error)),
            }
        };
        feed.push(bytes.get(..filled).unwrap_or_default(), ready);
        let Some(ended) = error else { return true };
        if let Some(error) = &ended {
            let text = format!("it cannot be unpacked to its end: {error}");
            ready.push_back(unread(&self.name, feed.bytes(), text));
        }
        if let Some(feed) = self.feed.take() {
            feed.end(ended.is_none(), ready);
        }
        false
    }
}
