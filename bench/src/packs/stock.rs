//! TPC-C's table of stock, in SQLite: the table that a read-only database was compressed with.
//!
//! Its strings are random characters, as the specification wants them, which hardly compress, or
//! made of 64 words, which do. Rows lie in the order of the key, as they do in a server whose
//! tables are clustered.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, params};

/// Rows of one warehouse.
pub const ITEMS: u32 = 100_000;

/// What the strings are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Strings {
    /// Letters and digits at random: nearly as large when compressed
    Random,
    /// Words out of 64: a third when compressed
    Words,
}

impl Strings {
    /// As the tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Words => "words",
        }
    }
}

const CREATE: &str = "
    PRAGMA page_size = 4096; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
    CREATE TABLE stock (
        s_i_id INTEGER, s_w_id INTEGER, s_quantity INTEGER,
        s_dist_01 TEXT, s_dist_02 TEXT, s_dist_03 TEXT, s_dist_04 TEXT, s_dist_05 TEXT,
        s_dist_06 TEXT, s_dist_07 TEXT, s_dist_08 TEXT, s_dist_09 TEXT, s_dist_10 TEXT,
        s_ytd INTEGER, s_order_cnt INTEGER, s_remote_cnt INTEGER, s_data TEXT,
        PRIMARY KEY (s_w_id, s_i_id)) WITHOUT ROWID";
const DISTRICTS: usize = 10;
const DISTRICT_BYTES: usize = 24;
const DATA_BYTES: std::ops::RangeInclusive<u32> = 26..=50;
const SYMBOLS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const WORDS: &str = "amber anchor apple arrow autumn basin beacon birch bridge candle canyon \
    cedar cloud cobalt copper coral crystal delta desert ember falcon feather fern field flint \
    forest frost garden glacier granite harbor hazel hollow island ivory jasper juniper lantern \
    lemon linen maple marble meadow mercury mirror north oak ocean olive opal orchard pebble pine \
    quartz raven river saffron silver spruce stone summit thunder velvet willow";

/// Makes a database of so many warehouses at `path`.
pub fn make(path: &Path, warehouses: u32, strings: Strings) -> anyhow::Result<()> {
    let mut connection = Connection::open(path)?;
    connection.execute_batch(CREATE)?;
    let mut random = Random(0x5eed);
    let transaction = connection.transaction()?;
    {
        let text = "INSERT INTO stock VALUES
            (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, 0, 0, 0, ?14)";
        let mut insert = transaction.prepare(text)?;
        for warehouse in 1..=warehouses {
            for item in 1..=ITEMS {
                insert.raw_bind_parameter(1, item)?;
                insert.raw_bind_parameter(2, warehouse)?;
                insert.raw_bind_parameter(3, random.below(91).saturating_add(10))?;
                for district in 0..DISTRICTS {
                    let text = random.text(strings, DISTRICT_BYTES);
                    insert.raw_bind_parameter(district + 4, text)?;
                }
                let spread = DATA_BYTES.end() - DATA_BYTES.start() + 1;
                let bytes = usize::try_from(DATA_BYTES.start() + random.below(spread))?;
                insert.raw_bind_parameter(DISTRICTS + 4, random.text(strings, bytes))?;
                insert.raw_execute()?;
            }
        }
    }
    transaction.commit()?;
    Ok(())
}

/// Opens a database that nobody writes to.
pub fn open(uri: &str) -> anyhow::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Ok(Connection::open_with_flags(uri, flags)?)
}

/// The scan: how many rows, and a sum over them.
pub fn scan(connection: &Connection) -> anyhow::Result<(i64, i64)> {
    let query = "SELECT count(*), sum(s_quantity) FROM stock";
    Ok(connection.query_row(query, params![], |row| Ok((row.get(0)?, row.get(1)?)))?)
}

/// Looks rows up by their keys, as Order-Status and its kin do, and gives the time of each.
pub fn look_up(connection: &Connection, count: u32, seed: u64) -> anyhow::Result<Vec<f64>> {
    let warehouses: u32 =
        connection.query_row("SELECT max(s_w_id) FROM stock", params![], |row| row.get(0))?;
    let query = "SELECT s_quantity, s_dist_01, s_data FROM stock WHERE s_w_id = ?1 AND s_i_id = ?2";
    let mut select = connection.prepare(query)?;
    let mut random = Random(seed);
    let mut seconds = Vec::new();
    for _ in 0..count {
        let warehouse = random.below(warehouses) + 1;
        let item = random.below(ITEMS) + 1;
        let begin = std::time::Instant::now();
        let data: String = select.query_row(params![warehouse, item], |row| row.get(2))?;
        seconds.push(begin.elapsed().as_secs_f64());
        anyhow::ensure!(!data.is_empty(), "a row without its text");
    }
    Ok(seconds)
}

/// SplitMix64: the same table in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.next() % u64::from(bound.max(1))).unwrap_or(0)
    }

    fn text(&mut self, strings: Strings, bytes: usize) -> String {
        let mut text = String::new();
        match strings {
            Strings::Random => {
                while text.len() < bytes {
                    let symbol = SYMBOLS.get(usize::try_from(self.below(62)).unwrap_or(0));
                    text.extend(symbol.copied().map(char::from));
                }
            }
            Strings::Words => {
                while text.len() < bytes {
                    let place = usize::try_from(self.below(64)).unwrap_or(0);
                    text.push_str(WORDS.split_ascii_whitespace().nth(place).unwrap_or("oak"));
                    text.push(' ');
                }
                text.truncate(bytes);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stock_is_made_scanned_and_looked_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stock.db");
        make(&path, 1, Strings::Words).unwrap();
        let connection = open(&format!("file:{}?mode=ro", path.display())).unwrap();
        let (rows, sum) = scan(&connection).unwrap();
        assert_eq!(rows, i64::from(ITEMS));
        assert!(sum > rows * 10, "{sum}");
        assert_eq!(look_up(&connection, 50, 7).unwrap().len(), 50);
    }

    #[test]
    fn there_are_sixty_four_words() {
        assert_eq!(WORDS.split_ascii_whitespace().count(), 64);
    }
}
