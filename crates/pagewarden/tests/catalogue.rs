//! The catalogues read from files say what the server says in SQL: while it runs,
//! after a crash, and after a clean stop.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pagewarden::formats::postgres::files::catalogue::pages::GapReason;
use pagewarden::formats::postgres::files::catalogue::relations::{
    Certainty, Persistence, Relation, RelationKind, Relations,
};
use pagewarden::formats::postgres::files::catalogue::transactions::Moment;
use pagewarden::formats::postgres::files::catalogue::{Catalogue, Database};
use pagewarden::formats::postgres::files::names::Fork;
use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode};

use crate::servers::{catalogue, installations, rows};

/// What is settled once it has run: every kind of relation, in every way that its
/// row can have come to be. What is called `gone_...` must not be found.
const SETTLED: &[&str] = &[
    "CREATE TABLE plain (id int PRIMARY KEY, word text)",
    "INSERT INTO plain SELECT i, md5(i::text) FROM generate_series(1, 1000) i",
    "CREATE SCHEMA \"Other Schema\"",
    "CREATE TABLE \"Other Schema\".\"Table \"\"quoted\"\"\" (id int)",
    "CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY, word text)",
    "CREATE MATERIALIZED VIEW materialised AS SELECT * FROM plain",
    "CREATE VIEW looked_through AS SELECT * FROM plain",
    "CREATE TYPE composite AS (a int, b text)",
    "CREATE SEQUENCE counter",
    "CREATE INDEX by_word_hash ON plain USING hash (word)",
    "CREATE INDEX by_id_brin ON plain USING brin (id)",
    "CREATE TABLE in_space (id int PRIMARY KEY, word text) TABLESPACE space",
    "CREATE TABLE moved (id int, word text)",
    "ALTER TABLE moved SET TABLESPACE space",
    "CREATE TABLE rewritten (id int, word text)",
    "INSERT INTO rewritten SELECT i, i FROM generate_series(1, 100) i",
    "VACUUM FULL rewritten",
    "ALTER TABLE rewritten ALTER id TYPE bigint",
    "TRUNCATE rewritten",
    "CREATE TABLE gone_dropped (id int PRIMARY KEY, word text)",
    "DROP TABLE gone_dropped",
    "BEGIN; CREATE TABLE gone_aborted (id int PRIMARY KEY); ROLLBACK",
    "BEGIN; ALTER TABLE plain RENAME TO gone_renamed; ROLLBACK",
    "BEGIN; CREATE TABLE in_parent (id int); SAVEPOINT a; CREATE TABLE gone_in_child (id int);
     ROLLBACK TO a; SAVEPOINT b; CREATE TABLE in_child (id int); RELEASE b; COMMIT",
    "BEGIN; CREATE TABLE gone_in_grandchild (id int); SAVEPOINT a; DROP TABLE plain CASCADE; RELEASE a;
     ROLLBACK",
    "CREATE TABLE doubled AS SELECT 1 AS id FROM generate_series(1, 2)",
    // A mapped catalogue gets another file; so do those that are not mapped.
    "VACUUM FULL pg_class",
    "VACUUM FULL pg_database",
    "VACUUM FULL pg_index",
    "VACUUM FULL pg_namespace",
    "CREATE TABLE after_all (id int PRIMARY KEY, word text)",
    // More rows than fit on a few pages, and holes among them.
    "DO $$ BEGIN FOR i IN 1..300 LOOP
       EXECUTE 'CREATE TABLE many_' || i || ' (id int PRIMARY KEY)'; END LOOP;
     FOR i IN 1..100 LOOP EXECUTE 'DROP TABLE many_' || i * 3; END LOOP; END $$",
];

const PARTITIONS: &[&str] = &[
    "CREATE TABLE parted (id int, word text) PARTITION BY RANGE (id)",
    "CREATE TABLE parted_low PARTITION OF parted FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE parted_high PARTITION OF parted FOR VALUES FROM (10) TO (20)",
];

