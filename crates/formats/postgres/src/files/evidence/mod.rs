//! What the files of a cluster say of one another: names, files that must be
//! there, and pages that were in use.
//!
//! | question | answered by |
//! | --- | --- |
//! | whose file is this? | `names`: the catalogues |
//! | which files must be there, which belong to no relation? | `files`: the catalogues |
//! | was this page of zeroes, or what is cut off, in use? | `blocks`: visibility maps, indexes and links of indexes |
//! | was this page made for another kind of relation? | `strange`: the special space of pages |
//! | is this a page that no server writes? | `inside`: rows and entries of each page by itself |
//! | do the pages of a btree agree? | `tree`: neighbours, levels, downlinks |
//! | is this page older than it must be? | `changes`: summaries of the log (17 and later) |
//!
//! Names are reported in all circumstances. The others are proof only in a cluster
//! that was shut down cleanly: elsewhere files lag behind one another, and what
//! they say of each other on a healthy server looks like damage. So they are not
//! asked there.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::files::Cluster;
use crate::files::catalogue::relations::{
    Certainty, Persistence, Relation, RelationKind, Relations,
};
use crate::files::catalogue::{Catalogue, Databases};
use crate::files::names::{Fork, RelationFile};
use crate::files::structure;
use crate::files::wal::block::Locator;
use crate::files::witness::Method;
use crate::files::witness::kind::MadeFor;
use crate::files::witness::rows::{Limits, Numbers};
use crate::page::{Checksums, MAX_ALIGN};
use pagewarden_core::database::{PageFile, Step};
use pagewarden_core::page::Witness;
use pagewarden_core::verdict::{Finding, Standing};

mod blocks;
mod changes;
mod files;
mod inside;
pub(super) mod names;
mod strange;
mod tree;

use blocks::{Facts, IndexPages, MapPages, OwnPages, ROW_BLOCKS_MAX, Watched};
use changes::{ChangedPages, Changes};
use inside::{Faults, RowPages};
use names::Books;
use strange::{LinkPages, StrangePages};
use tree::{TREE_PAGES_MAX, Tree, TreePages};

/// What is known of a relation from the catalogues.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    /// The database's name; `None` for relations of the whole cluster.
    pub(super) database: Option<Arc<str>>,
    /// `public.accounts`.
    pub(super) object: Arc<str>,
    /// What to do if it is damaged, where that is known.
    pub(super) advice: Option<Arc<str>>,
}

/// Where the files of a relation fork are.
#[derive(Debug, Clone, Copy)]
pub(super) struct ForkPlace {
    /// As `pg_filenode_relation` wants it.
    pub(super) tablespace: u32,
    /// `None` for what belongs to the whole cluster.
    pub(super) database: Option<u32>,
    /// Any file of the fork.
    pub(super) file: RelationFile,
}

