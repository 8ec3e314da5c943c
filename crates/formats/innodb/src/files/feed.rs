//! A file of a backup that comes piece by piece, out of a stream or a decompressor:
//! its pages are handed on as they come.
//!
//! What is asked of other files or of later pages is not asked here: a backup that
//! is packed was not prepared, and before that it proves nothing.

#![deny(clippy::arithmetic_side_effects)]

use std::path::PathBuf;
use std::sync::Arc;

use crate::files::aria;
use crate::files::delta::{ChangedPages, Meta, PAGE_OF_NUMBERS, SAMPLE_PAGES, pages_of};
use crate::files::directory::Role;
use crate::files::doublewrite::{TRANSACTION_PAGE, slot_bytes_of};
use crate::files::names;
use crate::files::system::Area;
use crate::files::tablespace::SYSTEM_SPACE;
use crate::files::tablespace::geometry::{Geometry, HEAD_BYTES};
use crate::files::tablespaces::doublewrite_file;
use crate::files::untested::{Lock, Untested};
use crate::page::InnodbPages;
use crate::page::encryption::{KeyInfo, Keyring};
use crate::page::layout::{Form, Layout};
use pagewarden_core::database::{PageFile, Step, StreamedPages};
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, PageNo, Severity, Unread};
use pagewarden_format_aria::page::header::AriaHeader;
use pagewarden_format_aria::page::{AriaFile, AriaPages, Written};

/// Pages that are handed on at a time: a multiple of every page size.
pub(super) const CHUNK_BYTES: usize = 1 << 20;

/// What other files of the same backup said before.
#[derive(Debug, Clone, Default)]
pub(super) struct Before {
    /// Of a file of changed pages.
    pub(super) meta: Option<Meta>,
    /// Of an Aria table.
    pub(super) aria: Option<AriaHeader>,
    /// The keys.
    pub(super) keyring: Option<Arc<Keyring>>,
    /// Where pages are counted that cannot be tested.
    pub(super) untested: Arc<Untested>,
}

/// See the module.
pub(super) struct Feed {
    name: String,
    path: PathBuf,
    role: Role,
    before: Before,
    stage: Stage,
    /// How far the file has come.
    bytes: u64,
}

enum Stage {
    /// Too little has come to tell what the pages look like.
    Head(Vec<u8>),
    Pages(Pages),
    Delta(Box<DeltaStage>),
    /// Nothing in it is a page.
    Passed,
}

struct Pages {
    file: Arc<PageFile>,
    /// Where the next page begins.
    offset: u64,
    rest: Vec<u8>,
}

struct DeltaStage {
    meta: Meta,
    layout: Option<Layout>,
    rest: Vec<u8>,
    offset: u64,
    /// The cluster whose pages come, and how many are still to come.
    cluster: Option<(Arc<PageFile>, usize)>,
    is_last: bool,
}

impl Feed {
    /// A file of this name; `path` says where the stream comes from.
    pub(super) fn new(name: &str, path: PathBuf, before: Before) -> Self {
        let last = name.rsplit('/').next().unwrap_or(name);
        let role = Role::of(last);
        let stage = match role {
            Role::System(_) | Role::Undo | Role::Tablespace | Role::Doublewrite | Role::Aria => {
                Stage::Head(Vec::new())
            }
            Role::Delta => match before.meta {
                Some(meta) => Stage::Delta(Box::new(DeltaStage::new(meta))),
                None => Stage::Passed,
            },
            Role::Compressed | Role::Link | Role::Foreign | Role::None => Stage::Passed,
        };
        Self { name: name.to_owned(), path, role, before, stage, bytes: 0 }
    }

    /// True if the file should have been judged and cannot be.
    pub(super) fn is_lost(&self) -> bool {
        matches!((&self.stage, &self.role), (Stage::Passed, Role::Delta))
    }

