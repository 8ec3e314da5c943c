//! E0 on MariaDB: a loop of point selects and inserts in one session.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use pagewarden_scratch::mariadb::{Installation, Server};

use crate::cost::decision::{Decides, INNODB_ALGORITHM};
use crate::cost::experiment::{
    Arm, Better, Description, Experiment, Form, Kind, Lab, Metric, Prepared, Reading, SeedFigure,
};
use crate::cost::{program, server_cpu};

/// See [`DESCRIPTION`].
#[derive(Debug)]
pub struct PointLoop;

/// A buffer pool smaller than the table, so that pages are read, verified,
/// stamped and written.
const OPTIONS: &[&str] = &["innodb_buffer_pool_size=16M", "innodb_log_file_size=256M"];
const FLUSHED: &str = "each step flushed to disk";
const NOT_FLUSHED: &str = "not flushed";
const DATABASE: &str = "cost";

static DESCRIPTION: Description = Description {
    name: "e0-mariadb",
    title: "a loop of point selects and inserts on MariaDB",
    question: "Does it matter to a mixed loop which checksum InnoDB uses?",
    seed: "PAGE_VERIFY modes of SQL Server, 30 runs of 1 million steps: medians 1053 s (NONE), 1051.5 s (TORN), 1060.5 s (CHECKSUM)",
    by_hand: "\
1. mariadb-install-db into an empty directory; copy it twice with cp -a.
2. Start one copy with innodb_checksum_algorithm=crc32, the other with full_crc32, both with
   innodb_buffer_pool_size=16M. (Since 10.6 MariaDB has no NONE to compare with.)
3. In both alike: CREATE TABLE item (id INT PRIMARY KEY, body TEXT), 2 million rows of 96 characters, and an empty
   table journal. A table keeps the layout under which it was made, so the tables are made after the switch.
4. A procedure that a million times picks a random id, reads its row and inserts into journal, autocommit on.
5. By turns in each, 30 times: TRUNCATE journal; SET rand_seed1 and rand_seed2 alike; CALL the procedure.
   Once with innodb_flush_log_at_trx_commit = 1, once with 2.
6. Compare the ratios of neighbouring runs.",
    arms: &[
        Arm { name: "crc32", what: "innodb_checksum_algorithm = crc32: two fields and the log number in the page's trailer" },
        Arm { name: "full_crc32", what: "innodb_checksum_algorithm = full_crc32: one sum over the whole page, the default since 10.5" },
    ],
    metrics: &[
        Metric { name: "seconds", unit: "s", kind: Kind::Timed, better: Better::Lower },
        Metric { name: "server_cpu_seconds", unit: "s", kind: Kind::Timed, better: Better::Lower },
    ],
    is_price: true,
    decides: Some(Decides::by_main_metric(&INNODB_ALGORITHM, &["full_crc32"])),
    seed_figures: &[SeedFigure {
        condition: FLUSHED,
        arm: "full_crc32",
        metric: "seconds",
        ratio: 1060.5 / 1051.5,
        said: "medians 1051.5 s (TORN) and 1060.5 s (CHECKSUM) on SQL Server; MariaDB offers no weaker mode",
    }],
    blocks: (6, 30),
};

/// The number is chosen before the statement: in the WHERE clause it would be a
/// new one for every row, and a scan of the table.
const PROCEDURE: &str = "\
DELIMITER //
CREATE PROCEDURE point_loop(steps INT, choices INT)
BEGIN
    DECLARE step INT DEFAULT 0;
    DECLARE wanted INT;
    DECLARE found TEXT;
    WHILE step < steps DO
        SET step = step + 1;
        SET wanted = 1 + FLOOR(RAND() * choices);
        SELECT body INTO found FROM item WHERE id = wanted;
        INSERT INTO journal VALUES (step, found);
    END WHILE;
END //
DELIMITER ;
";

impl Experiment for PointLoop {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn unavailable(&self) -> Option<String> {
        Installation::missing()
    }