/// What the catalogues say of a folder's files.
#[derive(Debug, Default)]
pub(super) struct OfFolder {
    /// Files that must be there and are not.
    pub(super) missing: Vec<(RelationFile, Finding)>,
    /// Files that belong to no relation.
    pub(super) note: Option<String>,
    /// Why the catalogues could not be asked.
    pub(super) gap: Option<String>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Evidence {
    books: Books,
    /// Databases of which it was said why their catalogues could not be asked; 0 is the
    /// whole cluster.
    said_gaps: HashSet<u32>,
    /// What is asked beyond names.
    asked: Option<Asked>,
}

#[derive(Debug)]
struct Asked {
    root: PathBuf,
    catalogue: Catalogue,
    page_size: usize,
    segment_pages: u64,
    /// 9.6 does not log hash indexes.
    logs_hash_indexes: bool,
    changes: Changes,
    /// In the order in which they were come upon.
    watched: Vec<Arc<Watched>>,
    by_place: HashMap<Locator, Arc<Watched>>,
    changed: Vec<Arc<ChangedPages>>,
    strange: Vec<Arc<StrangePages>>,
    faults: Vec<Arc<Faults>>,
    trees: HashMap<Locator, Arc<Tree>>,
    /// Pages of trees that can still be compared.
    tree_pages_left: u64,
    /// Transactions and multixacts that any row may name; `None` where the control file
    /// does not say.
    in_use: Option<(Numbers, Numbers)>,
    /// What a sound page counts as; `None` where pages say nothing of their kind: on
    /// machines that align special space otherwise, and while checksums are switched.
    sound: Option<Standing>,
    /// Blocks whose rows can still be compared with indexes.
    row_blocks_left: u64,
}

/// The access method of btree indexes, in `pg_class.relam`.
const BTREE: u32 = 403;

fn locator_of(relation: &Relation, database: Option<u32>) -> Locator {
    Locator {
        tablespace: relation.tablespace,
        database: database.unwrap_or(0),
        number: relation.number,
    }
}

impl Evidence {
    /// Reads what is read at once. `is_whole`: all of the cluster will be seen.
    pub(super) fn open(cluster: &Cluster, is_whole: bool) -> Self {
        let control = cluster.control.as_ref().ok();
        let catalogue =
            control.and_then(|control| Catalogue::find(&cluster.root, &cluster.major, control));
        let is_proof = is_whole && cluster.witness && cluster.circumstances.is_settled();
        let asked = catalogue.clone().zip(control).filter(|_| is_proof);
        let asked = asked.map(|(catalogue, control)| Asked {
            root: cluster.root.clone(),
            catalogue,
            page_size: cluster.page_size,
            segment_pages: cluster.segment_pages,
            logs_hash_indexes: cluster.major != "9.6",
            changes: match cluster.checksums {
                Checksums::On => Changes::read(&cluster.root, control.timeline, cluster.page_size),
                _ => Changes::default(),
            },
            watched: Vec::new(),
            by_place: HashMap::new(),
            changed: Vec::new(),
            strange: Vec::new(),
            faults: Vec::new(),
            trees: HashMap::new(),
            tree_pages_left: TREE_PAGES_MAX,
            in_use: control.ids.map(|ids| {
                (
                    Numbers { oldest: ids.oldest_xid, next: ids.next_xid },
                    Numbers { oldest: ids.oldest_multi, next: ids.next_multi },
                )
            }),
            sound: match cluster.checksums {
                _ if cluster.max_align != MAX_ALIGN => None,
                Checksums::On => Some(Standing::Ok),
                Checksums::Off => Some(Standing::Unprotected),
                Checksums::Changing | Checksums::Pending => None,
            },
            row_blocks_left: ROW_BLOCKS_MAX,
        });
        Self {
            books: Books::open(catalogue, cluster.circumstances),
            said_gaps: HashSet::new(),
            asked,
        }
    }

    /// What the catalogues say of a file.
    pub(super) fn identify(&mut self, place: ForkPlace) -> Option<Identity> {
        self.books.identify(place.tablespace, place.database, place.file.number)
    }

    /// True if no catalogue lists this file, which a crash may have left half written.
    pub(super) fn is_orphan(&mut self, place: ForkPlace) -> bool {
        let relations = self.books.relations(place.database).filter(|_| self.asked.is_some());
        relations.is_some_and(|relations| {
            files::is_orphan(&relations, place.tablespace, place.database, place.file)
        })
    }

    /// Who is to see the pages of a file. `stem` is the fork's first file in the
    /// report.
    pub(super) fn witnesses(
        &mut self,
        place: ForkPlace,
        file: &PageFile,
        identity: Option<&Identity>,
    ) -> Vec<Arc<dyn Witness>> {
        let relations = self.books.relations(place.database);
        match (&mut self.asked, relations) {
            (Some(asked), Some(relations)) => asked.witnesses(&relations, place, file, identity),
            _ => Vec::new(),
        }
    }

