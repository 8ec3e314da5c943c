//! The catalogues of a cluster, read from their files, without a server.
//!
//! ```text
//! pg_filenode.map  ->  pg_database  ->  each database's pg_filenode.map
//!                                       -> pg_class -> pg_namespace, pg_index
//! ```
//!
//! | file | subject |
//! | --- | --- |
//! | `pages` | the pages of a catalogue that pass their tests, and the gaps between |
//! | `tuple` | rows on a page |
//! | `transactions`, `visibility` | which version of a row counts |
//! | `rows` | what the rows say, in every version |
//! | `columns` | columns of relations, and how their indexes are ordered |
//! | `relations` | the relations of one database, by file and by oid |
//!
//! Two questions are answered. *Which relations are there* ([`Catalogue::databases`],
//! [`Catalogue::relations`], [`Catalogue::shared`]): with what is in doubt marked so,
//! and what could not be read listed. *Is this relation established*
//! ([`Catalogue::establishes`]): listed by a row that is committed and current, so
//! that all of its pages have been synced once. What lies in a cluster's folders
//! without such a row is being built, or was left behind by a crash, and its pages
//! may be torn for ever without any harm. There, every doubt is a no.

use std::path::{Path, PathBuf};
use std::thread;

use crate::files::catalogue::pages::{A_MOMENT, GapReason, Gaps, Shape};
use crate::files::catalogue::relations::{Builder, Certainty, Relations, place_of};
use crate::files::catalogue::rows::{ClassRow, DatabaseRow, IndexRow, NamespaceRow};
use crate::files::catalogue::transactions::{Moment, Outcome, Transactions};
use crate::files::catalogue::tuple::{Tuple, tuples};
use crate::files::catalogue::visibility::{Visibility, hints, visibility};
use crate::files::control::Control;
use crate::files::maps::{self, MAP_BYTES_MAX};
use crate::files::wal::block::Locator;
use pagewarden_core::source::file::read_small;

pub mod columns;
pub mod pages;
pub mod relations;
pub mod rows;
pub mod transactions;
pub mod tuple;
pub mod visibility;

/// The oid of the tablespace that is `base`.
pub const DEFAULT_TABLESPACE: u32 = 1663;
/// The oid of the tablespace that is `global`.
pub const GLOBAL_TABLESPACE: u32 = 1664;

const PG_CLASS: u32 = 1259;
const PG_TABLESPACE: u32 = 1213;
const PG_DATABASE: u32 = 1262;
const PG_INDEX: u32 = 2610;
const PG_NAMESPACE: u32 = 2615;
/// `DATCONNLIMIT_INVALID_DB`: DROP DATABASE was interrupted.
const HALF_DROPPED: i32 = -2;
/// How often a catalogue is read that moves to another file meanwhile.
const LOOKS: u32 = 3;

/// Access methods of indexes whose pages are changed by the rules: btree, hash,
/// gist, gin, spgist, brin.
const INDEX_METHODS: [u32; 6] = [403, HASH, 783, 2742, 4000, 3580];
const HASH: u32 = 405;
/// The access method of tables, which has a number since 12.
const HEAP: u32 = 2;

/// The catalogues of a cluster, as they are on disk.
#[derive(Debug, Clone)]
pub struct Catalogue {
    root: PathBuf,
    shape: Shape,
    /// 9 stands for 9.6.
    major: u32,
    /// As in `PG_15_202209061`.
    version_folder: String,
}

/// A database of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    /// Its oid, the name of its folder.
    pub oid: u32,
    /// Its name.
    pub name: String,
    /// The oid of its default tablespace.
    pub tablespace: u32,
    /// True if anyone may copy it.
    pub is_template: bool,
    /// False if no user may connect.
    pub allows_connections: bool,
    /// The oldest transaction and the oldest multixact that it still holds.
    pub frozen: (u32, u32),
    /// DROP DATABASE was interrupted: any of its files may be gone.
    pub is_half_dropped: bool,
    /// How sure all this is.
    pub certainty: Certainty,
}