/// Prepared transactions that lock, change and make rows of `pg_class`. What is in
/// doubt afterwards is called `doubt_...`.
const PREPARED: &[&str] = &[
    "CREATE TABLE doubt_dropped (id int)",
    "CREATE TABLE doubt_moved (id int)",
    "CREATE TABLE locked (id int)",
    "CREATE TABLE locked_twice (id int)",
    "BEGIN; SELECT 1 FROM pg_class WHERE relname IN ('locked', 'locked_twice') FOR KEY SHARE;
     PREPARE TRANSACTION 'locker'",
    "BEGIN; SELECT 1 FROM pg_class WHERE relname = 'locked_twice' FOR KEY SHARE;
     PREPARE TRANSACTION 'second locker'",
    // Members of a multixact: one locks, one has updated.
    "ALTER TABLE locked SET TABLESPACE space",
    // The same, aborted.
    "BEGIN; ALTER TABLE locked_twice SET TABLESPACE space; ROLLBACK",
    "BEGIN; CREATE TABLE doubt_made (id int); SAVEPOINT a; CREATE TABLE doubt_made_by_child (id int);
     RELEASE a; PREPARE TRANSACTION 'maker'",
    "BEGIN; DROP TABLE doubt_dropped; PREPARE TRANSACTION 'dropper'",
    "BEGIN; ALTER TABLE doubt_moved SET TABLESPACE space; PREPARE TRANSACTION 'mover'",
    "BEGIN; CREATE TABLE gone_after_prepared (id int); ROLLBACK",
    "CREATE TABLE after_prepared (id int PRIMARY KEY)",
];

/// A relation in the words of SQL.
type Told = (u32, u32, u32, char, char, u32, u32, bool, String);

fn told_by_server(cluster: &Cluster, database: &str, shared: bool) -> BTreeSet<Told> {
    let sql = format!(
        "SELECT c.oid, pg_relation_filenode(c.oid),
           CASE WHEN reltablespace = 0 THEN dattablespace ELSE reltablespace END,
           relkind, relpersistence, relam, coalesce(indrelid, t.oid, 0),
           coalesce(indisvalid AND indisready AND indislive, false), nspname || '.' || c.relname
         FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
         JOIN pg_database d ON d.datname = current_database()
         LEFT JOIN pg_index ON indexrelid = c.oid
         LEFT JOIN (SELECT oid, reltoastrelid FROM pg_class WHERE reltoastrelid <> 0) t
           ON t.reltoastrelid = c.oid
         WHERE relkind IN ('r', 'i', 'S', 't', 'm') AND relisshared = {shared}"
    );
    let number = |text: &str| text.parse::<u32>().unwrap();
    let letter = |text: &str| text.chars().next().unwrap();
    rows(cluster, database, &sql)
        .into_iter()
        .map(|row| {
            (
                number(&row[0]),
                number(&row[1]),
                number(&row[2]),
                letter(&row[3]),
                letter(&row[4]),
                number(&row[5]),
                number(&row[6]),
                row[7] == "t",
                row[8].clone(),
            )
        })
        .collect()
}

fn told_by_files<'a>(
    relations: &'a Relations,
    chosen: impl Iterator<Item = &'a Relation>,
) -> BTreeSet<Told> {
    chosen
        .map(|one| {
            let kind = match one.kind {
                RelationKind::Table => 'r',
                RelationKind::Index => 'i',
                RelationKind::Sequence => 'S',
                RelationKind::Toast => 't',
                RelationKind::MaterialisedView => 'm',
            };
            let persistence = match one.persistence {
                Persistence::Permanent => 'p',
                Persistence::Unlogged => 'u',
                Persistence::Temporary => 't',
            };
            (
                one.oid,
                one.number,
                one.tablespace,
                kind,
                persistence,
                one.method,
                one.owner,
                one.is_complete_index,
                relations.name(one),
            )
        })
        .collect()
}