    /// The catalogues, as far as they were needed.
    pub(super) fn books(&self) -> &Books {
        &self.books
    }

    /// True if `pg_database` could be read in full and does not list this one, or as one that
    /// was being dropped.
    pub(super) fn is_no_database(&self, oid: u32) -> bool {
        let Databases { listed, gaps } = self.books.databases();
        let is_none = self.books.database(oid).is_none_or(|found| found.is_half_dropped);
        gaps.is_empty() && !listed.is_empty() && is_none
    }

    /// True if `pg_tablespace` could be read in full and does not list this one, in a
    /// cluster that was shut down cleanly.
    pub(super) fn is_no_tablespace(&self, oid: u32) -> bool {
        let Some(asked) = &self.asked else { return false };
        let (listed, gaps) = asked.catalogue.tablespaces(self.books.moment());
        gaps.is_empty() && !listed.is_empty() && listed.iter().all(|one| one.oid != oid)
    }

    /// What is wrong with the files of a folder as they are listed, in order:
    /// what must be there, and what belongs to no relation.
    pub(super) fn of_folder(
        &mut self,
        tablespace: u32,
        database: Option<u32>,
        files: &[(RelationFile, u64)],
    ) -> OfFolder {
        let Some(asked) = &self.asked else { return OfFolder::default() };
        let name = database.and_then(|oid| self.books.database(oid)).map(|one| one.name.clone());
        let relations = match database {
            Some(oid) if self.is_no_database(oid) => None,
            _ => self.books.relations(database),
        };
        let Some(relations) = relations else {
            let listed = self.books.databases().gaps.is_empty();
            let note = "pg_database lists no database of this folder: a crash may have left it";
            let note = (listed && !files.is_empty()).then(|| note.to_owned());
            return OfFolder { note, ..OfFolder::default() };
        };
        // Once for a database, however many tablespaces it has.
        let is_first = self.said_gaps.insert(database.unwrap_or(0));
        let gap = is_first.then(|| files::silence(&relations, database.is_none())).flatten();
        let half_dropped = database
            .and_then(|oid| self.books.database(oid))
            .is_some_and(|database| database.is_half_dropped);
        let mut missing = match half_dropped {
            true => Vec::new(),
            false => {
                files::missing(&relations, tablespace, database, files, asked.logs_hash_indexes)
            }
        };
        for (_, finding) in &mut missing {
            finding.database.clone_from(&name);
        }
        let orphans = files::orphans(&relations, tablespace, database, files);
        let note = orphans.map(|(count, bytes, file)| {
            format!(
                "{count} files ({bytes} bytes) belong to no relation, as crashes leave them behind: {} ...",
                file.name()
            )
        });
        OfFolder { missing, note, gap }
    }

    /// Databases without a folder.
    pub(super) fn missing_folders(&mut self) -> Vec<(PathBuf, Finding)> {
        let Some(catalogue) = self.asked.as_ref().map(|asked| asked.catalogue.clone()) else {
            return Vec::new();
        };
        let mut missing = files::missing_folders(self.books.databases(), |database| {
            catalogue.folder(database.tablespace, database.oid)
        });
        let databases: Vec<_> = self.books.databases().listed.clone();
        for database in databases {
            if database.certainty != Certainty::Certain || database.is_half_dropped {
                continue;
            }
            let Some(relations) = self.books.relations(Some(database.oid)) else { continue };
            missing.extend(files::missing_in_tablespaces(&database, &relations, |tablespace| {
                catalogue.folder(tablespace, database.oid)
            }));
        }
        missing
    }

    /// True if there is something to conclude when all pages were seen.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// What is asked of the structure, where it can be.
    pub(super) fn structure(&self) -> Option<structure::Subject> {
        let asked = self.asked.as_ref()?;
        let counted = asked.sound?;
        Some(structure::Subject {
            catalogue: asked.catalogue.clone(),
            root: asked.root.clone(),
            page_size: asked.page_size,
            segment_pages: asked.segment_pages,
            counted,
        })
    }