    /// How far the file has come.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8], ready: &mut impl Extend<Step>) {
        let count = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.bytes = self.bytes.saturating_add(count);
        match &mut self.stage {
            Stage::Passed => ready.extend([Step::Passed(count)]),
            Stage::Head(head) => {
                head.extend_from_slice(bytes);
                if head.len() >= HEAD_BYTES {
                    self.begin(ready);
                }
            }
            Stage::Pages(pages) => pages.push(bytes, ready),
            Stage::Delta(delta) => delta.push(&self.name, &self.path, bytes, ready),
        }
    }

    /// Nothing more comes. `is_whole` is false where more should have come.
    pub(super) fn end(mut self, is_whole: bool, ready: &mut impl Extend<Step>) {
        if matches!(&self.stage, Stage::Head(_)) {
            self.begin(ready);
        }
        if !is_whole {
            return;
        }
        match &self.stage {
            Stage::Pages(pages) => ready.extend(pages.partial_page()),
            Stage::Delta(delta) if !delta.is_over() => {
                let detail = "no file of changed pages: it ends too early".to_owned();
                let kind = Kind::Truncated;
                ready.extend([Step::Finding(Finding::of_file(
                    &self.name,
                    Severity::Damage,
                    kind,
                    detail,
                ))]);
            }
            _ => {}
        }
    }

    /// Finds out what the pages look like, and hands on what has come.
    fn begin(&mut self, ready: &mut impl Extend<Step>) {
        let Stage::Head(head) = std::mem::replace(&mut self.stage, Stage::Passed) else { return };
        let file = match self.role {
            Role::Aria => self.aria_file(&head),
            Role::Doublewrite => {
                let last = self.name.rsplit('/').next().unwrap_or(&self.name);
                slot_bytes_of(last)
                    .map(|bytes| doublewrite_file(self.name.clone(), self.path.clone(), bytes, 0))
            }
            _ => self.tablespace(&head),
        };
        let Some(file) = file else {
            ready.extend([Step::Passed(u64::try_from(head.len()).unwrap_or(u64::MAX))]);
            return;
        };
        let mut pages = Pages { file: Arc::new(file), offset: 0, rest: Vec::new() };
        if head.is_empty() {
            pages.hand_on(Vec::new(), ready);
        }
        pages.push(&head, ready);
        self.stage = Stage::Pages(pages);
    }

    fn tablespace(&self, head: &[u8]) -> Option<PageFile> {
        let geometry = Geometry::find(head).unwrap_or_else(Geometry::of_name_only);
        let layout = geometry.layout;
        let mut pages = InnodbPages::new(layout);
        pages.space_id = geometry.space_id;
        pages.severities.zeroed = None;
        let page =
            |number: u64| head.chunks_exact(layout.page_size).nth(usize::try_from(number).ok()?);
        if geometry.space_id == Some(SYSTEM_SPACE) && geometry.first_page == 0 {
            let extents = page(TRANSACTION_PAGE).and_then(|page| Area::of_untested(page).extents());
            pages.doublewrite =
                extents.map(|extents| extents.ranges().to_vec()).unwrap_or_default();
        }
        let key_info = page(0)
            .filter(|_| geometry.first_page == 0)
            .and_then(|page| KeyInfo::of_first_page(&layout, page));
        let mut problem = None;
        if let (Some(info), Some(keyring)) = (&key_info, &self.before.keyring) {
            match info.open(keyring) {
                Ok(cipher) => pages.cipher = Some(cipher),
                Err(reason) => problem = Some(reason),
            }
            pages.keys_do_not_open = matches!(info, KeyInfo::MariaDb { .. }) && problem.is_some();
        }
        let lock = Lock::of(key_info.as_ref(), pages.cipher.is_some(), problem.as_deref());
        let keys_do_not_open = pages.keys_do_not_open;
        let mut file = PageFile {
            first_page: PageNo(geometry.first_page),
            format: Arc::new(pages),
            ..self.page_file()
        };
        let may_be_locked = layout.may_be_encrypted || layout.may_be_page_compressed;
        if (may_be_locked && layout.form != Form::FullCrc32) || keys_do_not_open {
            self.before.untested.watch(&mut file, lock);
        }
        // A file that was being made is blank as a whole.
        (!head.is_empty()).then_some(file)
    }

    fn aria_file(&self, head: &[u8]) -> Option<PageFile> {
        let is_index = self.name.ends_with(aria::INDEX_ENDING);
        let header = if is_index { AriaHeader::parse(head) } else { self.before.aria }?;
        let page_size = u64::try_from(header.page_size).ok()?;
        let file = match is_index {
            true => AriaFile::Index(header.index_begin.checked_div(page_size)?),
            false if header.has_data_pages => AriaFile::Data,
            false => return None,
        };
        // Its pages may have been copied half written, and its log mends them.
        let failure = if header.is_closed { Severity::Damage } else { Severity::Suspect };
        let format = Arc::new(AriaPages { header, file, failure, written: Written::Unknown });
        let mut file = PageFile { format, ..self.page_file() };
        if header.is_encrypted {
            self.before.untested.watch(&mut file, Lock::Aria);
        }
        Some(file)
    }

    fn page_file(&self) -> PageFile {
        page_file(&self.name, self.path.clone())
    }
}