/// Names differ on purpose for TOAST, and in quotation marks.
fn with_server_names(told: BTreeSet<Told>) -> BTreeSet<Told> {
    let plain = |name: String| {
        let special = name.contains("pg_toast") || name.contains('"') || name.contains("TOAST");
        if special || name.starts_with("Other Schema") { String::new() } else { name }
    };
    told.into_iter()
        .map(|(a, b, c, d, e, f, g, h, name)| (a, b, c, d, e, f, g, h, plain(name)))
        .collect()
}

fn make(installation: &Installation) -> Cluster {
    let options = Options::default()
        .with("max_prepared_transactions", "10")
        .with("autovacuum", "off")
        .with("checkpoint_timeout", "1h");
    let mut cluster = Cluster::init(installation, &options).unwrap();
    cluster.start().unwrap();
    cluster.add_tablespace("space").unwrap();
    let mut script = SETTLED.to_vec();
    if installation.major >= 10 {
        script.extend(PARTITIONS);
    }
    for statements in script {
        cluster.psql(&format!("{statements};")).unwrap();
    }
    let failed = cluster.psql("CREATE UNIQUE INDEX CONCURRENTLY unfinished ON doubled (id);");
    assert!(failed.is_err());
    cluster.psql("CREATE DATABASE elsewhere TABLESPACE space;").unwrap();
    cluster.psql("CREATE DATABASE gone_database;").unwrap();
    cluster.psql("DROP DATABASE gone_database;").unwrap();
    cluster.psql_in("elsewhere", "CREATE TABLE far (id int PRIMARY KEY, word text);").unwrap();
    cluster.psql_in("elsewhere", "CREATE TABLE near (id int) TABLESPACE pg_default;").unwrap();
    cluster
}

/// The server's word, to be compared with what the files say later.
struct Expected {
    databases: Vec<(u32, String, u32, bool, bool)>,
    relations: Vec<(String, BTreeSet<Told>)>,
    shared: BTreeSet<Told>,
}

impl Expected {
    fn ask(cluster: &Cluster) -> Self {
        let databases = rows(
            cluster,
            "postgres",
            "SELECT oid, datname, dattablespace, datistemplate, datallowconn FROM pg_database
             ORDER BY oid::bigint",
        );
        let names = ["postgres", "elsewhere", "template1"];
        Self {
            databases: databases
                .iter()
                .map(|row| {
                    let number = |at: usize| row[at].parse().unwrap();
                    (number(0), row[1].clone(), number(2), row[3] == "t", row[4] == "t")
                })
                .collect(),
            relations: names
                .iter()
                .map(|name| (name.to_string(), told_by_server(cluster, name, false)))
                .collect(),
            shared: told_by_server(cluster, "postgres", true),
        }
    }

