//! The way through archives: member by member, pages handed on as they come.
//!
//! A server's archive begins with `backup_label` and ends with `pg_control` and
//! the manifest; a tablespace's archive has neither; in an archive that a user
//! made of a folder they may lie anywhere. So pages are judged as if checksums were on, what
//! fails is held back by the engine, and the end of the last archive says what
//! stands: by the control file, or where none came, by whether the sums of
//! pages that were sampled on the way fit.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tempfile::SpooledTempFile;

use crate::files::backup::apart::Gathered;
use crate::files::backup::books::Books;
use crate::files::backup::hash::{Algorithm, Hasher};
use crate::files::backup::label::{self, Label};
use crate::files::backup::ledger::Ledger;
use crate::files::backup::manifest;
use crate::files::backup::members::{Broken, MemberData, Members, Piece, SetTerms};
use crate::files::backup::needed::Needed;
use crate::files::backup::pages::{Cut, Sample};
use crate::files::backup::place::{RelationPlace, Role, locate};
use crate::files::backup::taking::{Opening, Taking};
use crate::files::control::{CONTROL_BYTES, Control, ControlFault};
use crate::files::names::Fork;
use crate::files::{SEGMENT_BYTES, incremental, loose, maps, walk};
use crate::page::{Checksums, PostgresPages};
use pagewarden_core::database::{PageFile, Step, StreamedPages, Target};
use pagewarden_core::error::Error;
use pagewarden_core::source::decode::Decoded;
use pagewarden_core::source::store::StorePath;
use pagewarden_core::source::tar::{Archive, Member, MemberKind, TarError, Trailing};
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, Note, PageNo, Severity, Unread};

/// Pages that are handed on at a time: a multiple of every page size.
const CHUNK_BYTES: usize = 1 << 20;
/// Small files that are looked into are read whole up to this.
const SMALL_BYTES_MAX: u64 = 64 << 10;
/// A manifest waits for the end in memory up to this, and in an unnamed
/// temporary file beyond.
const MANIFEST_IN_MEMORY: usize = 1 << 20;
/// A manifest past this (some ten million files) is not compared with anything.
const MANIFEST_BYTES_MAX: u64 = 4 << 30;
/// Enough to show what is wrong.
pub(super) const NOTES_MAX: usize = 100;
/// The same of incomplete pages.
pub(super) const PARTIAL_MAX: usize = NOTES_MAX * NOTES_MAX;
/// `MAXIMUM_ALIGNOF` of all servers at least, while it is not known.
const SMALLEST_ALIGN: u16 = 4;
/// Pages of a segment of a transaction log.
const LOG_SEGMENT_PAGES: u64 = 32;
/// How far is read for a first look before the report begins.
const FIRST_LOOK_BYTES: u64 = 64 << 20;

/// A source that is open already.
pub(super) enum Opened {
    /// An archive as a stream.
    Archive(Decoded),
    /// Members that are found in another way.
    Members(Box<dyn Members>),
}

/// An archive to go through.
pub(super) struct Source {
    /// Where it is; for a stream, what it is called.
    pub(super) place: StorePath,
    /// Set for a stream, and for the files of a repository's set.
    pub(super) opened: Option<Opened>,
    /// What stands before its names in the report.
    pub(super) shown: String,
    /// What stands before its names in the manifest.
    pub(super) prefix: String,
}

/// The archive that is read.
pub(super) struct Current {
    pub(super) members: Box<dyn Members>,
    pub(super) source: Source,
    /// The data directory in it.
    root: Option<String>,
    /// Said once that there is another.
    said_other_root: bool,
    member: Option<InMember>,
    /// It has no further member.
    is_ended: bool,
}

/// The member whose data is being read.
pub(super) struct InMember {
    pub(super) name: String,
    /// Its name in the manifest.
    key: String,
    pub(super) bytes: u64,
    offset: u64,
    /// For the server's manifest; a repository's sets are tested by the tool's own sums.
    hasher: Option<Hasher>,
    role: Option<Role>,
    file: Option<Arc<PageFile>>,
    small: Vec<u8>,
    /// Not all of it came.
    has_holes: bool,
}