/// A row that knows more of a transaction than the transaction log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// The catalogue with the row.
    pub path: PathBuf,
    /// The block that it stands on.
    pub block: u32,
    /// The transaction.
    pub transaction: u32,
    /// The row says that it committed; else that it aborted.
    pub committed: bool,
}

/// A tablespace of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tablespace {
    /// Its oid, the name of its link.
    pub oid: u32,
    /// Its name.
    pub name: String,
    /// How sure all this is.
    pub certainty: Certainty,
}

/// The databases of the cluster.
#[derive(Debug, Default)]
pub struct Databases {
    /// By oid; one that is being renamed or moved may be there twice.
    pub listed: Vec<Database>,
    /// What could not be read.
    pub gaps: Gaps,
}

impl Catalogue {
    /// The catalogues below `root`; `None` for versions whose rows are unknown.
    #[must_use]
    pub fn find(root: &Path, version: &str, control: &Control) -> Option<Self> {
        let major = match version {
            "9.6" => 9,
            other => other.parse().ok().filter(|major| (10..=18).contains(major))?,
        };
        Some(Self {
            root: root.to_owned(),
            shape: Shape {
                page_size: control.page_size,
                max_align: control.max_align,
                checksums: control.checksums,
                segment_pages: control.segment_pages,
            },
            major,
            version_folder: format!("PG_{version}_{}", control.catalog_version),
        })
    }

    /// All databases.
    #[must_use]
    pub fn databases(&self, moment: Moment) -> Databases {
        let mut databases = Databases::default();
        let mut transactions = self.transactions(moment);
        for look in 1..=LOOKS {
            databases = Databases::default();
            let Databases { listed, gaps } = &mut databases;
            let Some(file) = self.mapped(&self.global(), PG_DATABASE, moment, gaps) else { break };
            let path = self.global().join(file.to_string());
            let mut is_strange = false;
            self.rows(&path, moment, &mut transactions, gaps, |_, tuple, certainty| {
                match DatabaseRow::read(tuple, self.major) {
                    Some(row) => listed.push(Database::new(&row, certainty)),
                    None => is_strange = true,
                }
            });
            if is_strange {
                gaps.add(&path, None, GapReason::Strange);
            }
            if self.has_moved(&self.global(), PG_DATABASE, file, moment) {
                gaps.add(&path, None, GapReason::Moved);
            }
            if look == LOOKS || gaps.is_empty() || moment != Moment::Running {
                break;
            }
            thread::sleep(A_MOMENT);
            transactions = self.transactions(moment);
        }
        databases.listed.sort_by_key(|database| (database.oid, database.certainty));
        databases
    }

    /// All tablespaces. A row of `pg_tablespace` begins as one of
    /// `pg_namespace` does, in every version.
    #[must_use]
    pub fn tablespaces(&self, moment: Moment) -> (Vec<Tablespace>, Gaps) {
        let (mut listed, mut gaps) = (Vec::new(), Gaps::default());
        if let Some(file) = self.mapped(&self.global(), PG_TABLESPACE, moment, &mut gaps) {
            let path = self.global().join(file.to_string());
            let mut transactions = self.transactions(moment);
            self.rows(&path, moment, &mut transactions, &mut gaps, |_, tuple, certainty| {
                if let Some(row) = NamespaceRow::read(tuple, self.major) {
                    let name = String::from_utf8_lossy(row.name).into_owned();
                    listed.push(Tablespace { oid: row.oid, name, certainty });
                }
            });
        }
        (listed, gaps)
    }

    /// The folder of this server version in a tablespace that a link leads to.
    #[must_use]
    pub fn version_folder(&self, tablespace: u32) -> PathBuf {
        let link = self.root.join("pg_tblspc").join(tablespace.to_string());
        link.join(&self.version_folder)
    }