/// A file in a backup of which no more is known than its name.
fn page_file(name: &str, path: PathBuf) -> PageFile {
    let (folder, last) = name.rsplit_once('/').unwrap_or(("", name));
    let database = folder.rsplit('/').next().filter(|database| !database.is_empty());
    let stem = last.split_once(".ibd").or_else(|| last.rsplit_once('.'));
    let stem = stem.map_or(last, |(stem, _)| stem);
    let format = Arc::new(InnodbPages::new(Geometry::of_name_only().layout));
    PageFile {
        partial_page: Severity::Suspect,
        hint: Some(HINT.into()),
        database: database.map(|database| names::decoded(database).into()),
        object: database.map(|database| names::object(database, stem).into()),
        ..PageFile::of(name, path, 0, format)
    }
}

const HINT: &str = "the program that made the backup refuses pages that fail: make another backup, and \
                    check the database";

impl Pages {
    fn push(&mut self, mut bytes: &[u8], ready: &mut impl Extend<Step>) {
        let page_size = self.file.format.page_size().max(1);
        if !self.rest.is_empty() {
            let wanted = page_size.saturating_sub(self.rest.len());
            let (now, later) = bytes.split_at(wanted.min(bytes.len()));
            self.rest.extend_from_slice(now);
            bytes = later;
            if self.rest.len() == page_size {
                let page = std::mem::take(&mut self.rest);
                self.hand_on(page, ready);
            }
        }
        for chunk in bytes.chunks(CHUNK_BYTES) {
            let rest = chunk.len().checked_rem(page_size).unwrap_or(0);
            let (whole, rest) = chunk.split_at(chunk.len().saturating_sub(rest));
            if !whole.is_empty() {
                self.hand_on(whole.to_vec(), ready);
            }
            self.rest.extend_from_slice(rest);
        }
    }

    fn hand_on(&mut self, bytes: Vec<u8>, ready: &mut impl Extend<Step>) {
        let offset = self.offset;
        self.offset = offset.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let file = Arc::clone(&self.file);
        ready.extend([Step::Pages(StreamedPages::whole(file, ByteOffset(offset), bytes))]);
    }

    fn partial_page(&self) -> Option<Step> {
        let page_size = self.file.format.page_size();
        let page = Some(self.file.page_at(ByteOffset(self.offset)));
        let detail =
            format!("the file ends after {} of {page_size} bytes of this page", self.rest.len());
        let finding =
            Finding::of_file(&self.file.name, self.file.partial_page, Kind::Truncated, detail)
                .at(page, Some(ByteOffset(self.offset)));
        (!self.rest.is_empty()).then_some(Step::Finding(finding))
    }
}

