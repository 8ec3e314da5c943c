//! The tablespaces of a data directory: each opened by what the directory knows of
//! it.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::files::aria::{AriaTable, Surroundings};
use crate::files::doublewrite;
use crate::files::evidence::{Evidence, InDirectory};
use crate::files::fields::u64_at;
use crate::files::in_use::{FileIdentity, InUse, Replaced};
use crate::files::links::{Links, Owner};
use crate::files::reached::Reached;
use crate::files::siblings::Siblings;
use crate::files::state::{Circumstances, read_small};
use crate::files::structure::{self, Definitions, Depth, Structure};
use crate::files::tablespace::{
    Context, FileSeverities, Member, Rest, SYSTEM_SPACE, Tablespace, open_file,
};
use crate::files::untested::{Lock, Untested};
use crate::page::allocation::AllocationMap;
use crate::page::encryption::Keyring;
use crate::page::layout::{Form, Layout};
use crate::page::{InnodbPages, Severities};
use pagewarden_core::database::{PageFile, Step};
use pagewarden_core::error::{Error, ErrorKind};
use pagewarden_core::verdict::{Kind, Note, Severity, Unread};

/// A server writes page 0 of a new file, or an old one's anew, in a moment.
const LOOKS_MAX: u32 = 5;
const A_MOMENT: Duration = Duration::from_millis(20);
/// Larger than any page.
const FIRST_PAGE_BYTES: usize = 65_536;
const PAGE_LSN: usize = 16;

/// A file that is to be opened.
#[derive(Debug, Clone)]
pub(crate) struct Opening {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// What it is called in the report.
    pub(crate) shown: String,
    /// Its database, by name.
    pub(crate) database: Option<Arc<str>>,
    /// Its table, by name.
    pub(crate) object: Option<Arc<str>>,
    /// What kind of file.
    pub(crate) kind: OpeningKind,
}

/// What is to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpeningKind {
    /// A tablespace in one file.
    Tablespace,
    /// A tablespace whose end is cut off and grows again while a server runs.
    Undo,
    /// What is left of a table that was being made: recovery removes it.
    Fleeting,
    /// Both files of an Aria table; the path has no ending.
    Aria,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct OpenedFile {
    /// The tablespace's number.
    pub(crate) space: Option<u32>,
    /// The file, and what was seen of it.
    pub(crate) steps: Vec<Step>,
    /// Part of it has no pages.
    pub(crate) is_foreign: bool,
}

/// See the module.
pub(crate) struct Tablespaces {
    evidence: Arc<Evidence>,
    keyring: Option<Arc<Keyring>>,
    /// Files that another took the place of while they were checked.
    replaced: Arc<Replaced>,
    /// Pages that cannot be tested.
    untested: Arc<Untested>,
    /// What pages of indexes say of one another.
    siblings: Arc<Siblings>,
    /// Records are looked at.
    has_records: bool,
    /// The columns of indexes.
    definitions: Definitions,
}

impl Tablespaces {
    pub(super) fn new(
        evidence: Arc<Evidence>,
        keyring: Option<Arc<Keyring>>,
        untested: Arc<Untested>,
        siblings: Arc<Siblings>,
        definitions: Option<Definitions>,
    ) -> Self {
        Self {
            evidence,
            keyring,
            replaced: Arc::default(),
            untested,
            siblings,
            has_records: definitions.is_some(),
            definitions: definitions.unwrap_or_default(),
        }
    }

    pub(super) fn untested(&self) -> &Arc<Untested> {
        &self.untested
    }

    pub(crate) fn keyring(&self) -> Option<Arc<Keyring>> {
        self.keyring.clone()
    }

    pub(crate) fn is_live(&self) -> bool {
        self.circumstances().may_change()
    }

    /// True of what a program for backups made: it has a copy of every file.
    pub(crate) fn are_of_a_backup(&self) -> bool {
        matches!(self.circumstances(), Circumstances::Backup | Circumstances::Prepared)
    }

    fn circumstances(&self) -> Circumstances {
        self.evidence.circumstances
    }

