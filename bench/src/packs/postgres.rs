//! The table of stock in PostgreSQL: with its index in a tablespace, all frozen, so that nothing of
//! it is ever written. Each store keeps the files of the tablespace; the rest of the cluster stays
//! where it is, and its link to the tablespace is set to the store that is asked.
//!
//! One backend reads, without parallel workers, and with 16 MB of shared buffers: what is measured
//! is where the files lie. The server is started anew on each store.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use pagewarden_scratch::postgres::{Cluster, Options, StopMode};
use postgres::{Client, NoTls};

use crate::packs::making::Made;
use crate::packs::question::{Answer, Question};
use crate::packs::stock::{self, Strings};
use crate::packs::store::{Kept, Kind, Store};
use crate::packs::subject::Subject;
use crate::packs::throttle::Throttle;
use crate::subject;

const SPACE: &str = "stock_space";
const SETTINGS: [(&str, &str); 8] = [
    ("autovacuum", "off"),
    ("jit", "off"),
    ("maintenance_work_mem", "256MB"),
    ("max_parallel_workers_per_gather", "0"),
    ("max_wal_senders", "0"),
    ("min_wal_size", "32MB"),
    ("synchronize_seqscans", "off"),
    // What is loaded into a table of the same transaction is not logged.
    ("wal_level", "minimal"),
];
const CREATE: &str = "
    CREATE TABLE stock (
        s_i_id int, s_w_id int, s_quantity int,
        s_dist_01 char(24), s_dist_02 char(24), s_dist_03 char(24), s_dist_04 char(24),
        s_dist_05 char(24), s_dist_06 char(24), s_dist_07 char(24), s_dist_08 char(24),
        s_dist_09 char(24), s_dist_10 char(24),
        s_ytd int, s_order_cnt int, s_remote_cnt int, s_data varchar(50)) TABLESPACE stock_space";
const INDEX: &str =
    "ALTER TABLE stock ADD PRIMARY KEY (s_w_id, s_i_id) USING INDEX TABLESPACE stock_space";
const SCAN: &str = "SELECT count(*), sum(s_quantity) FROM stock";
const LOOKUP: &str =
    "SELECT s_quantity, s_dist_01, s_data FROM stock WHERE s_w_id = $1 AND s_i_id = $2";

const OPEN_FOR_READING: &str = include_str!("open_for_reading.c");

/// A cluster whose tablespace lies in stores.
#[derive(Debug)]
pub struct Postgres {
    cluster: Cluster,
    kept: Kept,
    /// In the cluster, to its tablespace.
    link: PathBuf,
    warehouses: u32,
    opens_for_reading: bool,
}

impl Postgres {
    /// Makes a cluster of this version.
    pub fn make(version: &str, warehouses: u32, strings: Strings) -> anyhow::Result<Self> {
        let options = SETTINGS
            .iter()
            .fold(Options::default(), |options, (name, value)| options.with(name, value));
        let mut cluster = Cluster::init(&subject::postgres(version)?, &options)?;
        cluster.start()?;
        let folder = cluster.add_tablespace(SPACE)?;
        fill(&mut client(&cluster)?, warehouses, strings)?;
        cluster.stop(StopMode::Fast)?;
        let only = |folder: &Path| {
            let entry = fs::read_dir(folder)?.next().transpose()?;
            entry.with_context(|| format!("there is nothing in {}", folder.display()))
        };
        let link = only(&cluster.data_dir().join("pg_tblspc"))?.path();
        let name = only(&folder)?.file_name();
        let pack = vec!["--tablespace".into(), SPACE.into(), cluster.data_dir().into()];
        let kept = Kept { folder, name, pack, is_writable: true };
        let library = open_for_reading(cluster.home());
        let opens_for_reading = library.is_some();
        if let Some(library) = library {
            cluster.preload(library);
        }
        Ok(Self { cluster, kept, link, warehouses, opens_for_reading })
    }

    fn answer(&self, question: Question) -> anyhow::Result<Answer> {
        let mut client = client(&self.cluster)?;
        let mut times = Vec::new();
        let mut rows = (0, 0);
        // What the catalogue says of the table is read before the clock starts.
        let scan = client.prepare(SCAN)?;
        let lookup = client.prepare(LOOKUP)?;
        let begin = Instant::now();
        match question {
            Question::Scan => {
                let row = client.query_one(&scan, &[])?;
                rows = (row.try_get(0)?, row.try_get(1)?);
            }
            Question::Lookups { count, seed } => {
                for (warehouse, item) in stock::keys(self.warehouses, count, seed) {
                    let (warehouse, item) = (i32::try_from(warehouse)?, i32::try_from(item)?);
                    let begin = Instant::now();
                    let row = client.query_one(&lookup, &[&warehouse, &item])?;
                    times.push(begin.elapsed().as_secs_f64());
                    ensure!(!row.try_get::<_, String>(2)?.is_empty(), "a row without its text");
                }
            }
        }
        Ok(Answer::new(begin.elapsed(), times, rows))
    }