    /// Compares, and gives the relations of `postgres` for more.
    fn check(&self, catalogue: &Catalogue, moment: Moment, what: &str) -> Relations {
        let sure = match moment {
            Moment::AtRest => Certainty::Certain,
            Moment::Unrecovered | Moment::Running => Certainty::Visible,
        };
        let databases = catalogue.databases(moment);
        assert!(databases.gaps.is_empty(), "{what}: {:?}", databases.gaps);
        let found: Vec<_> = databases
            .listed
            .iter()
            .map(|one| {
                assert_eq!(one.certainty, sure, "{what}: {one:?}");
                assert!(!one.is_half_dropped, "{what}: {one:?}");
                let flags = (one.is_template, one.allows_connections);
                (one.oid, one.name.clone(), one.tablespace, flags.0, flags.1)
            })
            .collect();
        assert_eq!(found, self.databases, "{what}");

        let shared = catalogue.shared(&databases, moment);
        assert!(shared.gaps.is_empty(), "{what}: {:?}", shared.gaps);
        let found = with_server_names(told_by_files(&shared, shared.iter()));
        compare(&found, &with_server_names(self.shared.clone()), &format!("{what}, shared"));

        let mut of_postgres = None;
        for (name, expected) in &self.relations {
            let what = format!("{what}, database {name}");
            let database = databases.listed.iter().find(|one| one.name == *name).unwrap();
            let relations = catalogue.relations(database, moment);
            assert!(relations.gaps.is_empty(), "{what}: {:?}", relations.gaps);
            let is_wanted = |one: &&Relation| {
                // What is in doubt is compared only where the server shows it too.
                let in_doubt = one.certainty == Certainty::InDoubt;
                assert!(in_doubt || one.certainty == sure, "{what}: {one:?}");
                let name = relations.name(one);
                assert!(!name.contains("gone_"), "{what}: {name} {one:?}");
                !in_doubt && !name.contains("doubt_")
            };
            let found = told_by_files(&relations, relations.iter().filter(is_wanted));
            let expected: BTreeSet<_> =
                expected.iter().filter(|told| !told.8.contains("doubt_")).cloned().collect();
            compare(&with_server_names(found), &with_server_names(expected), &what);
            check_required(catalogue, database, &relations, &what);
            if name == "postgres" {
                of_postgres = Some(relations);
            }
        }
        of_postgres.unwrap()
    }
}

fn compare(found: &BTreeSet<Told>, expected: &BTreeSet<Told>, what: &str) {
    let missing: Vec<_> = expected.difference(found).collect();
    let extra: Vec<_> = found.difference(expected).collect();
    assert!(
        missing.is_empty() && extra.is_empty(),
        "{what}: not found {missing:?}, extra {extra:?}"
    );
}

/// Every file that must be there is there.
fn check_required(catalogue: &Catalogue, database: &Database, relations: &Relations, what: &str) {
    let mut count = 0;
    for required in relations.required() {
        let one = required.relation;
        let name = format!("{}{}", one.number, required.fork.suffix());
        let path = catalogue.folder(one.tablespace, database.oid).join(name);
        assert!(
            path.is_file() || required.certainty == Certainty::InDoubt,
            "{what}: {} of {}",
            path.display(),
            relations.name(one)
        );
        assert_eq!(
            required.fork == Fork::Init || required.may_be_reset,
            one.persistence == Persistence::Unlogged
        );
        count += 1;
    }
    assert!(count > 100, "{what}: {count}");
}

/// A session that stays open with what it did.
fn linger(cluster: &Cluster, sql: &str) -> Child {
    let script = format!("{sql}; SELECT pg_sleep(600) /* lingers */;");
    let mut command = cluster.client("psql").unwrap();
    command.args(["-X", "-q", "-c", &script]).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    // A script of several statements has one text: that it sleeps shows in its
    // locks on what it has made.
    let is_there = "SELECT count(*) > 0 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
                    WHERE query LIKE '%lingers%' AND pid <> pg_backend_pid()
                      AND mode = 'AccessExclusiveLock' AND locktype = 'relation'";
    let begin = Instant::now();
    while cluster.psql(&format!("{is_there};")).unwrap() != "t" {
        assert!(begin.elapsed() < Duration::from_secs(60), "the session does nothing");
        thread::sleep(Duration::from_millis(50));
    }
    // The last of its statements, but for the one that sleeps, is a moment's work.
    thread::sleep(Duration::from_millis(500));
    child
}