/// What is known of the cluster by now.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) label: Option<Label>,
    pub(super) label_text: String,
    /// The label was the first file: so a server begins.
    pub(super) label_first: bool,
    pub(super) control: Option<Result<Control, ControlFault>>,
    pub(super) major: Option<String>,
    pub(super) page_size: Option<usize>,
    pub(super) tablespaces: Vec<String>,
    pub(super) files: u64,
    pub(super) relations: u64,
    /// Relations of the data directory itself were among those that were read.
    pub(super) has_base: bool,
    /// A whole data directory was among what was read, by its version file.
    pub(super) has_root: bool,
    pub(super) compression: Option<&'static str>,
    pub(super) needed: Needed,
    /// Something of the source was lost or not read, which was said.
    pub(super) has_losses: bool,
    /// Its source could not be read everywhere.
    pub(super) has_unread: bool,
}

/// Where the manifest is.
pub(super) enum ManifestAt {
    /// In a file beside the archives.
    File(File),
    /// It came in an archive.
    Spooled(SpooledTempFile),
}

/// See the module.
pub(super) struct ArchiveWalk {
    pub(super) path: PathBuf,
    pub(super) sources: VecDeque<Source>,
    /// All tablespaces of the backup are among the sources.
    pub(super) has_all_tablespaces: bool,
    pub(super) current: Option<Current>,
    pub(super) ready: VecDeque<Step>,
    pub(super) facts: Facts,
    pub(super) sample: Sample,
    pub(super) ledger: Ledger,
    pub(super) manifest: Option<ManifestAt>,
    /// Incomplete pages, with the most that one proves.
    pub(super) partial: Vec<(Finding, Severity)>,
    /// Set when an archive could not be read to its end.
    pub(super) is_cut: bool,
    pub(super) notes: usize,
    pub(super) is_done: bool,
    /// A folder with log that was named.
    pub(super) wal: Option<PathBuf>,
    /// Archives that may hold the log, and can be read again.
    pub(super) log_archives: Vec<StorePath>,
    /// Set for a repository's set.
    pub(super) terms: Option<SetTerms>,
    /// The server sent it, with a manifest.
    pub(super) is_by_server: bool,
    /// Takes what the backup says of itself, where that is wanted.
    pub(super) books: Option<Arc<Books>>,
    /// Set where files are taken out, and no page is judged.
    taking: Option<Arc<Taking>>,
    /// What is known of files that were read apart, behind a barrier.
    pub(super) gathered: Arc<Mutex<Gathered>>,
    /// How many there are.
    pub(super) apart: u64,
    /// Some may not have come to their end.
    pub(super) has_apart: bool,
}

impl ArchiveWalk {
    pub(super) fn new(path: PathBuf, opening: &Opening) -> Self {
        Self {
            path,
            sources: VecDeque::new(),
            has_all_tablespaces: false,
            current: None,
            ready: VecDeque::new(),
            facts: Facts::default(),
            sample: Sample::default(),
            ledger: Ledger::new(Algorithm::Crc32c),
            manifest: None,
            partial: Vec::new(),
            is_cut: false,
            notes: 0,
            is_done: false,
            wal: opening.wal.clone(),
            log_archives: Vec::new(),
            terms: None,
            is_by_server: false,
            books: None,
            taking: opening.taking.clone(),
            gathered: Arc::default(),
            apart: 0,
            has_apart: false,
        }
    }

    /// Looks for a manifest beside the archives.
    pub(super) fn find_manifest(&mut self, folder: &StorePath) {
        let file = match folder.join(manifest::NAME).as_file() {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return self.unread(manifest::NAME, 0, 0, error.to_string()),
        };
        let mut algorithm = None;
        // One that cannot be believed is reported at the end.
        if let Ok(mut begin) = file.try_clone() {
            let _ = manifest::read(&mut begin, &mut |entry| {
                algorithm = algorithm.or(entry.hash.map(|(algorithm, _)| algorithm));
            });
        }
        self.ledger = Ledger::new(algorithm.unwrap_or(Algorithm::Crc32c));
        self.manifest = Some(ManifestAt::File(file));
    }