    /// Files to be opened once more, since others took their names meanwhile.
    pub(crate) fn take_replaced(&self) -> Vec<Opening> {
        self.replaced.take()
    }

    /// Files that others take the place of from now on are not opened again.
    pub(crate) fn begin_last_round(&self) {
        self.replaced.begin_last_round();
    }

    /// Opens a file.
    pub(crate) fn open(&self, opening: &Opening) -> OpenedFile {
        if opening.kind == OpeningKind::Aria {
            return self.open_aria(opening);
        }
        let mut looks = 0_u32;
        loop {
            looks = looks.saturating_add(1);
            let is_last = looks >= LOOKS_MAX || !self.is_live();
            let before = FileIdentity::of_tablespace(&opening.path);
            let opened = open_file(&opening.path, self.context(opening));
            let is_same = FileIdentity::of_tablespace(&opening.path) == before;
            match opened {
                Ok(opened) if is_same && opened.geometry.first_is_sound => {
                    return self.finish(opening, opened, before);
                }
                Ok(opened) if is_last && is_same => {
                    // A file that is being made, or was when the server crashed. The bytes that were
                    // judged say so: a second look could be at another file of that name.
                    if opened.is_blank && !self.circumstances().is_settled() {
                        return OpenedFile::default();
                    }
                    return self.finish(opening, opened, before);
                }
                Err(error) if is_last => return self.unopened(opening, &error),
                Ok(_) | Err(_) if is_last => return OpenedFile::default(),
                Ok(_) | Err(_) => std::thread::sleep(A_MOMENT),
            }
        }
    }

    fn unopened(&self, opening: &Opening, error: &Error) -> OpenedFile {
        if error.kind() == ErrorKind::NotFound && self.is_live() {
            return OpenedFile::default();
        }
        let unread = Unread::of_file(opening.shown.clone(), error.reason());
        OpenedFile { steps: vec![Step::Unread(unread)], ..OpenedFile::default() }
    }

    fn context(&self, opening: &Opening) -> Context {
        let is_changing =
            matches!(self.circumstances(), Circumstances::Running | Circumstances::Crashed);
        Context {
            database: opening.database.clone(),
            object: opening.object.clone(),
            keyring: self.keyring.clone(),
            may_be_imported: opening.kind == OpeningKind::Tablespace && is_changing,
            may_be_encrypted_since: is_changing,
            was_shut_down: self.circumstances() == Circumstances::AtRest,
            severities: self.severities(opening.kind),
            ..Context::alone(opening.shown.clone())
        }
    }

    fn severities(&self, kind: OpeningKind) -> FileSeverities {
        let circumstances = self.circumstances();
        if kind == OpeningKind::Fleeting {
            return FileSeverities::worthless();
        }
        let is_asked = kind != OpeningKind::Undo || circumstances.is_settled();
        FileSeverities {
            pages: Severities {
                failing: circumstances.failure(),
                zeroed: self.evidence.zeroed().filter(|_| is_asked),
                doublewrite: Severity::Notice,
            },
            truncated: circumstances.cross_file().unwrap_or(Severity::Suspect),
            partial_page: match circumstances {
                Circumstances::AtRest | Circumstances::Prepared => Severity::Damage,
                // A server was extending it.
                Circumstances::Crashed => Severity::Notice,
                Circumstances::Running | Circumstances::Backup | Circumstances::Unknown => {
                    Severity::Suspect
                }
            },
        }
    }