    fn link_to(&self, folder: &Path) -> anyhow::Result<()> {
        fs::remove_file(&self.link)?;
        symlink(folder, &self.link)
            .with_context(|| format!("cannot make the link {}", self.link.display()))
    }
}

impl Subject for Postgres {
    fn kept(&self) -> &Kept {
        &self.kept
    }

    fn made(&self, folder: &Path) -> Made {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_owned();
        let mut mapping = self.kept.folder.clone().into_os_string();
        mapping.push("=");
        mapping.push(folder.join("tablespace"));
        Made {
            folder: self.cluster.home().to_owned(),
            names: vec![name(self.cluster.data_dir()), name(&self.kept.folder)],
            source: self.cluster.data_dir().to_owned(),
            unpack: vec!["--tablespace-mapping".into(), mapping],
        }
    }

    fn answers_from(&self, kind: &Kind) -> bool {
        !kind.is_linked() && (self.opens_for_reading || !kind.is_read_only())
    }

    fn begin(&mut self, store: &Store, throttle: &Throttle) -> anyhow::Result<()> {
        self.link_to(&store.files())?;
        self.cluster.start()?;
        let server = self.cluster.postmaster_pid().context("the server is gone")?;
        throttle.take_in(server)
    }

    fn ask(
        &mut self,
        _: &Store,
        _: &Throttle,
        question: Question,
        again: bool,
    ) -> anyhow::Result<Answer> {
        if again {
            self.answer(question)?;
        }
        self.answer(question)
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.cluster.stop(StopMode::Fast)?;
        self.link_to(&self.kept.folder)
    }
}

fn client(cluster: &Cluster) -> anyhow::Result<Client> {
    Ok(Client::connect(&cluster.connection_string("postgres"), NoTls)?)
}

fn fill(client: &mut Client, warehouses: u32, strings: Strings) -> anyhow::Result<()> {
    let mut transaction = client.transaction()?;
    transaction.batch_execute(CREATE)?;
    let mut writer = transaction.copy_in("COPY stock FROM STDIN (FREEZE)")?;
    for row in stock::rows(warehouses, strings) {
        write!(writer, "{}\t{}\t{}", row.item, row.warehouse, row.quantity)?;
        for text in &row.districts {
            write!(writer, "\t{text}")?;
        }
        writeln!(writer, "\t0\t0\t0\t{}", row.data)?;
    }
    writer.finish()?;
    transaction.batch_execute(INDEX)?;
    transaction.commit()?;
    client.batch_execute("VACUUM (FREEZE, ANALYZE) stock")?;
    client.batch_execute("CHECKPOINT")?;
    Ok(())
}

/// The library that lets a server read from what cannot be written; `None`, said aloud, where
/// there is no compiler for it.
#[allow(clippy::print_stdout)]
fn open_for_reading(folder: &Path) -> Option<PathBuf> {
    let (source, library) = (folder.join("open.c"), folder.join("open.so"));
    let compiled = fs::write(&source, OPEN_FOR_READING).and_then(|()| {
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl");
        command.status()
    });
    if compiled.is_ok_and(|status| status.success()) {
        return Some(library);
    }
    println!("squashfs and erofs are left out: there is no C compiler for what they need");
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packs::stock::ITEMS;

    #[test]
    fn stock_is_made_scanned_and_looked_up() {
        const VERSION: &str = "15";
        let installation = pagewarden_scratch::postgres::Installation::for_test(VERSION).unwrap();
        if installation.is_none() {
            return;
        }
        let mut made = Postgres::make(VERSION, 1, Strings::Words).unwrap();
        let store = made.cluster.home().join("store");
        fs::rename(&made.kept.folder, &store).unwrap();
        // Where the files were is nothing any longer.
        made.link_to(&store).unwrap();
        made.cluster.start().unwrap();
        let (rows, sum) = made.answer(Question::Scan).unwrap().rows;
        assert_eq!(rows, i64::from(ITEMS));
        assert!(sum > rows * 10, "{sum}");
        let looked_up = made.answer(Question::Lookups { count: 50, seed: 7 }).unwrap();
        assert!(0.0 < looked_up.p50 && looked_up.p50 <= looked_up.p99, "{looked_up:?}");
    }
}