    /// Goes as far as the first pages, so that the report can begin with what
    /// the archive is.
    pub(super) fn into_target(mut self) -> Result<Target, Error> {
        if let Some(taking) = self.taking.take() {
            taking.begin("a base backup", None);
            return Ok(self.taken_out(&taking));
        }
        let (ahead, passed) = self.first_look();
        let is_cluster = self.facts.relations > 0
            || self.facts.control.is_some()
            || self.facts.label.is_some()
            || passed >= FIRST_LOOK_BYTES;
        if !is_cluster {
            let fault = ahead.iter().find_map(|step| match step {
                Step::Unread(unread) => Some(unread.error.clone()),
                _ => None,
            });
            return Err(Error::unrecognised(
                &self.path,
                match fault {
                    Some(fault) => format!("an archive that cannot be read: {fault}"),
                    None => "an archive in which no relations were found".to_owned(),
                },
                "name the archive of a data directory or of a tablespace: base.tar, 16384.tar",
            ));
        }
        let description = self.description(None);
        Ok(Target { description, steps: Box::new(ahead.into_iter().chain(self)), woken: None })
    }

    /// A set of a repository, which is known to be one.
    pub(super) fn into_set(mut self, terms: SetTerms, members: Box<dyn Members>) -> Target {
        self.has_all_tablespaces = true;
        self.terms = Some(terms);
        self.sources.push_back(Source {
            place: StorePath::local(&self.path),
            opened: Some(Opened::Members(members)),
            shown: String::new(),
            prefix: String::new(),
        });
        if let Some(taking) = self.taking.take() {
            let terms = self.terms.as_ref();
            let what = terms.map_or("", |terms| terms.what.as_str());
            taking.begin(what, terms.and_then(|terms| terms.log.clone()));
            return self.taken_out(&taking);
        }
        let (ahead, _) = self.first_look();
        let description = self.description(None);
        Target { description, steps: Box::new(ahead.into_iter().chain(self)), woken: None }
    }

    /// Nothing is left to judge once the wanted files are taken out.
    fn taken_out(mut self, taking: &Taking) -> Target {
        let in_pieces = self.terms.is_some();
        while self.open_next() {
            if let Some(mut current) = self.current.take() {
                taking.go_through(current.members.as_mut(), &current.source.prefix, in_pieces);
            }
        }
        let description = self.description(None);
        Target { description, steps: Box::new(self.ready.into_iter()), woken: None }
    }

    /// The steps up to the first pages, and the number of bytes before them.
    fn first_look(&mut self) -> (VecDeque<Step>, u64) {
        let mut passed = 0_u64;
        let mut ahead = VecDeque::new();
        while passed < FIRST_LOOK_BYTES {
            match self.next() {
                Some(Step::Passed(bytes)) => {
                    passed = passed.saturating_add(bytes);
                    ahead.push_back(Step::Passed(bytes));
                }
                Some(step) => {
                    let is_enough = matches!(step, Step::Pages(_) | Step::Apart(_));
                    ahead.push_back(step);
                    if is_enough {
                        break;
                    }
                }
                None => break,
            }
        }
        (ahead, passed)
    }

    pub(super) fn note(&mut self, file: &str, text: impl Into<String>) {
        self.notes = self.notes.saturating_add(1);
        if self.notes <= NOTES_MAX {
            self.ready.push_back(Step::Note(Note { file: file.to_owned(), text: text.into() }));
        }
    }

    pub(super) fn unread(
        &mut self,
        file: &str,
        offset: u64,
        length: u64,
        error: impl Into<String>,
    ) {
        self.ready.push_back(Step::Unread(Unread::stretch(
            file.to_owned(),
            ByteOffset(offset),
            length,
            error.into(),
        )));
    }

    /// One step further; what comes of it is in `ready`. False at the end.
    fn advance(&mut self) -> bool {
        let Some(mut current) = self.current.take() else {
            return self.open_next();
        };
        if current.member.is_some() {
            self.read_on(&mut current);
            // Reading of an archive that ended early is not resumed.
            if !self.is_cut {
                self.current = Some(current);
            }
            return true;
        }
        if self.may_read_apart() {
            current.members.open_late();
        }
        let next = if current.is_ended { Ok(None) } else { current.members.next_member() };
        self.take_steps(&mut current);
        match next {
            Ok(Some(member)) => {
                self.begin_member(&mut current, &member);
                if !self.is_cut {
                    self.current = Some(current);
                }
            }
            Ok(None) if self.wait_for_apart() => {
                current.is_ended = true;
                self.current = Some(current);
            }
            Ok(None) => self.finish_source(current),
            Err(error) => self.cut(current.source.place.path(), &error),
        }
        true
    }

