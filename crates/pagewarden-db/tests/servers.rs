//! One PostgreSQL and one MariaDB for all tests, each test with databases of its own.
//!
//! Their defaults are hostile: what a session does not set for itself is wrong.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pagewarden_db::compare::mode::Mode;
use pagewarden_db::compare::report::{Outcome, TableReport, Verdict, verdict};
use pagewarden_db::compare::state::{Asked, place};
use pagewarden_db::compare::{Options, Request, Watch, compare};
use pagewarden_db::engine::{self, Connection};
use pagewarden_db::location::Location;
use pagewarden_scratch::mariadb::{self, Server};
use pagewarden_scratch::postgres::{self, Cluster};
use tempfile::TempDir;

/// Statements of the MariaDB client run under these.
const PLAIN_SESSION: &str = "SET NAMES utf8mb4; SET SESSION sql_mode = ''; \
    SET SESSION time_zone = '+00:00'; SET SESSION sql_select_limit = DEFAULT;\n";

/// Those that there are.
pub struct Servers {
    postgres: Option<Cluster>,
    mariadb: Option<Server>,
}

/// The servers, started once.
pub fn servers() -> &'static Servers {
    static SERVERS: OnceLock<Servers> = OnceLock::new();
    SERVERS.get_or_init(|| Servers { postgres: start_postgres(), mariadb: start_mariadb() })
}

fn start_postgres() -> Option<Cluster> {
    // One version; its client programs may be those of another.
    let version = std::env::var("PAGEWARDEN_TEST_POSTGRES").unwrap_or_else(|_| "15".to_owned());
    let installation = postgres::Installation::for_test(&version).unwrap()?;
    let options = postgres::Options::default()
        .with("timezone", "'Asia/Kathmandu'")
        .with("datestyle", "'German, DMY'")
        .with("intervalstyle", "'sql_standard'")
        .with("extra_float_digits", "-10")
        .with("bytea_output", "'escape'")
        .with("client_encoding", "'LATIN1'")
        .with("standard_conforming_strings", "off")
        .with("search_path", "'nowhere'")
        .with("default_transaction_isolation", "'serializable'")
        .with("statement_timeout", "'20s'");
    let mut cluster = Cluster::init(&installation, &options).unwrap();
    cluster.start().unwrap();
    Some(cluster)
}

fn start_mariadb() -> Option<Server> {
    let installation = mariadb::Installation::for_test().unwrap()?;
    let options = [
        "character-set-server=latin1",
        "default_time_zone=-07:30",
        "sql-mode=ANSI_QUOTES,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT",
        "max-statement-time=20",
    ];
    let mut server = Server::install(&installation, &options).unwrap();
    server.start().unwrap();
    server.sql("SET GLOBAL sql_select_limit = 3").unwrap();
    Some(server)
}

/// A database of a test.
pub struct Database {
    /// Its URL.
    pub url: String,
    kind: Kind,
    name: String,
    folder: Option<TempDir>,
}

/// Which engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Postgres,
    Mariadb,
    Sqlite,
}

/// All engines.
pub const KINDS: [Kind; 3] = [Kind::Postgres, Kind::Mariadb, Kind::Sqlite];

/// All ways to compare.
pub const MODES: [Mode; 4] = [Mode::Auto, Mode::Stream, Mode::Native, Mode::Pushdown];

impl Database {
    /// A new database, unless its server is not here.
    pub fn new(kind: Kind) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let mut folder = None;
        let url = match kind {
            Kind::Postgres => {
                let cluster = servers().postgres.as_ref()?;
                let sql = format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'");
                cluster.psql(&sql).unwrap();
                cluster.url(&name)
            }
            Kind::Mariadb => {
                let server = servers().mariadb.as_ref()?;
                server.sql(&format!("CREATE DATABASE {name}")).unwrap();
                server.url(&name)
            }
            Kind::Sqlite => {
                let directory = tempfile::tempdir().unwrap();
                let path = directory.path().join("test.db");
                rusqlite::Connection::open(&path).unwrap().execute_batch("VACUUM").unwrap();
                folder = Some(directory);
                format!("sqlite:{}", path.display())
            }
        };
        Some(Self { url, kind, name, folder })
    }

    /// SQLite's file.
    pub fn path(&self) -> PathBuf {
        self.folder.as_ref().unwrap().path().join("test.db")
    }

    /// Runs statements under plain settings.
    pub fn run(&self, sql: &str) {
        match self.kind {
            Kind::Postgres => {
                let settings = "SET search_path = public; SET standard_conforming_strings = on; \
                     SET client_encoding = 'UTF8'; SET timezone = 'UTC'; SET datestyle = 'ISO, YMD';\n";
                let cluster = servers().postgres.as_ref().unwrap();
                cluster.psql_in(&self.name, &format!("{settings}{sql}")).unwrap();
            }
            Kind::Mariadb => {
                let server = servers().mariadb.as_ref().unwrap();
                server.sql(&format!("{PLAIN_SESSION}USE {};\n{sql}", self.name)).unwrap();
            }
            Kind::Sqlite => {
                let database = rusqlite::Connection::open(self.path()).unwrap();
                database.execute_batch(sql).unwrap();
            }
        }
    }

    /// PostgreSQL's answer to a statement: a line a row, `|` between its values.
    pub fn ask(&self, sql: &str) -> String {
        let cluster = servers().postgres.as_ref().unwrap();
        cluster.psql_in(&self.name, &format!("SET search_path = public;\n{sql}")).unwrap()
    }

    /// Where it is.
    pub fn location(&self) -> Location {
        Location::parse(&self.url).unwrap()
    }

    /// A connection to it.
    pub fn connect(&self) -> Box<dyn Connection> {
        let location = self.location();
        (engine::of(&location).unwrap().connect)(&location).unwrap()
    }

    /// The same database as another user.
    pub fn location_of(&self, user: &str) -> Location {
        Location { user: Some(user.to_owned()), ..self.location() }
    }
}

/// How tests compare: databases at rest, small parts.
pub fn request(source: &Database, target: &Database) -> Request {
    Request {
        source: source.location(),
        target: target.location(),
        tables: Vec::new(),
        excluded_tables: Vec::new(),
        excluded_columns: Vec::new(),
        key: Vec::new(),
        jobs: NonZero::<usize>::MIN,
        options: Options {
            frozen: false,
            settle: Duration::from_millis(100),
            patience: Duration::from_secs(5),
            listed_max: 100,
            chunk_rows: Some(7),
            mode: Mode::Auto,
        },
    }
}

/// What a state keeps of a request.
pub fn asked(request: &Request) -> Asked {
    Asked {
        source: place(&request.source),
        targets: vec![place(&request.target)],
        tables: Vec::new(),
        excluded_tables: Vec::new(),
        excluded_columns: Vec::new(),
        differences: request.options.listed_max,
        mode: request.options.mode,
    }
}

/// Runs a comparison to its end.
pub fn run(request: &Request) -> Outcome {
    let watch = Watch { tell: &|_, _| Ok(()), begin: &|_| {}, advance: &|_| {} };
    let mut seen = 0;
    let outcome = compare(request, &watch, &mut |_| seen += 1).unwrap();
    assert_eq!(seen, outcome.tables.len());
    outcome
}

/// The only table of a comparison.
pub fn only(outcome: &Outcome) -> &TableReport {
    assert_eq!(outcome.tables.len(), 1, "{outcome:?}");
    &outcome.tables[0]
}

/// Fails unless everything is equal.
pub fn assert_equal(outcome: &Outcome) {
    assert_eq!(verdict(outcome.tables.iter()), Verdict::Equal, "{outcome:#?}");
}
