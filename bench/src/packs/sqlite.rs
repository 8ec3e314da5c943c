//! The table of stock in SQLite, clustered by its key, and what is asked of it by a process of its
//! own.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::ensure;
use rusqlite::{Connection, OpenFlags, params};

use crate::packs::making::Made;
use crate::packs::question::{Answer, Question};
use crate::packs::stock::{self, DISTRICTS, Strings};
use crate::packs::store::{Kept, Kind, Store};
use crate::packs::subject::Subject;
use crate::packs::throttle::Throttle;

const DATABASE: &str = "stock.db";
const CREATE: &str = "
    PRAGMA page_size = 4096; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
    CREATE TABLE stock (
        s_i_id INTEGER, s_w_id INTEGER, s_quantity INTEGER,
        s_dist_01 TEXT, s_dist_02 TEXT, s_dist_03 TEXT, s_dist_04 TEXT, s_dist_05 TEXT,
        s_dist_06 TEXT, s_dist_07 TEXT, s_dist_08 TEXT, s_dist_09 TEXT, s_dist_10 TEXT,
        s_ytd INTEGER, s_order_cnt INTEGER, s_remote_cnt INTEGER, s_data TEXT,
        PRIMARY KEY (s_w_id, s_i_id)) WITHOUT ROWID";

/// A database that is one file.
#[derive(Debug)]
pub struct Sqlite {
    kept: Kept,
}

impl Sqlite {
    /// Makes it in a folder.
    pub fn make(folder: &Path, warehouses: u32, strings: Strings) -> anyhow::Result<Self> {
        let path = folder.join(DATABASE);
        fill(&path, warehouses, strings)?;
        let kept = Kept {
            folder: folder.to_owned(),
            name: DATABASE.into(),
            pack: vec![path.into()],
            is_writable: false,
        };
        Ok(Self { kept })
    }
}

impl Subject for Sqlite {
    fn kept(&self) -> &Kept {
        &self.kept
    }

    fn made(&self, _: &Path) -> Made {
        Made {
            folder: self.kept.folder.clone(),
            names: vec![DATABASE.into()],
            source: self.kept.folder.join(DATABASE),
            unpack: Vec::new(),
        }
    }

    fn answers_from(&self, _: &Kind) -> bool {
        true
    }

    fn begin(&mut self, _: &Store, _: &Throttle) -> anyhow::Result<()> {
        Ok(())
    }

    fn ask(
        &mut self,
        store: &Store,
        throttle: &Throttle,
        question: Question,
        again: bool,
    ) -> anyhow::Result<Answer> {
        let plain = || format!("file:{}?immutable=1", store.files().join(DATABASE).display());
        let uri = store.linked().unwrap_or_else(plain);
        let mut command = throttle.command(&std::env::current_exe()?);
        command.arg("query").arg(&uri);
        if let Question::Lookups { count, seed } = question {
            command.args(["--lookups", &count.to_string(), "--seed", &seed.to_string()]);
        }
        if again {
            command.arg("--again");
        }
        let output = command.stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "{uri}: {}", String::from_utf8_lossy(&output.stderr));
        Answer::parse(&String::from_utf8(output.stdout)?)
    }

    fn end(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// The hidden command that is asked.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    uri: String,
    #[arg(long, default_value_t = 0)]
    lookups: u32,
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Ask twice, and tell of the second time
    #[arg(long)]
    again: bool,
}

/// Asks in this process, and prints the answer.
#[allow(clippy::print_stdout)]
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    pagewarden_sqlite::register()?;
    let connection = open(&arguments.uri)?;
    // The schema is read before the clock starts.
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))?;
    let question = || -> anyhow::Result<_> {
        Ok(match arguments.lookups {
            0 => (scan(&connection)?, Vec::new()),
            count => ((0, 0), look_up(&connection, count, arguments.seed)?),
        })
    };
    if arguments.again {
        question()?;
    }
    let begin = Instant::now();
    let (rows, times) = question()?;
    println!("{}", Answer::new(begin.elapsed(), times, rows));
    Ok(())
}

fn fill(path: &Path, warehouses: u32, strings: Strings) -> anyhow::Result<()> {
    let mut connection = Connection::open(path)?;
    connection.execute_batch(CREATE)?;
    let transaction = connection.transaction()?;
    {
        let text = "INSERT INTO stock VALUES
            (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, 0, 0, 0, ?14)";
        let mut insert = transaction.prepare(text)?;
        for row in stock::rows(warehouses, strings) {
            insert.raw_bind_parameter(1, row.item)?;
            insert.raw_bind_parameter(2, row.warehouse)?;
            insert.raw_bind_parameter(3, row.quantity)?;
            for (text, place) in row.districts.iter().zip(4..) {
                insert.raw_bind_parameter(place, text)?;
            }
            insert.raw_bind_parameter(DISTRICTS + 4, row.data)?;
            insert.raw_execute()?;
        }
    }
    transaction.commit()?;
    Ok(())
}

/// Opens a database that no process writes to.
fn open(uri: &str) -> anyhow::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Ok(Connection::open_with_flags(uri, flags)?)
}

/// How many rows, and a sum over them.
fn scan(connection: &Connection) -> anyhow::Result<(i64, i64)> {
    let query = "SELECT count(*), sum(s_quantity) FROM stock";
    Ok(connection.query_row(query, params![], |row| Ok((row.get(0)?, row.get(1)?)))?)
}

/// Looks rows up by their keys, and gives the seconds that each took.
fn look_up(connection: &Connection, count: u32, seed: u64) -> anyhow::Result<Vec<f64>> {
    let warehouses: u32 =
        connection.query_row("SELECT max(s_w_id) FROM stock", params![], |row| row.get(0))?;
    let query = "SELECT s_quantity, s_dist_01, s_data FROM stock WHERE s_w_id = ?1 AND s_i_id = ?2";
    let mut select = connection.prepare(query)?;
    let mut seconds = Vec::new();
    for (warehouse, item) in stock::keys(warehouses, count, seed) {
        let begin = Instant::now();
        let data: String = select.query_row(params![warehouse, item], |row| row.get(2))?;
        seconds.push(begin.elapsed().as_secs_f64());
        ensure!(!data.is_empty(), "a row without its text");
    }
    Ok(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packs::stock::ITEMS;

    #[test]
    fn stock_is_made_scanned_and_looked_up() {
        let folder = tempfile::tempdir().unwrap();
        let made = Sqlite::make(folder.path(), 1, Strings::Words).unwrap();
        let path = made.kept.folder.join(DATABASE);
        let connection = open(&format!("file:{}?mode=ro", path.display())).unwrap();
        let (rows, sum) = scan(&connection).unwrap();
        assert_eq!(rows, i64::from(ITEMS));
        assert!(sum > rows * 10, "{sum}");
        assert_eq!(look_up(&connection, 50, 7).unwrap().len(), 50);
    }
}