    fn finish_source(&mut self, mut current: Current) {
        let trailing = current.members.finish();
        self.take_steps(&mut current);
        match trailing {
            Ok(Trailing::Nothing) => {}
            Ok(Trailing::Data) => {
                let name = shown_name(current.source.place.path());
                self.note(&name, "something follows the end of the archive and was not read");
            }
            Err(error) => self.cut(current.source.place.path(), &error),
        }
    }

    fn open_next(&mut self) -> bool {
        let Some(mut source) = self.sources.pop_front() else { return false };
        let opened = match source.opened.take() {
            Some(opened) => Ok(Some(opened)),
            None => super::open_archive(&source.place).map(|it| it.map(Opened::Archive)),
        };
        match opened {
            Ok(Some(opened)) => {
                let members: Box<dyn Members> = match opened {
                    Opened::Members(members) => members,
                    Opened::Archive(decoded) => {
                        self.facts.compression.get_or_insert(decoded.compression.name());
                        Box::new(Archive::new(decoded.reader))
                    }
                };
                self.current = Some(Current {
                    members,
                    source,
                    root: None,
                    said_other_root: false,
                    member: None,
                    is_ended: false,
                });
            }
            Ok(None) => {
                self.cut(source.place.path(), &TarError::Refused("it is no archive".to_owned()));
            }
            Err(error) => self.cut(source.place.path(), &TarError::Io(error)),
        }
        true
    }

    fn cut(&mut self, path: &Path, error: &TarError) {
        self.is_cut = true;
        self.unread(&shown_name(path), 0, 0, error.to_string());
        self.current = None;
    }

    /// What the source found of its stored bytes.
    fn take_steps(&mut self, current: &mut Current) {
        let steps = current.members.take_steps();
        self.facts.has_unread |= steps.iter().any(|step| matches!(step, Step::Unread(_)));
        self.facts.has_losses |=
            steps.iter().any(|step| matches!(step, Step::Finding(_) | Step::Unread(_)));
        self.ready.extend(steps);
    }

    fn begin_member(&mut self, current: &mut Current, member: &Member) {
        let shown = format!("{}{}", current.source.shown, member.name);
        if let Some(objection) = member.objection {
            let text = format!("refused: {objection}");
            return self.unread(&shown, 0, member.bytes, text);
        }
        let located = locate(&member.name);
        match member.kind {
            MemberKind::File => {}
            MemberKind::Folder => return,
            MemberKind::SymbolicLink if is_tablespace_link(&member.name) => {
                let oid = member.name.rsplit('/').next().unwrap_or_default().to_owned();
                if !self.facts.tablespaces.contains(&oid) {
                    self.facts.tablespaces.push(oid);
                }
                return;
            }
            MemberKind::SymbolicLink | MemberKind::HardLink | MemberKind::Special => {
                if located.is_some() {
                    self.unread(&shown, 0, 0, "a link or device, not followed");
                }
                return;
            }
            MemberKind::Other(letter) => {
                let letter = char::from(letter).escape_default();
                return self
                    .note(&shown, format!("a member of unknown type '{letter}', left alone"));
            }
        }
        let role = located.and_then(|located| self.role_below(current, located, &shown));
        let root = current.root.as_deref().unwrap_or_default();
        let relative = member.name.strip_prefix(root).unwrap_or(&member.name);
        let key = format!("{}{relative}", current.source.prefix);
        // A file of a set may come in several pieces.
        if self.has_sums() && self.ledger.has(&key) {
            let text = "refused: the archive holds two files of this name";
            return self.unread(&shown, 0, member.bytes, text);
        }
        self.facts.label_first |= role == Some(Role::Label) && self.facts.files == 0;
        self.facts.files = self.facts.files.saturating_add(1);
        self.facts.needed.see(&key, member.bytes);
        self.facts.has_base |= current.source.prefix.is_empty()
            && (key.starts_with("global/") || key.starts_with("base/"));
        if let Some(version) = version_in(&key).filter(|_| self.facts.major.is_none()) {
            self.facts.major = Some(version.to_owned());
        }
        let mut entered = InMember {
            name: shown,
            key,
            bytes: member.bytes,
            offset: 0,
            hasher: self.has_sums().then(|| Hasher::new(self.ledger.algorithm)),
            role,
            file: None,
            small: Vec::new(),
            has_holes: false,
        };
        // In a copy of a server's files it is that of another backup, from which the server was made.
        if role == Some(Role::Manifest) && self.manifest.is_none() && self.terms.is_none() {
            self.manifest = Some(ManifestAt::Spooled(SpooledTempFile::new(MANIFEST_IN_MEMORY)));
        } else if role == Some(Role::Manifest) {
            entered.role = None;
        }
        if let Some(Role::Relation(place)) = role {
            self.facts.relations = self.facts.relations.saturating_add(1);
            if place.file.is_incremental && !self.begin_incremental(current, &mut entered, place) {
                return;
            }
            if self.read_apart(current, &entered, place) {
                return;
            }
        }
        current.member = Some(entered);
    }