    /// What comes of all that was seen.
    pub(super) fn conclude(&mut self) -> Vec<Step> {
        let Some(asked) = self.asked.take() else { return Vec::new() };
        // Of a page that has several findings the first counts: the gravest.
        let strange = asked.strange.iter().flat_map(|strange| strange.conclude());
        asked.trees.values().for_each(|tree| tree.conclude());
        let inside = asked.faults.iter().flat_map(|faults| faults.conclude());
        let blocks = asked.watched.iter().flat_map(|watched| watched.conclude());
        let changed = asked.changed.iter().flat_map(|changed| changed.conclude());
        strange.chain(inside).chain(blocks).chain(changed).collect()
    }
}

impl Asked {
    fn witnesses(
        &mut self,
        relations: &Relations,
        place: ForkPlace,
        file: &PageFile,
        identity: Option<&Identity>,
    ) -> Vec<Arc<dyn Witness>> {
        let tablespace = names::oid_of(place.tablespace, place.database);
        let Some(relation) = relations.by_file(tablespace, place.file.number) else {
            return Vec::new();
        };
        // Of others, what the rows say may be over.
        let is_kept =
            matches!(relation.persistence, Persistence::Permanent | Persistence::Unlogged);
        let is_plain = place.file.session.is_none() && !place.file.is_incremental;
        if relation.certainty != Certainty::Certain || !is_kept || !is_plain {
            return Vec::new();
        }
        let mut witnesses: Vec<Arc<dyn Witness>> = Vec::new();
        let method = Method::by_oid(relation.method);
        match place.file.fork {
            Fork::Main => {
                let own = self.watch(relation, place.database, identity);
                witnesses.push(Arc::new(OwnPages(Arc::clone(&own))));
                self.own_pages(relation, method, &own, &mut witnesses);
                self.inside_pages(relation, place, &own, &mut witnesses);
                self.index_pages(relations, relation, place, file, identity, &mut witnesses);
            }
            Fork::Init => {
                let own = self.watch_fork(relation, place, identity);
                witnesses.push(Arc::new(OwnPages(Arc::clone(&own))));
                self.own_pages(relation, method, &own, &mut witnesses);
            }
            Fork::FreeSpace | Fork::Visibility => {
                let own = self.watch_fork(relation, place, identity);
                self.strange_pages(&own, MadeFor::Map, &mut witnesses);
                if place.file.fork == Fork::Visibility && relation.is_heap() {
                    let heap = self.watch(relation, place.database, identity);
                    witnesses.push(Arc::new(MapPages { heap, page_size: self.page_size }));
                }
            }
        }
        let is_logged = relation.persistence == Persistence::Permanent;
        let is_told = relation.is_heap() || method == Some(Method::Btree);
        if files::is_main(place.file) && is_told && is_logged {
            let locator = Locator {
                tablespace,
                database: place.database.unwrap_or(0),
                number: relation.number,
            };
            if let Some(changes) = self.changes.of(locator) {
                let changed = Arc::new(ChangedPages {
                    changes,
                    file: file.name.clone(),
                    is_heap: relation.is_heap(),
                    first_page: file.first_page,
                    page_size: self.page_size,
                    identity: identity.cloned(),
                    hint: file.hint.clone(),
                    stale: Mutex::default(),
                });
                self.changed.push(Arc::clone(&changed));
                witnesses.push(changed);
            }
        }
        witnesses
    }