    fn prepare(&self, lab: &Lab) -> Result<Box<dyn Prepared>> {
        let size = match lab.form {
            Form::Short => Size { rows: 200_000, flushed: 1_000, not_flushed: 10_000 },
            Form::Whole => Size { rows: 2_000_000, flushed: 50_000, not_flushed: 1_000_000 },
        };
        let installation = Installation::find().context("no MariaDB to measure")?;
        let mut base = Server::install(&installation, &[])?;
        let mut arms = BTreeMap::new();
        for arm in DESCRIPTION.arms {
            let algorithm = format!("innodb_checksum_algorithm={}", arm.name);
            let mut options = OPTIONS.to_vec();
            options.push(&algorithm);
            let mut server = base.duplicate(&options)?;
            server.start()?;
            load(&server, size.rows, &lab.stop)?;
            // So that nothing is left to write in the middle of a measurement.
            server.stop()?;
            server.home().write_out()?;
            server.start()?;
            arms.insert(arm.name, server);
        }
        let version = installation.version()?;
        Ok(Box::new(Loops { size, version, arms, stop: Arc::clone(&lab.stop) }))
    }
}

fn load(server: &Server, rows: u32, stop: &AtomicBool) -> Result<()> {
    let sql = format!(
        "CREATE DATABASE {DATABASE}; USE {DATABASE};
        CREATE TABLE item (id INT PRIMARY KEY, body TEXT) ENGINE=InnoDB;
        INSERT INTO item SELECT seq, REPEAT(MD5(seq), 3) FROM seq_1_to_{rows};
        CREATE TABLE journal (id INT PRIMARY KEY, body TEXT) ENGINE=InnoDB;
        {PROCEDURE}"
    );
    program::expect(&mut server.client(), &sql, stop).map(drop)
}

#[derive(Debug, Clone, Copy)]
struct Size {
    rows: u32,
    /// Steps of one measurement.
    flushed: u32,
    not_flushed: u32,
}

struct Loops {
    size: Size,
    version: String,
    arms: BTreeMap<&'static str, Server>,
    stop: Arc<AtomicBool>,
}

impl Prepared for Loops {
    fn conditions(&self) -> Vec<String> {
        vec![FLUSHED.to_owned(), NOT_FLUSHED.to_owned()]
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = BTreeMap::from([
            ("MariaDB".to_owned(), self.version.clone()),
            ("rows".to_owned(), self.size.rows.to_string()),
            (format!("steps, {FLUSHED}"), self.size.flushed.to_string()),
            (format!("steps, {NOT_FLUSHED}"), self.size.not_flushed.to_string()),
        ]);
        for option in OPTIONS {
            if let Some((name, value)) = option.split_once('=') {
                settings.insert(name.to_owned(), value.to_owned());
            }
        }
        let offered = "SELECT ENUM_VALUE_LIST FROM information_schema.SYSTEM_VARIABLES \
            WHERE VARIABLE_NAME = 'INNODB_CHECKSUM_ALGORITHM'";
        if let Some(Ok(algorithms)) = self.arms.values().next().map(|server| server.sql(offered)) {
            settings.insert("checksum algorithms offered".to_owned(), algorithms);
        }
        settings
    }

    fn measure(&mut self, condition: &str, arm: &Arm, block: u32) -> Result<Reading> {
        let (steps, flush) = match condition {
            FLUSHED => (self.size.flushed, 1),
            NOT_FLUSHED => (self.size.not_flushed, 2),
            other => bail!("{other} is not measured"),
        };
        let server = self.arms.get_mut(arm.name).with_context(|| format!("no arm {}", arm.name))?;
        let pid = server.pid().context("the server does not run")?;
        let prepare = format!(
            "USE {DATABASE}; TRUNCATE journal; SET GLOBAL innodb_flush_log_at_trx_commit = {flush}"
        );
        program::expect(&mut server.client(), &prepare, &self.stop)?;
        // Every arm of a block asks for the same rows.
        let now = "SELECT UNIX_TIMESTAMP(NOW(6))";
        let sql = format!(
            "USE {DATABASE}; SET rand_seed1 = {0}, rand_seed2 = {0} + 1;
            {now}; CALL point_loop({steps}, {1}); {now};",
            block.wrapping_mul(7919).wrapping_add(1),
            self.size.rows
        );
        let before = server_cpu::seconds(pid).context("the server does not run")?;
        let output = program::expect(&mut server.client(), &sql, &self.stop)?;
        let after = server_cpu::seconds(pid).context("the server does not run")?;
        let times: Vec<f64> =
            output.stdout.lines().filter_map(|line| line.trim().parse().ok()).collect();
        let [begin, end] = times.as_slice() else { bail!("MariaDB says: {}", output.said()) };
        Ok(Reading::of([("seconds", end - begin), ("server_cpu_seconds", after - before)]))
    }
}