    /// The relations of one database, without those of the whole cluster.
    #[must_use]
    pub fn relations(&self, database: &Database, moment: Moment) -> Relations {
        self.load(database, false, moment)
    }

    /// The relations of the whole cluster, those in `global`. Every database lists
    /// them: the first one whose catalogues can be read is asked.
    #[must_use]
    pub fn shared(&self, databases: &Databases, moment: Moment) -> Relations {
        let mut best: Option<Relations> = None;
        for database in &databases.listed {
            if database.is_half_dropped || database.certainty == Certainty::InDoubt {
                continue;
            }
            let relations = self.load(database, true, moment);
            if relations.gaps.is_empty() {
                return relations;
            }
            if best.as_ref().is_none_or(|best| relations.gaps.count < best.gaps.count) {
                best = Some(relations);
            }
        }
        best.unwrap_or_else(|| {
            let mut gaps = Gaps::default();
            gaps.add(&self.global(), None, GapReason::NotListed);
            Builder::default().finish(gaps)
        })
    }

    fn load(&self, database: &Database, is_shared: bool, moment: Moment) -> Relations {
        let folder = self.folder(database.tablespace, database.oid);
        let mut look = 1;
        loop {
            let mut gaps = Gaps::default();
            let Some(file) = self.mapped(&folder, PG_CLASS, moment, &mut gaps) else {
                return Builder::default().finish(gaps);
            };
            let mut transactions = self.transactions(moment);
            let builder =
                self.read_classes(database, file, is_shared, &mut transactions, &mut gaps);
            // VACUUM FULL gives a catalogue another file, and cuts the old one.
            if self.has_moved(&folder, PG_CLASS, file, moment) {
                gaps.add(&folder.join(file.to_string()), None, GapReason::Moved);
            }
            if look < LOOKS && !gaps.is_empty() && moment == Moment::Running {
                look += 1;
                thread::sleep(A_MOMENT);
                continue;
            }
            return builder.finish(gaps);
        }
    }

    fn read_classes(
        &self,
        database: &Database,
        file: u32,
        is_shared: bool,
        transactions: &mut Transactions,
        gaps: &mut Gaps,
    ) -> Builder {
        let moment = transactions.moment();
        let folder = self.folder(database.tablespace, database.oid);
        let map_path =
            if is_shared { self.global() } else { folder.clone() }.join("pg_filenode.map");
        let map = read_small(&map_path, MAP_BYTES_MAX).unwrap_or_default();
        let mut builder = Builder::default();
        // The catalogues that name the rest are not in the map, and not shared.
        let mut others = [(PG_NAMESPACE, None), (PG_INDEX, None)];
        let path = folder.join(file.to_string());
        let (mut is_unmapped, mut is_strange) = (false, false);
        self.rows(&path, moment, transactions, gaps, |block, tuple, certainty| {
            let Some(row) = ClassRow::read(tuple, self.major) else {
                is_strange = true;
                return;
            };
            let place = place_of(&row, database.tablespace);
            for (oid, found) in &mut others {
                if row.oid == *oid && row.number != 0 {
                    let known = found.get_or_insert((certainty, place, row.number));
                    *known = (*known).min((certainty, place, row.number));
                }
            }
            if row.is_shared != is_shared {
                return;
            }
            let has_file = relations::RelationKind::parse(row.kind).is_some();
            let number = match row.number {
                0 if has_file => maps::file_number(&map, row.oid).unwrap_or(0),
                number => number,
            };
            is_unmapped |= has_file && number == 0;
            builder.add(&row, block, number, place, certainty);
        });
        if is_unmapped {
            gaps.add(&map_path, None, GapReason::NotMapped);
        }
        if is_strange {
            gaps.add(&path, None, GapReason::Strange);
        }
        if builder.is_full() {
            gaps.add(&path, None, GapReason::TooMuch);
        }
        builder.sort();
        let [namespace, index] = others.map(|(_, found)| {
            let (_, tablespace, number) = found?;
            Some(self.folder(tablespace, database.oid).join(number.to_string()))
        });
        match namespace {
            Some(path) => self.rows(&path, moment, transactions, gaps, |_, tuple, _| {
                if let Some(row) = NamespaceRow::read(tuple, self.major) {
                    builder.add_namespace(row.oid, row.name);
                }
            }),
            None => gaps.add(&path, None, GapReason::NotListed),
        }
        if !builder.has_namespaces() {
            gaps.add(&path, None, GapReason::NotListed);
        }
        match index {
            Some(path) => self.rows(&path, moment, transactions, gaps, |_, tuple, certainty| {
                if let Some(row) = IndexRow::read(tuple, self.major) {
                    builder.add_index(&row, certainty);
                }
            }),
            None => gaps.add(&path, None, GapReason::NotListed),
        }
        builder
    }