    /// Whether the pages of a relation are of its kind, and where those of an index lead
    /// within it.
    fn own_pages(
        &mut self,
        relation: &Relation,
        method: Option<Method>,
        own: &Arc<Watched>,
        witnesses: &mut Vec<Arc<dyn Witness>>,
    ) {
        let is_logged = method != Some(Method::Hash) || self.logs_hash_indexes;
        let made_for = match (relation.kind, method) {
            (RelationKind::Sequence, _) => Some(MadeFor::Sequence),
            (RelationKind::Index, Some(method)) => {
                (relation.is_complete_index && is_logged).then_some(MadeFor::Index(method))
            }
            (RelationKind::Index, None) => None,
            _ => relation.is_heap().then_some(MadeFor::Heap),
        };
        let Some(made_for) = made_for else { return };
        self.strange_pages(own, made_for, witnesses);
        if let MadeFor::Index(method) = made_for {
            let own = Arc::clone(own);
            witnesses.push(Arc::new(LinkPages { own, method, page_size: self.page_size }));
        }
    }

    /// Whether the rows of a table and the pages of a btree are what a server writes.
    fn inside_pages(
        &mut self,
        relation: &Relation,
        place: ForkPlace,
        own: &Arc<Watched>,
        witnesses: &mut Vec<Arc<dyn Witness>>,
    ) {
        let Some(counted) = self.sound else { return };
        let faults = Arc::new(Faults::new(Arc::clone(own), counted));
        let page_size = self.page_size;
        if relation.is_heap() {
            let Some(limits) = self.limits(relation) else { return };
            let faults = Arc::clone(&faults);
            witnesses.push(Arc::new(RowPages { faults, limits, page_size }));
        } else if relation.is_complete_index && relation.method == BTREE {
            let locator = locator_of(relation, place.database);
            let left = self.tree_pages_left.checked_sub(own.pages());
            let known = self.trees.get(&locator).map(Arc::clone);
            let tree = known.or_else(|| {
                self.tree_pages_left = left?;
                let tree = Tree::new(Arc::clone(own), Arc::clone(&faults), own.pages());
                Some(Arc::clone(self.trees.entry(locator).or_insert_with(|| Arc::new(tree))))
            });
            witnesses.push(Arc::new(TreePages { faults: Arc::clone(&faults), tree, page_size }));
        } else {
            return;
        }
        self.faults.push(faults);
    }

    /// What the rows of a table cannot go beyond.
    fn limits(&self, relation: &Relation) -> Option<Limits> {
        let (transactions, multixacts) = self.in_use?;
        // The cluster's oldest may lag behind that of the table, and never be newer.
        let since = |oldest: u32, numbers: Numbers| match oldest {
            oldest if numbers.has(oldest) || oldest == numbers.next => {
                Numbers { oldest, ..numbers }
            }
            _ => numbers,
        };
        Some(Limits {
            transactions: since(relation.frozen.0, transactions),
            multixacts: since(relation.frozen.1, multixacts),
            columns: relation.columns,
        })
    }

    /// Whether the pages of a fork are of its kind.
    fn strange_pages(
        &mut self,
        own: &Arc<Watched>,
        made_for: MadeFor,
        witnesses: &mut Vec<Arc<dyn Witness>>,
    ) {
        let Some(counted) = self.sound else { return };
        let strange =
            Arc::new(StrangePages::new(Arc::clone(own), made_for, self.page_size, counted));
        self.strange.push(Arc::clone(&strange));
        witnesses.push(strange);
    }

    /// What the entries of an index say of its heap.
    fn index_pages(
        &mut self,
        relations: &Relations,
        index: &Relation,
        place: ForkPlace,
        file: &PageFile,
        identity: Option<&Identity>,
        witnesses: &mut Vec<Arc<dyn Witness>>,
    ) {
        let method = Method::by_oid(index.method);
        let is_logged = method != Some(Method::Hash) || self.logs_hash_indexes;
        let heap = relations.heap_of(index).filter(|_| is_logged);
        let Some((heap, method)) = heap.zip(method) else { return };
        let of_heap = Identity {
            database: identity.and_then(|identity| identity.database.clone()),
            object: relations.name(heap).into(),
            advice: None,
        };
        let heap = self.watch(heap, place.database, Some(&of_heap));
        let name = relations.name(index).into();
        witnesses.push(Arc::new(IndexPages::new(heap, method, self.page_size, name, &file.name)));
    }