    /// True if files are compared with the server's manifest; those of a tool's set without one
    /// are tested by what the tool knows of them.
    pub(super) fn has_sums(&self) -> bool {
        self.terms.is_none() || self.manifest.is_some()
    }

    /// What a file is for the data directory of its archive; none in a second one.
    fn role_below(
        &mut self,
        current: &mut Current,
        (root, role): (&str, Role),
        shown: &str,
    ) -> Option<Role> {
        match &current.root {
            None => current.root = Some(root.to_owned()),
            Some(known) if known == root => {}
            Some(_) if matches!(role, Role::Relation(_)) && !current.said_other_root => {
                current.said_other_root = true;
                let text = "a second data directory in one archive, not judged";
                self.unread(shown, 0, 0, text);
                return None;
            }
            Some(_) => return None,
        }
        Some(role)
    }

    /// Reads the header of a file of changed blocks. False if it has no pages
    /// that could be judged, or the archive ended.
    fn begin_incremental(
        &mut self,
        current: &mut Current,
        member: &mut InMember,
        place: RelationPlace,
    ) -> bool {
        let page_size = self.page_size();
        let data = MemberData(current.members.as_mut());
        let mut source = Tee { data, hasher: &mut member.hasher, count: 0 };
        let header =
            incremental::Header::read(&mut source, page_size, self.segment_pages(page_size));
        member.offset = source.count;
        let fault = match header {
            Ok(header) => {
                let expected = header.file_bytes(page_size);
                if member.bytes != expected {
                    let kind = if member.bytes < expected { Kind::Truncated } else { Kind::Header };
                    let detail = format!(
                        "{} bytes, where a header for {} blocks makes it {expected}",
                        member.bytes,
                        header.numbers.len()
                    );
                    let finding = Finding::of_file(&member.name, Severity::Damage, kind, detail);
                    self.ready.push_back(Step::Finding(finding));
                }
                if !header.numbers.is_empty() {
                    member.file = Some(Arc::new(PageFile {
                        first_offset: ByteOffset(header.header_bytes),
                        selection: Some(header.numbers.into()),
                        ..self.page_file(&current.source, (&member.name, member.bytes), place)
                    }));
                }
                return true;
            }
            // The member ends early, or the archive.
            Err(incremental::HeaderError::Wrong(kind, detail))
                if kind != Kind::Truncated || current.members.data_left() == 0 =>
            {
                (kind, detail)
            }
            Err(_) => {
                let error = TarError::CutOff("it ends in the middle of a member");
                self.cut(current.source.place.path(), &error);
                return false;
            }
        };
        let (kind, detail) = fault;
        let detail = format!("no file of changed blocks: {detail}");
        let finding = Finding::of_file(&member.name, Severity::Damage, kind, detail);
        self.ready.push_back(Step::Finding(finding));
        member.role = None;
        true
    }

    pub(super) fn page_size(&self) -> usize {
        match &self.facts.control {
            Some(Ok(control)) => control.page_size,
            _ => self.facts.page_size.unwrap_or(8192),
        }
    }