    /// The first transaction of which rows of `pg_class` say that it committed or aborted,
    /// and the transaction log does not. `is_in_use`: numbers that the log still holds.
    #[must_use]
    pub fn contradiction(
        &self,
        database: &Database,
        is_in_use: impl Fn(u32) -> bool,
    ) -> Option<Contradiction> {
        let folder = self.folder(database.tablespace, database.oid);
        let (moment, mut gaps) = (Moment::AtRest, Gaps::default());
        let file = self.mapped(&folder, PG_CLASS, moment, &mut gaps)?;
        let path = folder.join(file.to_string());
        let mut transactions = self.transactions(moment);
        let mut found = None;
        self.shape.read(&path, moment, &mut gaps, |block, page| {
            for (transaction, outcome) in
                tuples(page).flat_map(|tuple| hints(&tuple).collect::<Vec<_>>())
            {
                if found.is_none()
                    && is_in_use(transaction)
                    && contradicts(outcome, transactions.outcome(transaction))
                {
                    let committed = outcome == Outcome::Committed;
                    found =
                        Some(Contradiction { path: path.clone(), block, transaction, committed });
                }
            }
        });
        found
    }

    /// True if the main fork of this relation has been complete and synced at
    /// some time.
    #[must_use]
    pub fn establishes(&self, locator: Locator) -> bool {
        self.look_for(locator).is_some()
    }

    fn look_for(&self, locator: Locator) -> Option<()> {
        let Locator { tablespace, database, number } = locator;
        if database == 0 {
            let map = read_small(&self.global().join("pg_filenode.map"), MAP_BYTES_MAX).ok()?;
            return (tablespace == GLOBAL_TABLESPACE && maps::names_file(&map, number))
                .then_some(());
        }
        let home = self
            .databases(Moment::Unrecovered)
            .listed
            .into_iter()
            .find(|one| one.oid == database && one.certainty != Certainty::InDoubt)?;
        let folder = self.folder(home.tablespace, database);
        let map = read_small(&folder.join("pg_filenode.map"), MAP_BYTES_MAX).ok()?;
        if tablespace == home.tablespace && maps::names_file(&map, number) {
            return Some(());
        }
        let pg_class = folder.join(maps::file_number(&map, PG_CLASS)?.to_string());
        let mut found = None;
        let mut transactions = self.transactions(Moment::Unrecovered);
        let mut gaps = Gaps::default();
        self.rows(
            &pg_class,
            Moment::Unrecovered,
            &mut transactions,
            &mut gaps,
            |_, tuple, certainty| {
                let row = ClassRow::read(tuple, self.major).filter(|row| {
                    row.number == number && place_of(row, home.tablespace) == tablespace
                });
                let is_sure = certainty != Certainty::InDoubt;
                if row.is_some_and(|row| is_sure && is_complete(&row, self.major)) {
                    found = Some(());
                }
            },
        );
        found
    }

    /// Bytes in a page.
    #[must_use]
    pub fn page_size(&self) -> usize {
        self.shape.page_size
    }