    fn finish(
        &self,
        opening: &Opening,
        opened: Tablespace,
        identity: Option<FileIdentity>,
    ) -> OpenedFile {
        let Tablespace { geometry, mut file, mut steps, allocated, pages, lock, .. } = opened;
        // Of what recovery removes nothing is in use.
        if let Some(lock) = lock.filter(|_| opening.kind != OpeningKind::Fleeting) {
            self.untested.watch(&mut file, lock);
        }
        let space = geometry.space_id;
        let is_cut_for_sure = self.length_counts(opening);
        steps.retain(|step| match step {
            Step::Finding(finding) if finding.kind == Kind::Truncated => is_cut_for_sure,
            _ => true,
        });
        let left_out = self.look_inside(opening, &mut file, geometry.layout, &allocated, space);
        steps.extend(left_out.map(Step::Note));
        if opening.kind == OpeningKind::Tablespace && space != Some(SYSTEM_SPACE) {
            let reached = Reached::watch(&mut file, geometry.layout, space, &self.evidence);
            reached.into_iter().for_each(|reached| self.siblings.compare(reached));
        }
        if self.is_live() {
            self.mark_in_use(opening, &mut file, identity);
        } else {
            // Copies in the doublewrite area of the system tablespace are pages of others.
            let is_asked = opening.kind == OpeningKind::Tablespace && space != Some(SYSTEM_SPACE);
            let severity = self.circumstances().cross_file();
            if let Some(severity) =
                severity.filter(|_| is_asked && self.circumstances().is_settled())
            {
                self.siblings.watch(&mut file, &allocated, severity);
            }
            // What was imported may have free pages from elsewhere.
            let is_native = space == Some(SYSTEM_SPACE) || opening.kind == OpeningKind::Undo;
            file.format = Arc::new(InDirectory {
                pages: Arc::clone(&file.format),
                space,
                links: Links::new(
                    file.path.clone(),
                    geometry.layout,
                    match (space, opening.kind) {
                        (Some(SYSTEM_SPACE), _) => Owner::System,
                        (_, OpeningKind::Undo) => Owner::Undo,
                        _ => Owner::Tables,
                    },
                    // A further file's pages are not numbered from its beginning on.
                    if geometry.first_page == 0 { Arc::clone(&allocated) } else { Arc::default() },
                ),
                never_zero: pages.never_zero.0.clone(),
                allocated: (!is_native).then_some(allocated),
                evidence: Arc::clone(&self.evidence),
            });
        }
        steps.push(Step::File(file));
        OpenedFile { space, steps, is_foreign: false }
    }

    /// What the pages say of themselves and of one another; what is to be said where they are not asked.
    fn look_inside(
        &self,
        opening: &Opening,
        file: &mut PageFile,
        layout: Layout,
        allocated: &Arc<AllocationMap>,
        space: Option<u32>,
    ) -> Option<Note> {
        if opening.kind != OpeningKind::Tablespace || space == Some(SYSTEM_SPACE) {
            return None;
        }
        let circumstances = self.circumstances();
        let depth = Depth {
            has_records: self.has_records,
            alone: circumstances.failure(),
            together: circumstances.cross_file().filter(|_| circumstances.is_settled()),
        };
        self.siblings.add(Structure::watch(file, layout, allocated, depth, &self.definitions));
        structure::is_left_out(file, layout, depth)
    }

    fn mark_in_use(&self, opening: &Opening, file: &mut PageFile, identity: Option<FileIdentity>) {
        file.format = Arc::new(InUse {
            pages: Arc::clone(&file.format),
            path: file.path.clone(),
            identity,
            opening: opening.clone(),
            replaced: Arc::clone(&self.replaced),
        });
    }

    /// True if a file must be as long as its page 0 says.
    fn length_counts(&self, opening: &Opening) -> bool {
        if self.circumstances().is_settled() || self.circumstances() == Circumstances::Unknown {
            return true;
        }
        if self.circumstances().cross_file().is_none() || opening.kind == OpeningKind::Undo {
            return false;
        }
        // What page 0 says is older than the checkpoint: so is the length.
        let first = read_small(&opening.path, FIRST_PAGE_BYTES).unwrap_or_default();
        let (lsn, checkpoint) = (u64_at(&first, PAGE_LSN), self.evidence.checkpoint());
        lsn.is_some_and(|lsn| lsn > 0 && lsn <= checkpoint)
    }

