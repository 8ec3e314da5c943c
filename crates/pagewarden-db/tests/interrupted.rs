//! Statements over whole tables, which send nothing until they are done: who no longer wants
//! them has the server end them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use pagewarden_db::checksum::{Function, Strategy, checksum};
use pagewarden_db::engine::interrupt::interruptible;
use pagewarden_db::engine::{Connection, Hashing, Query, Range};
use pagewarden_db::error::{Error, Result};
use pagewarden_db::table::{Table, TableName};

use crate::servers::{Database, KINDS, Kind};

/// A database, and a table of it through which no server comes in days.
fn endless(kind: Kind) -> Option<(Database, Table)> {
    let database = Database::new(kind)?;
    database.run("CREATE TABLE t (id int, word varchar(20))");
    let name = TableName { schema: None, name: "t".to_owned() };
    let mut table = database.connect().describe(&name).unwrap();
    table.engine = match kind {
        Kind::Postgres => {
            "(SELECT 1 AS id, 'w' AS word FROM generate_series(1, 1000000) a, \
             generate_series(1, 1000000) b) t"
        }
        Kind::Mariadb => {
            "(SELECT 1 AS id, 'w' AS word FROM seq_1_to_1000000 a, seq_1_to_1000000 b) t"
        }
        Kind::Sqlite => {
            "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
             SELECT i AS id, 'w' AS word FROM n) t"
        }
    }
    .to_owned();
    Some((database, table))
}

/// Fails unless the work ends as one that was stopped, and the connection is as good as new.
fn assert_ended(
    kind: Kind,
    work: impl FnOnce(
        &mut dyn Connection,
        &Table,
        &(dyn Fn(u64, u64) -> Result<()> + Sync),
    ) -> Result<()>
    + Send
    + 'static,
) {
    let Some((database, table)) = endless(kind) else { return };
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let mut connection = database.connect();
        let asked = AtomicU32::new(0);
        // The first question comes before the statement, the others while it runs.
        let tell = |_, _| match asked.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Ok(()),
            _ => Err(Error::Stopped),
        };
        let result = work(connection.as_mut(), &table, &tell);
        let _ = done.send((result, connection.tables()));
    });
    let (result, tables) = ended.recv_timeout(Duration::from_secs(60)).expect("it still runs");
    assert!(matches!(result, Err(Error::Stopped)), "{kind:?}: {result:?}");
    assert_eq!(tables.unwrap().len(), 1, "{kind:?}");
}

#[test]
fn sums_of_whole_tables_are_ended_on_the_server() {
    for kind in KINDS {
        assert_ended(kind, |connection, table, tell| {
            let columns = [(0, table.columns[0].form.clone()), (1, table.columns[1].form.clone())];
            let range = Range::default();
            let query = Query::of(table, &columns, &range);
            let sum = |connection: &mut dyn Connection| connection.sums(&query, Hashing::Portable);
            interruptible(connection, tell, sum).map(|_| ())
        });
    }
}

#[test]
fn checksums_of_whole_tables_are_ended_on_the_server() {
    for kind in KINDS {
        assert_ended(kind, |connection, table, tell| {
            checksum(connection, table, Strategy::Count, Function::Md5, tell).map(|_| ())
        });
    }
    assert_ended(Kind::Mariadb, |connection, table, tell| {
        checksum(connection, table, Strategy::Accum, Function::Md5, tell).map(|_| ())
    });
}