    /// Calls `each` for the versions of rows that count, or may, with the block
    /// that they stand on.
    fn rows(
        &self,
        first_file: &Path,
        moment: Moment,
        transactions: &mut Transactions,
        gaps: &mut Gaps,
        mut each: impl FnMut(u32, &Tuple<'_>, Certainty),
    ) {
        self.shape.read(first_file, moment, gaps, |block, page| {
            for tuple in tuples(page) {
                let certainty = match (visibility(&tuple, transactions), moment) {
                    (Visibility::Dead, _) => continue,
                    (Visibility::InDoubt, _) => Certainty::InDoubt,
                    (Visibility::Current, Moment::AtRest) => Certainty::Certain,
                    (Visibility::Current, _) => Certainty::Visible,
                };
                each(block, &tuple, certainty);
            }
        });
    }

    /// How transactions ended.
    #[must_use]
    pub fn transactions(&self, moment: Moment) -> Transactions {
        Transactions::new(&self.root, self.major, self.shape.page_size, moment)
    }

    /// The file number that a map gives a catalogue. A map that cannot be believed
    /// is read again while a server may be writing it.
    fn mapped(&self, folder: &Path, oid: u32, moment: Moment, gaps: &mut Gaps) -> Option<u32> {
        let path = folder.join("pg_filenode.map");
        let mut look = 1;
        loop {
            let reason = match read_small(&path, MAP_BYTES_MAX) {
                Ok(map) => match maps::file_number(&map, oid) {
                    Some(number) => return Some(number),
                    None => GapReason::NotMapped,
                },
                Err(error) => GapReason::Unreadable(error.to_string()),
            };
            if look >= LOOKS || moment != Moment::Running {
                gaps.add(&path, None, reason);
                return None;
            }
            look += 1;
            thread::sleep(A_MOMENT);
        }
    }

    fn has_moved(&self, folder: &Path, oid: u32, number: u32, moment: Moment) -> bool {
        moment == Moment::Running
            && self.mapped(folder, oid, moment, &mut Gaps::default()) != Some(number)
    }

    fn global(&self) -> PathBuf {
        self.root.join("global")
    }

    /// The folder of a database in a tablespace; `global`, where relations are of no database.
    #[must_use]
    pub fn folder(&self, tablespace: u32, database: u32) -> PathBuf {
        if tablespace == GLOBAL_TABLESPACE {
            return self.global();
        }
        let database = database.to_string();
        if tablespace == DEFAULT_TABLESPACE {
            return self.root.join("base").join(database);
        }
        let link = self.root.join("pg_tblspc").join(tablespace.to_string());
        link.join(&self.version_folder).join(database)
    }
}

impl Database {
    fn new(row: &DatabaseRow<'_>, certainty: Certainty) -> Self {
        let mut name = String::from_utf8_lossy(row.name).into_owned();
        name.retain(|letter| !letter.is_control());
        Self {
            oid: row.oid,
            name,
            tablespace: row.tablespace,
            is_template: row.is_template,
            allows_connections: row.allows_connections,
            frozen: row.frozen,
            is_half_dropped: row.connection_limit == HALF_DROPPED,
            certainty,
        }
    }
}

/// True if the log of a transaction's status cannot be right, by what a row knows. One
/// that aborted need not be in the log, and one that is prepared is in doubt there.
fn contradicts(known: Outcome, logged: Outcome) -> bool {
    match known {
        Outcome::Committed => logged != Outcome::Committed,
        Outcome::Aborted => logged == Outcome::Committed,
        Outcome::Unknown => false,
    }
}

/// True if the pages of a relation follow the rules, and were all synced before
/// its row could look like this.
fn is_complete(row: &ClassRow<'_>, major: u32) -> bool {
    let follows_rules = match row.kind {
        b'r' | b't' | b'm' => row.method == if major < 12 { 0 } else { HEAP },
        b'S' => true,
        b'i' => {
            let logged = row.method != HASH || major >= 10;
            logged && row.pages > 0 && INDEX_METHODS.contains(&row.method)
        }
        _ => false,
    };
    follows_rules && row.persistence == b'p'
}