    fn segment_pages(&self, page_size: usize) -> u64 {
        match &self.facts.control {
            Some(Ok(control)) => u64::from(control.segment_pages),
            _ => SEGMENT_BYTES / page_size as u64,
        }
    }

    pub(super) fn page_file(
        &self,
        source: &Source,
        (name, bytes): (&str, u64),
        place: RelationPlace,
    ) -> PageFile {
        let page_size = self.page_size();
        let first_page =
            u64::from(place.file.segment).saturating_mul(self.segment_pages(page_size));
        let hint = place
            .tablespace
            .map(|tablespace| walk::hint_for(tablespace, place.database, place.file.number).into());
        let max_align = match &self.facts.control {
            Some(Ok(control)) => control.max_align,
            _ => SMALLEST_ALIGN,
        };
        let format = Arc::new(PostgresPages {
            page_size,
            max_align,
            checksums: Checksums::Pending,
            failure: at_most(place),
            recovery: None,
            log_end: None,
            // An archive does not say which relations are unlogged.
            is_logged: false,
        });
        PageFile {
            first_page: PageNo(first_page),
            partial_page: Severity::Suspect,
            hint,
            ..PageFile::of(name, source.place.path(), bytes, format)
        }
    }

    /// Reads the next piece of the current member, or ends it.
    fn read_on(&mut self, current: &mut Current) {
        let Some(mut member) = current.member.take() else { return };
        let left = current.members.data_left();
        if left == 0 {
            return self.end_member(current, member);
        }
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        let mut bytes = vec![0_u8; length];
        let read = current.members.read_data(&mut bytes);
        self.take_steps(current);
        match read {
            Ok(Piece::Data(count)) => bytes.truncate(count),
            Ok(Piece::Hole(count)) => {
                member.offset = member.offset.saturating_add(count);
                member.has_holes = true;
                current.member = Some(member);
                return;
            }
            Err(Broken::Member) => return,
            Err(Broken::Source(error)) => {
                self.is_cut = true;
                return self.unread(&member.name, member.offset, left, error.to_string());
            }
        }
        if let Some(hasher) = &mut member.hasher {
            hasher.update(&bytes);
        }
        let (offset, count) = (member.offset, bytes.len() as u64);
        member.offset = offset.saturating_add(count);
        match member.role {
            Some(Role::Relation(place)) => {
                self.take_pages(current, &mut member, place, offset, bytes);
            }
            Some(Role::Manifest) => {
                let spooled = match &mut self.manifest {
                    Some(ManifestAt::Spooled(file)) if member.offset <= MANIFEST_BYTES_MAX => {
                        file.write_all(&bytes)
                    }
                    _ => Err(io::ErrorKind::FileTooLarge.into()),
                };
                if let Err(error) = spooled {
                    self.manifest = None;
                    member.role = None;
                    let text = format!("it could not be kept until the end: {error}");
                    self.unread(&member.name, 0, member.bytes, text);
                }
                self.ready.push_back(Step::Passed(count));
            }
            role => {
                if role.is_some() && member.bytes <= SMALL_BYTES_MAX {
                    member.small.extend_from_slice(&bytes);
                }
                self.ready.push_back(Step::Passed(count));
            }
        }
        current.member = Some(member);
    }

    fn take_pages(
        &mut self,
        current: &Current,
        member: &mut InMember,
        place: RelationPlace,
        offset: u64,
        bytes: Vec<u8>,
    ) {
        if member.file.is_none() && place.file.is_incremental {
            // Nothing but a header.
            return self.ready.push_back(Step::Passed(bytes.len() as u64));
        }
        if self.facts.page_size.is_none() && self.facts.control.is_none() {
            self.facts.page_size = loose::vote_on_page_size(std::slice::from_ref(&bytes));
        }
        if member.file.is_none() {
            member.file = Some(Arc::new(self.page_file(
                &current.source,
                (&member.name, member.bytes),
                place,
            )));
        }
        let Some(file) = &member.file else { return };
        let cut = Cut::of(file, member.bytes, offset, bytes);
        self.sample.add(file, ByteOffset(offset), &cut.pages.bytes);
        if let Some(finding) = cut.partial
            && self.partial.len() < PARTIAL_MAX
        {
            self.partial.push((finding, at_most(place)));
        }
        self.ready.push_back(Step::Pages(cut.pages));
        if cut.rest > 0 {
            self.ready.push_back(Step::Passed(cut.rest));
        }
    }