#[test]
fn relations_of_every_state_are_those_that_sql_lists() {
    for installation in installations() {
        let version = installation.version.clone();
        let mut cluster = make(&installation);
        let expected = Expected::ask(&cluster);

        cluster.psql("CHECKPOINT;").unwrap();
        expected.check(&catalogue(&cluster), Moment::Running, &format!("{version}, running"));

        // One transaction, so that the temporary table is open too.
        let open = "BEGIN; CREATE TEMP TABLE fleeting (id int PRIMARY KEY, word text); \
                    CREATE TABLE doubt_open (id int)";
        let mut session = linger(&cluster, open);
        cluster.psql("CHECKPOINT;").unwrap();
        cluster.stop(StopMode::Immediate).unwrap();
        session.kill().unwrap();
        session.wait().unwrap();
        let found = expected.check(
            &catalogue(&cluster),
            Moment::Unrecovered,
            &format!("{version}, crashed"),
        );
        let open = found.iter().find(|one| found.name(one) == "public.doubt_open");
        assert_eq!(open.map(|one| one.certainty), Some(Certainty::InDoubt), "{version}");

        cluster.start().unwrap();
        let expected = Expected::ask(&cluster);
        cluster.stop(StopMode::Fast).unwrap();
        let found =
            expected.check(&catalogue(&cluster), Moment::AtRest, &format!("{version}, stopped"));
        // What the crash cut short is dead now, without anyone having said so.
        assert!(found.iter().all(|one| one.certainty == Certainty::Certain), "{version}");
        let unfinished = found.iter().find(|one| found.name(one) == "public.unfinished").unwrap();
        assert!(!unfinished.is_complete_index, "{version}");
        assert!(found.heap_of(unfinished).is_none(), "{version}");
        let key = found.iter().find(|one| found.name(one) == "public.plain_pkey").unwrap();
        assert_eq!(
            found.heap_of(key).map(|heap| found.name(heap)),
            Some("public.plain".to_owned())
        );
        let quoted = found.iter().find(|one| found.name(one).starts_with("\"Other")).unwrap();
        assert_eq!(found.name(quoted), "\"Other Schema\".\"Table \"\"quoted\"\"\"", "{version}");
        let toast = found.iter().find(|one| found.name(one) == "public.plain (TOAST)").unwrap();
        assert_eq!(toast.kind, RelationKind::Toast);

        cluster.start().unwrap();
        for statements in PREPARED {
            cluster.psql(&format!("{statements};")).unwrap();
        }
        let expected = Expected::ask(&cluster);
        cluster.stop(StopMode::Fast).unwrap();
        let found =
            expected.check(&catalogue(&cluster), Moment::AtRest, &format!("{version}, prepared"));
        let in_doubt: BTreeSet<_> = found
            .iter()
            .filter(|one| one.certainty == Certainty::InDoubt)
            .map(|one| found.name(one))
            .collect();
        let wanted = ["doubt_dropped", "doubt_made", "doubt_made_by_child", "doubt_moved"];
        assert_eq!(in_doubt, wanted.map(|name| format!("public.{name}")).into(), "{version}");
        let moved = found.iter().filter(|one| found.name(one) == "public.doubt_moved");
        assert_eq!(moved.count(), 2, "{version}");
    }
}