impl DeltaStage {
    fn new(meta: Meta) -> Self {
        let (rest, cluster) = (Vec::new(), None);
        Self { meta, layout: None, rest, offset: 0, cluster, is_last: false }
    }

    fn is_over(&self) -> bool {
        self.is_last && self.rest.is_empty() && self.cluster.is_none()
    }

    fn push(
        &mut self,
        name: &str,
        path: &std::path::Path,
        bytes: &[u8],
        ready: &mut impl Extend<Step>,
    ) {
        self.rest.extend_from_slice(bytes);
        let size = self.meta.page_size;
        let mut taken = 0_usize;
        while let Some(rest) = self.rest.get(taken..).filter(|rest| rest.len() >= size) {
            let whole = rest.len().checked_div(size).unwrap_or(0);
            match self.cluster.take() {
                Some((file, left)) => {
                    let now = whole.min(left);
                    let length = now.saturating_mul(size);
                    let bytes = rest.get(..length).unwrap_or_default().to_vec();
                    let offset = ByteOffset(self.offset);
                    self.offset = self.offset.saturating_add(u64::try_from(length).unwrap_or(0));
                    taken = taken.saturating_add(length);
                    if left > now {
                        self.cluster = Some((Arc::clone(&file), left.saturating_sub(now)));
                    }
                    ready.extend([Step::Pages(StreamedPages::whole(file, offset, bytes))]);
                }
                None => {
                    let list = rest.get(..size).unwrap_or_default();
                    let behind = rest.get(size..).unwrap_or_default();
                    let Some((indexes, is_last)) = pages_of(list).filter(|_| !self.is_last) else {
                        let detail = "no file of changed pages: a list of pages must begin here";
                        let mut finding = Finding::of_file(
                            name,
                            Severity::Damage,
                            Kind::Header,
                            detail.to_owned(),
                        );
                        finding.place.offset = Some(ByteOffset(self.offset));
                        ready.extend([Step::Finding(finding)]);
                        // What follows is not understood.
                        self.is_last = true;
                        self.rest.clear();
                        return;
                    };
                    if self.layout.is_none() {
                        let wanted = indexes.len().min(SAMPLE_PAGES);
                        if behind.len() < wanted.saturating_mul(size) {
                            break;
                        }
                        let pages = behind.chunks_exact(size).map(<[u8]>::to_vec);
                        let samples: Vec<_> =
                            indexes.iter().copied().zip(pages).take(wanted).collect();
                        self.layout = Some(self.meta.layout_of(&samples));
                    }
                    let Some(layout) = self.layout else { break };
                    self.is_last = is_last;
                    let pages = indexes.len();
                    let begin = ByteOffset(self.offset);
                    let indexes = std::iter::once(PAGE_OF_NUMBERS).chain(indexes).collect();
                    let file = Arc::new(PageFile {
                        format: Arc::new(ChangedPages::new(layout, self.meta.space)),
                        first_offset: begin,
                        selection: Some(indexes),
                        ..page_file(name, path.to_owned())
                    });
                    // The first list is handed on, so that the file counts as opened.
                    if begin == ByteOffset(0) {
                        let (file, bytes) = (Arc::clone(&file), list.to_vec());
                        ready.extend([Step::Pages(StreamedPages::whole(file, begin, bytes))]);
                    }
                    taken = taken.saturating_add(size);
                    self.offset = self.offset.saturating_add(u64::try_from(size).unwrap_or(0));
                    self.cluster = (pages > 0).then_some((file, pages));
                }
            }
        }
        self.rest.drain(..taken.min(self.rest.len()));
    }
}

/// Something that was left unread.
pub(super) fn unread(file: &str, offset: u64, error: impl Into<String>) -> Step {
    let offset = ByteOffset(offset);
    Step::Unread(Unread::stretch(file, offset, 0, error))
}