    fn end_member(&mut self, current: &Current, member: InMember) {
        let InMember { name, key, bytes, hasher, role, file, small, has_holes, .. } = member;
        self.ledger.add(&key, bytes, &hasher.map(Hasher::finish).unwrap_or_default());
        // Of a small file in pieces nothing can be said but what the steps say.
        let role = role.filter(|role| !has_holes || matches!(role, Role::Relation(_)));
        let is_small = bytes <= SMALL_BYTES_MAX;
        match role {
            // A file without a page still is one.
            Some(Role::Relation(place))
                if file.is_none() && !place.file.is_incremental && !has_holes =>
            {
                let file = Arc::new(self.page_file(&current.source, (&name, bytes), place));
                let pages = StreamedPages::whole(file, ByteOffset(0), Vec::new());
                self.ready.push_back(Step::Pages(pages));
            }
            Some(Role::Control) => {
                let control = small.get(..CONTROL_BYTES.min(small.len())).unwrap_or_default();
                self.facts.control = Some(Control::parse(control));
            }
            Some(Role::Label) => {
                self.facts.label = Some(Label::parse(&small));
                self.facts.label_text = String::from_utf8_lossy(&small).into_owned();
            }
            Some(Role::TablespaceMap) => self.facts.tablespaces = label::tablespaces(&small),
            Some(Role::Version) if is_small => {
                self.facts.has_root = true;
                let text = super::super::sanitised(String::from_utf8_lossy(&small).trim());
                self.facts.major = Some(text).filter(|text| !text.is_empty());
            }
            Some(Role::RelationMap) => {
                if let Err((kind, detail)) = maps::check(&small) {
                    let detail = format!("the relation map cannot be believed: {detail}");
                    let finding = Finding::of_file(&name, Severity::Suspect, kind, detail);
                    self.ready.push_back(Step::Finding(finding));
                }
            }
            Some(Role::TransactionLog) => {
                let page_size = self.page_size() as u64;
                if !bytes.is_multiple_of(page_size) || bytes > LOG_SEGMENT_PAGES * page_size {
                    let detail = format!(
                        "{bytes} bytes, which is no whole number of pages up to {LOG_SEGMENT_PAGES}"
                    );
                    let finding =
                        Finding::of_file(&name, Severity::Suspect, Kind::Truncated, detail);
                    self.ready.push_back(Step::Finding(finding));
                }
            }
            Some(Role::Version | Role::Manifest | Role::Relation(_)) | None => {}
        }
    }
}

impl Iterator for ArchiveWalk {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Some(step);
            }
            if self.is_done {
                return None;
            }
            if !self.advance() && !self.wait_for_apart() {
                self.is_done = true;
                self.take_gathered();
                self.finish();
            }
        }
    }
}

/// Passes data on and hashes it.
struct Tee<'a> {
    data: MemberData<'a>,
    hasher: &'a mut Option<Hasher>,
    count: u64,
}

impl Read for Tee<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.data.read(bytes)?;
        if let Some(hasher) = self.hasher {
            hasher.update(bytes.get(..count).unwrap_or_default());
        }
        self.count = self.count.saturating_add(count as u64);
        Ok(count)
    }
}

/// The most that a failing page of this file proves while the log is yet to be
/// replayed: maps are rebuilt, and temporary relations thrown away.
pub(super) fn at_most(place: RelationPlace) -> Severity {
    match place.file.fork {
        _ if place.file.session.is_some() => Severity::Notice,
        Fork::FreeSpace | Fork::Visibility => Severity::Suspect,
        Fork::Main | Fork::Init => Severity::Damage,
    }
}

fn is_tablespace_link(name: &str) -> bool {
    let mut parts = name.rsplit('/');
    let is_oid = parts.next().is_some_and(|oid| oid.bytes().all(|byte| byte.is_ascii_digit()));
    is_oid && parts.next() == Some("pg_tblspc")
}

/// The version in `PG_15_202209061/...`.
fn version_in(path: &str) -> Option<&str> {
    path.split('/').find_map(|part| part.strip_prefix("PG_")?.split('_').next())
}

fn shown_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