/// A page of a catalogue that cannot be read takes its rows along, and says so.
#[test]
fn what_cannot_be_read_of_a_catalogue_is_a_gap() {
    for installation in installations() {
        let version = installation.version.clone();
        let options = Options::default().with("autovacuum", "off");
        let mut cluster = Cluster::init(&installation, &options).unwrap();
        cluster.start().unwrap();
        cluster.psql("CREATE TABLE plain (id int PRIMARY KEY, word text);").unwrap();
        cluster.psql("CREATE DATABASE unlucky;").unwrap();
        cluster
            .psql("UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'unlucky';")
            .unwrap();
        let path = cluster.relation_path("postgres", "pg_class").unwrap();
        let path = cluster.data_dir().join(path);
        cluster.stop(StopMode::Fast).unwrap();

        let catalogue = catalogue(&cluster);
        let databases = catalogue.databases(Moment::AtRest);
        let unlucky = databases.listed.iter().find(|one| one.name == "unlucky").unwrap();
        assert!(unlucky.is_half_dropped, "{version}");
        let database = databases.listed.iter().find(|one| one.name == "postgres").unwrap();
        let whole = catalogue.relations(database, Moment::AtRest);
        assert!(whole.gaps.is_empty(), "{version}: {:?}", whole.gaps);
        let last = whole.iter().map(|one| one.row_block).max().unwrap();
        let on_page = |block| whole.iter().filter(|one| one.row_block == block).count();

        let sound = fs::read(&path).unwrap();
        let page = last as usize * 8192;
        let mut failing = sound.clone();
        failing[page + 8000] ^= 1;
        let mut zeroed = sound.clone();
        zeroed[page..page + 8192].fill(0);
        let cut = sound[..page + 100].to_vec();
        for (bytes, reason) in
            [(failing, GapReason::Failing), (zeroed, GapReason::Empty), (cut, GapReason::Cut)]
        {
            fs::write(&path, bytes).unwrap();
            for moment in [Moment::AtRest, Moment::Unrecovered, Moment::Running] {
                let part = catalogue.relations(database, moment);
                let what = format!("{version}, {reason:?}, {moment:?}: {:?}", part.gaps);
                let gap = &part.gaps.listed[0];
                assert_eq!((gap.block, &gap.reason), (Some(last), &reason), "{what}");
                assert!(gap.to_string().contains(&format!("block {last}: ")), "{gap}");
                // Another version of a row may stand elsewhere, and be dead.
                assert!(part.count() >= whole.count() - on_page(last), "{what}");
                assert!(part.count() < whole.count(), "{what}");
            }
        }
        fs::remove_file(&path).unwrap();
        let none = catalogue.relations(database, Moment::AtRest);
        assert!(none.count() == 0 && !none.gaps.is_empty(), "{version}: {:?}", none.gaps);
        fs::write(&path, sound).unwrap();
        assert!(catalogue.relations(database, Moment::AtRest).gaps.is_empty(), "{version}");
        fs::remove_file(path.parent().unwrap().join("pg_filenode.map")).unwrap();
        let none = catalogue.relations(database, Moment::AtRest);
        assert!(none.count() == 0 && !none.gaps.is_empty(), "{version}: {:?}", none.gaps);
    }
}

/// Nothing that stands still is lost while all around it moves.
#[test]
fn relations_that_stay_are_found_while_others_come_and_go() {
    for installation in installations() {
        let version = installation.version.clone();
        let mut cluster = Cluster::init(&installation, &Options::default()).unwrap();
        cluster.start().unwrap();
        cluster.psql("CREATE TABLE plain (id int PRIMARY KEY, word text); CHECKPOINT;").unwrap();
        let catalogue = catalogue(&cluster);
        let script = "VACUUM FULL pg_class; CREATE TABLE coming (id int PRIMARY KEY, word text);
                      ALTER TABLE coming ADD more text; VACUUM FULL pg_index; DROP TABLE coming;
                      VACUUM FULL pg_namespace; CREATE TABLE other (id int); CHECKPOINT;
                      DROP TABLE other; VACUUM pg_class;";
        let cluster = &cluster;
        thread::scope(|scope| {
            let mover = scope.spawn(move || {
                for _ in 0..15 {
                    cluster.psql(script).unwrap();
                }
            });
            let (mut looks, mut gaps) = (0, 0);
            while !mover.is_finished() || looks == 0 {
                let databases = catalogue.databases(Moment::Running);
                let database = databases.listed.iter().find(|one| one.name == "postgres").unwrap();
                let relations = catalogue.relations(database, Moment::Running);
                looks += 1;
                if !relations.gaps.is_empty() {
                    gaps += 1;
                    continue;
                }
                let plain = relations.iter().find(|one| relations.name(one).ends_with(".plain"));
                assert!(plain.is_some(), "{version}, look {looks}: {}", relations.count());
            }
            assert!(gaps < looks, "{version}: {gaps} of {looks}");
            println!("{version}: {gaps} of {looks} looks had gaps");
        });
    }
}