    fn open_aria(&self, opening: &Opening) -> OpenedFile {
        let table = AriaTable {
            stem: &opening.path,
            shown: &opening.shown,
            database: opening.database.clone(),
            object: opening.object.clone(),
        };
        let circumstances = self.circumstances();
        let identities = table.paths().map(|path| FileIdentity::of(&path));
        let surroundings = Surroundings {
            failure: circumstances.failure(),
            is_live: self.is_live(),
            is_settled: circumstances.is_settled(),
            cut: match circumstances {
                Circumstances::AtRest | Circumstances::Prepared | Circumstances::Unknown => {
                    circumstances.cross_file()
                }
                Circumstances::Running | Circumstances::Crashed | Circumstances::Backup => None,
            },
        };
        let mut steps = table.steps(surroundings);
        if table.is_encrypted() {
            for step in &mut steps {
                if let Step::File(file) = step {
                    self.untested.watch(file, Lock::Aria);
                }
            }
        }
        if self.is_live() {
            for step in &mut steps {
                let Step::File(file) = step else { continue };
                let mut known = table.paths().into_iter().zip(identities);
                let identity = known.find(|(path, _)| *path == file.path);
                let identity = identity.and_then(|(_, identity)| identity);
                self.mark_in_use(opening, file, identity);
            }
        }
        OpenedFile { space: None, steps, is_foreign: table.has_rows_without_pages() }
    }

    /// The system tablespace, by the numbers of its files.
    pub(crate) fn open_system(&self, files: &BTreeMap<u32, PathBuf>, prefix: &str) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut before: Option<Member> = None;
        let is_whole = files.contains_key(&1);
        for (number, path) in files {
            let opening = Opening {
                path: path.clone(),
                shown: format!("{prefix}ibdata{number}"),
                database: None,
                object: None,
                kind: OpeningKind::Tablespace,
            };
            if !is_whole {
                steps.extend(self.open(&opening).steps);
                continue;
            }
            let mut context = self.context(&opening);
            context.member.clone_from(&before);
            context.is_further = *number > 1;
            context.rest = Rest::Pages(0);
            if before.is_none() {
                // How many pages the others have, the first one's layout tells.
                let looked = open_file(path, context.clone());
                let others = files.iter().filter(|(other, _)| *other != number);
                let others = others.filter_map(|(_, path)| path.metadata().ok());
                let bytes = others.map(|metadata| metadata.len()).fold(0, u64::saturating_add);
                let page_size = looked.map_or(1, |looked| looked.geometry.layout.page_size);
                let page_size = u64::try_from(page_size).unwrap_or(u64::MAX);
                context.rest = Rest::Pages(bytes.checked_div(page_size).unwrap_or(0));
            }
            let identity = FileIdentity::of_tablespace(path);
            match open_file(path, context) {
                Ok(opened) => {
                    let first_page = before.as_ref().map_or(0, |before| before.first_page);
                    before = Some(Member {
                        layout: opened.geometry.layout,
                        space_id: SYSTEM_SPACE,
                        first_page: first_page.saturating_add(opened.pages()),
                        in_use: Some(Arc::clone(&opened.allocated)),
                    });
                    steps.extend(self.finish(&opening, opened, identity).steps);
                }
                Err(error) => steps.extend(self.unopened(&opening, &error).steps),
            }
        }
        steps
    }

    /// A file of copies of pages.
    pub(crate) fn doublewrite_file(
        &self,
        name: &str,
        shown: String,
        path: PathBuf,
    ) -> Option<Step> {
        let bytes = path.metadata().map_or(0, |metadata| metadata.len());
        let page_size = doublewrite::slot_bytes_of(name)?;
        Some(Step::File(doublewrite_file(shown, path, page_size, bytes)))
    }
}

/// A file of slots, each tested by its sum only.
pub(crate) fn doublewrite_file(
    name: String,
    path: PathBuf,
    page_size: usize,
    listed_bytes: u64,
) -> PageFile {
    let mut pages = InnodbPages::new(Layout::guessed(Form::Old, page_size));
    pages.doublewrite = std::iter::once(0..u64::MAX).collect();
    PageFile {
        partial_page: Severity::Notice,
        ..PageFile::of(name, path, listed_bytes, Arc::new(pages))
    }
}