    /// The record of a relation's blocks, made when it is first wanted.
    fn watch(
        &mut self,
        relation: &Relation,
        database: Option<u32>,
        identity: Option<&Identity>,
    ) -> Arc<Watched> {
        let locator = locator_of(relation, database);
        if let Some(known) = self.by_place.get(&locator) {
            return Arc::clone(known);
        }
        let path = self.place_of(relation, database);
        let (pages, _) = self.pages(&path);
        let left = self.row_blocks_left.checked_sub(pages).filter(|_| relation.is_heap());
        self.row_blocks_left = left.unwrap_or(self.row_blocks_left);
        let watched = self.watched_at(&path, relation, identity, left.is_some(), false);
        self.by_place.insert(locator, Arc::clone(&watched));
        self.watched.push(Arc::clone(&watched));
        watched
    }

    /// The record of a fork other than the main one.
    fn watch_fork(
        &mut self,
        relation: &Relation,
        place: ForkPlace,
        identity: Option<&Identity>,
    ) -> Arc<Watched> {
        let fork = place.file.fork;
        let mut path = self.place_of(relation, place.database).into_os_string();
        path.push(fork.suffix());
        let is_init = fork == Fork::Init;
        let needs_all = is_init && files::has_first_page(relation, self.logs_hash_indexes);
        let watched = self.watched_at(Path::new(&path), relation, identity, false, needs_all);
        // What other pages say counts for init forks alone: the maps are made anew.
        if is_init {
            self.watched.push(Arc::clone(&watched));
        }
        watched
    }

    /// The first file of a relation.
    fn place_of(&self, relation: &Relation, database: Option<u32>) -> PathBuf {
        let folder = match database {
            None => self.root.join("global"),
            Some(database) => self.catalogue.folder(relation.tablespace, database),
        };
        folder.join(relation.number.to_string())
    }

    fn watched_at(
        &self,
        path: &Path,
        relation: &Relation,
        identity: Option<&Identity>,
        with_rows: bool,
        needs_all: bool,
    ) -> Arc<Watched> {
        let (pages, has_odd_end) = self.pages(path);
        Arc::new(Watched::new(Facts {
            pages,
            has_odd_end,
            with_rows,
            page_size: self.page_size,
            segment_pages: self.segment_pages,
            stem: path.strip_prefix(&self.root).unwrap_or(path).to_string_lossy().into_owned(),
            identity: identity.cloned(),
            hint: identity.and_then(|identity| identity.advice.clone()),
            needs_first: files::has_first_page(relation, self.logs_hash_indexes),
            needs_all,
        }))
    }

    /// Whole pages of a fork, up to the first segment that is not full, and
    /// whether that one has an odd end. So does one that has no file: it is
    /// reported as missing, or lies in a tablespace that is not available.
    fn pages(&self, first: &Path) -> (u64, bool) {
        let length = |path: &Path| match std::fs::symlink_metadata(path) {
            Ok(data) if data.is_file() => data.len(),
            _ => 0,
        };
        if !std::fs::symlink_metadata(first).is_ok_and(|data| data.is_file()) {
            return (0, true);
        }
        let page_size = self.page_size as u64;
        let mut pages = 0_u64;
        let mut path = first.to_owned();
        for segment in 1_u32.. {
            let bytes = length(&path);
            path = first.with_extension(segment.to_string());
            let in_segment = (bytes / page_size).min(self.segment_pages);
            pages = pages.saturating_add(in_segment);
            if in_segment < self.segment_pages {
                return (pages, !bytes.is_multiple_of(page_size) || length(&path) > 0);
            }
        }
        (pages, false)
    }
}
