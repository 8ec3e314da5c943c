//! Runs of `scrub` and `serve` that are killed at random moments, over databases that change all the
//! time: whatever the ledger claims afterwards was read, by the record of the kernel's calls.
//!
//! | database | what happens to it |
//! | --- | --- |
//! | `pg` | a running PostgreSQL under pgbench; tables come, go, and are cut; pages of one at rest are damaged and mended |
//! | `shop` | pages are damaged and mended |
//! | `grown` | is grown, cut, cut and grown again at once, written over |
//! | `swapped` | another file takes its place, and the first one comes back |
//! | `busy` | `sqlite3` writes to it |
//!
//! After each kill the ledger is read by `sqlite3` and compared with that record and with what was
//! done to the pages. `PAGEWARDEN_GUARD_KILLS` says how many runs are killed, of each command.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pagewarden_scratch::postgres::{Cluster, Options};
use serde_json::Value;
use tempfile::TempDir;

use crate::clusters::any_installation;
use crate::damage::Dice;
use crate::read_record::{Identity, Record, Traced, has_strace, missing};
use crate::runner::run;
use crate::scrub::make_summed;
use crate::serve::with_config;
use crate::sqlite::{has_shell, shell};

/// Databases that are one file each, which no server holds.
const AT_REST: [&str; 3] = ["shop", "grown", "swapped"];
/// The page size of SQLite databases here.
const PAGE: usize = 4096;
/// Pages that are damaged and mended, of each database with such.
const SITES: usize = 8;
/// One run of twenty is slow, so that it lasts longer than what may be lost.
const SLOW_EVERY: usize = 20;
/// The rate of slow runs, and the length of a read at that rate, which no other read has.
const SLOW: &str = "3MiB/s";
const SLOW_READ: i64 = (3 << 20) / 8;
/// A killed run loses no more than this.
const LOST_SECONDS_MAX: f64 = 5.0;

fn kills() -> usize {
    std::env::var("PAGEWARDEN_GUARD_KILLS").map_or(8, |kills| kills.parse().unwrap())
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// A page that is damaged and mended.
struct Site {
    database: &'static str,
    /// The file's name in reports, and where it is.
    name: String,
    path: PathBuf,
    offset: u64,
    sound: Vec<u8>,
    is_damaged: bool,
    /// When that was done.
    since: f64,
    was_damaged: bool,
}

/// What happens to the databases.
struct Changes {
    folder: PathBuf,
    sites: Vec<Site>,
    dice: Dice,
    cluster: Option<Cluster>,
    load: Option<Child>,
    busy: Child,
    /// Files that were made.
    born: Vec<Identity>,
    count: usize,
}

impl Drop for Changes {
    fn drop(&mut self) {
        for child in self.load.iter_mut().chain([&mut self.busy]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.sqlite"))
}

fn identity(path: &Path) -> Identity {
    let status = fs::metadata(path).unwrap();
    let born = status.created().unwrap().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    (status.ino().cast_signed(), i64::try_from(born).unwrap())
}

fn to_write(path: &Path) -> File {
    File::options().write(true).open(path).unwrap()
}

/// Pages of a file that are to be damaged and mended, the first one left alone.
fn sites(
    database: &'static str,
    name: &str,
    path: &Path,
    size: usize,
    dice: &mut Dice,
) -> Vec<Site> {
    let bytes = fs::read(path).unwrap();
    let pages = bytes.len() / size;
    let site = |number: usize| {
        let page =
            dice.within(1 + number * (pages - 1) / SITES..1 + (number + 1) * (pages - 1) / SITES);
        Site {
            database,
            name: name.to_owned(),
            path: path.to_owned(),
            offset: (page * size) as u64,
            sound: bytes[page * size..(page + 1) * size].to_vec(),
            is_damaged: false,
            since: now(),
            was_damaged: false,
        }
    };
    (0..SITES).map(site).collect()
}

fn cluster_under_load(dice: &mut Dice) -> Option<(Cluster, Child, Vec<Site>)> {
    let installation = any_installation()?;
    let mut cluster = Cluster::init(&installation, &Options::default()).unwrap();
    cluster.start().unwrap();
    cluster.pgbench(&["-i", "-q", "-s", "1"]).unwrap();
    let quiet = "CREATE TABLE quiet WITH (autovacuum_enabled = off) AS
                   SELECT i, md5(i::text) AS word FROM generate_series(1, 30000) i;
                 CREATE TABLE cut (a int, b text); VACUUM FREEZE quiet; CHECKPOINT;";
    cluster.psql(quiet).unwrap();
    let name = cluster.relation_path("postgres", "quiet").unwrap();
    let path = cluster.data_dir().join(&name);
    let sites = sites("pg", name.to_str().unwrap(), &path, crate::damage::PAGE, dice);
    let mut load = cluster.client("pgbench").unwrap();
    load.args(["-n", "-c", "2", "-R", "50", "-T", "36000"]);
    let load = load.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    Some((cluster, load, sites))
}

impl Changes {
    fn begin(folder: &Path) -> Self {
        let mut dice = Dice::seeded();
        for (name, pages) in [("shop", 2000), ("grown", 500), ("swapped", 500)] {
            make_summed(&file(folder, name), pages);
        }
        // Without sums: the shell writes none.
        let busy = file(folder, "busy").display().to_string();
        shell(
            folder,
            &format!("ATTACH '{busy}' AS d; CREATE TABLE d.t (a); INSERT INTO d.t VALUES (1);"),
        );
        let mut all = sites("shop", "shop.sqlite", &file(folder, "shop"), PAGE, &mut dice);
        let (cluster, load) = match cluster_under_load(&mut dice) {
            Some((cluster, load, sites)) => {
                all.extend(sites);
                (Some(cluster), Some(load))
            }
            None => (None, None),
        };
        let mut busy = Command::new("sqlite3");
        busy.arg(file(folder, "busy")).stdin(Stdio::piped()).stdout(Stdio::null());
        let busy = busy.spawn().unwrap();
        Self {
            folder: folder.to_owned(),
            sites: all,
            dice,
            cluster,
            load,
            busy,
            born: Vec::new(),
            count: 0,
        }
    }

    /// Writes down how databases are read in the next run.
    fn configure(&self, rate: &str) {
        let mut text = String::new();
        for name in AT_REST.into_iter().chain(["busy"]) {
            text += &format!("[[database]]\nname = \"{name}\"\npath = \"{name}.sqlite\"\n");
            text += &format!("every = \"1s\"\nrate = \"{rate}\"\n");
        }
        if let Some(cluster) = &self.cluster {
            let path = cluster.data_dir().display();
            text += &format!("[[database]]\nname = \"pg\"\npath = \"{path}\"\n");
            text += "every = \"1s\"\nrate = \"none\"\n";
        }
        fs::write(self.folder.join("pagewarden.toml"), text).unwrap();
    }

    /// Changes something every few milliseconds, until it is over.
    fn go_on(&mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(self.dice.next() % 40));
            self.count += 1;
            match self.dice.next() % 16 {
                0..4 => self.damage_or_mend(),
                4..8 => self.grow_or_cut(),
                8..10 => self.swap(is_over),
                10..15 => {
                    let sql = "BEGIN; INSERT INTO t VALUES (randomblob(90000)); DELETE FROM t WHERE
                               rowid IN (SELECT rowid FROM t ORDER BY random() LIMIT 1); COMMIT;\n";
                    self.busy.stdin.as_mut().unwrap().write_all(sql.as_bytes()).unwrap();
                }
                _ => self.change_cluster(),
            }
        }
    }

    fn damage_or_mend(&mut self) {
        let number = self.dice.within(0..self.sites.len());
        let site = &mut self.sites[number];
        let mut page = site.sound.clone();
        let at = self.dice.within(100..page.len() - 100);
        if !site.is_damaged {
            page[at] ^= 0x40;
        }
        // Whatever a run reads from here on may be either.
        site.was_damaged = true;
        to_write(&site.path).write_all_at(&page, site.offset).unwrap();
        site.is_damaged = !site.is_damaged;
        site.since = now();
    }

    fn grow_or_cut(&mut self) {
        let grown = to_write(&file(&self.folder, "grown"));
        let length = grown.metadata().unwrap().len();
        let mut noise = vec![0; PAGE * self.dice.within(1..64)];
        self.dice.fill(&mut noise);
        let kept = length.saturating_sub(noise.len() as u64).max(PAGE as u64);
        match self.dice.next() % 4 {
            0 => grown.write_all_at(&noise, length).unwrap(),
            1 => grown.set_len(kept).unwrap(),
            2 => {
                grown.set_len(kept).unwrap();
                std::thread::sleep(Duration::from_millis(self.dice.next() % 8));
                let rest = usize::try_from(length - kept).unwrap();
                grown.write_all_at(&noise[..rest], kept).unwrap();
            }
            _ => grown.write_all_at(&noise, kept).unwrap(),
        }
    }

    /// Puts another file in the place of one, and then perhaps the first one back.
    fn swap(&mut self, is_over: &AtomicBool) {
        let [here, aside, other] =
            ["swapped", "aside", "other"].map(|name| file(&self.folder, name));
        fs::copy(&here, &other).unwrap();
        self.born.push(identity(&other));
        fs::rename(&here, &aside).unwrap();
        fs::rename(&other, &here).unwrap();
        if self.dice.next().is_multiple_of(2) && !is_over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(self.dice.next() % 40));
            fs::rename(&aside, &here).unwrap();
        }
    }

    fn change_cluster(&mut self) {
        let Some(cluster) = &self.cluster else { return };
        let sql = [
            "TRUNCATE cut; INSERT INTO cut SELECT i, 'x' FROM generate_series(1, 20000) i",
            "DELETE FROM cut WHERE a > 500; VACUUM cut;",
            "INSERT INTO cut SELECT i, 'y' FROM generate_series(1, 9000) i; CHECKPOINT",
            "DROP TABLE IF EXISTS gone; CREATE TABLE gone AS SELECT * FROM pgbench_accounts LIMIT 9999",
        ];
        // What the server says of its own checks is no matter here.
        let _ = cluster.psql(sql[self.dice.within(0..sql.len())]);
    }
}

/// A copy of the ledger as a kill left it, read by `sqlite3`.
struct Left {
    folder: TempDir,
}

impl Left {
    fn of(state: &Path) -> Option<Self> {
        let folder = TempDir::new().unwrap();
        for name in ["ledger.sqlite", "ledger.sqlite-wal"] {
            let _ = fs::copy(state.join(name), folder.path().join(name));
        }
        let left = Self { folder };
        let is_made = left.folder.path().join("ledger.sqlite").exists()
            && left.rows("SELECT name FROM sqlite_schema WHERE name = 'memory'").len() == 1;
        is_made.then_some(left)
    }

    fn rows(&self, sql: &str) -> Vec<Value> {
        let path = self.folder.path().join("ledger.sqlite");
        let output = Command::new("sqlite3").arg("-json").arg(path).arg(sql).output().unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        if output.stdout.is_empty() {
            return Vec::new();
        }
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn number(&self, sql: &str) -> i64 {
        self.rows(&format!("SELECT ({sql}) AS it"))[0]["it"].as_i64().unwrap()
    }
}

fn int(row: &Value, name: &str) -> i64 {
    row[name].as_i64().unwrap_or_else(|| panic!("no {name}: {row}"))
}

/// All kills of one command.
struct Trial {
    folder: TempDir,
    changes: Changes,
    record: Record,
    /// How often each database was listed.
    runs: HashMap<String, i64>,
    claims: usize,
    claimed_bytes: i64,
    reads: usize,
    passes: i64,
    lost: f64,
    slow_reads: usize,
    /// Verdicts of pages that were asked for.
    looks: HashMap<&'static str, usize>,
}

const CLAIMS: &str =
    "SELECT t.name AS target, t.run, f.name, f.inode, f.born, f.listed, c.begin, c.end,
    c.pass, c.at FROM claim c JOIN file f ON f.id = c.file JOIN target t ON t.id = f.target";
const FINDINGS: &str = "SELECT t.name AS target, n.file, n.offset, n.severity, n.kind, n.is_own
    FROM finding n JOIN target t ON t.id = n.target WHERE n.closed_at IS NULL";

impl Trial {
    fn begin() -> Self {
        let folder = TempDir::new().unwrap();
        let changes = Changes::begin(folder.path());
        Self {
            folder,
            changes,
            record: Record::new(),
            runs: HashMap::new(),
            claims: 0,
            claimed_bytes: 0,
            reads: 0,
            passes: 0,
            lost: 0.0,
            slow_reads: 0,
            looks: HashMap::new(),
        }
    }

    /// Lets a command run while everything changes, kills it, and looks at what is left.
    fn round(&mut self, words: &[&str], number: usize) {
        let is_slow = number % SLOW_EVERY == SLOW_EVERY - 1;
        self.changes.configure(if is_slow { SLOW } else { "none" });
        let wait = match self.changes.dice.next() {
            dice if is_slow => 6000 + dice % 3000,
            dice => 20 + dice % 1400,
        };
        let begun = now();
        let log = self.folder.path().join("log");
        let mut traced = Traced::spawn(&with_config(self.folder.path(), words), &log);
        // What is read slowly is left alone, so that it is known what is lost of it.
        let is_over = AtomicBool::new(is_slow);
        std::thread::scope(|scope| {
            scope.spawn(|| self.changes.go_on(&is_over));
            std::thread::sleep(Duration::from_millis(wait));
            traced.kill();
            is_over.store(true, Ordering::Relaxed);
        });
        let killed = now();
        traced.read(&self.changes.born, &mut self.record);
        self.changes.born.clear();
        self.look(begun, killed, is_slow);
    }

    fn look(&mut self, begun: f64, killed: f64, is_slow: bool) {
        let Some(left) = Left::of(&self.folder.path().join("state")) else { return };
        assert_eq!(left.rows("PRAGMA integrity_check")[0]["integrity_check"], "ok");
        let claims = left.rows(CLAIMS);
        self.look_at_claims(&claims, begun);
        if is_slow {
            self.look_at_losses(&claims, begun, killed);
        }
        self.look_at_findings(&claims, &left.rows(FINDINGS));
        // Of each pass that ended there is a receipt.
        let passes = left.number("SELECT count(*) FROM pass WHERE ended_at IS NOT NULL");
        assert_eq!(left.number("SELECT count(*) FROM receipt"), passes);
        self.passes = passes;
        self.look_at_status(&left);
        for row in left.rows("SELECT name, run FROM target") {
            self.runs.insert(row["name"].as_str().unwrap().to_owned(), int(&row, "run"));
        }
        self.forget(&claims, begun);
    }

    /// Each byte that is claimed was read, of that very file, and not before the time claimed; of a
    /// file that no server holds, not before it was last changed either.
    fn look_at_claims(&mut self, claims: &[Value], begun: f64) {
        for claim in claims {
            let target = claim["target"].as_str().unwrap();
            let (begin, end) = (int(claim, "begin"), int(claim, "end"));
            let mut at = int(claim, "at") as f64;
            assert_eq!(int(claim, "listed"), int(claim, "run"), "no file is of an earlier run");
            let was_listed = self.runs.get(target) != Some(&int(claim, "run"));
            if AT_REST.contains(&target) && was_listed {
                let status = fs::metadata(file(self.folder.path(), target)).unwrap();
                let changed = status.ctime() as f64 + status.ctime_nsec() as f64 / 1e9;
                if changed < begun {
                    assert_eq!(int(claim, "inode"), status.ino().cast_signed(), "{claim}");
                    at = at.max(changed);
                }
            }
            let reads = self.record.get(&(int(claim, "inode"), int(claim, "born")));
            let reads = reads.map_or(&[][..], Vec::as_slice);
            let counted = reads.iter().filter(|read| read.begun >= at);
            let unread = missing(begin, end, counted.map(|read| (read.begin, read.end)));
            let last = reads.iter().filter(|read| read.ended > at - 2.0).collect::<Vec<_>>();
            assert!(
                unread.is_empty(),
                "{unread:?} was not read since {at}, in the run since {begun}: {claim}\n{last:?}"
            );
            self.claims += 1;
            self.claimed_bytes += end - begin;
        }
    }

    /// What was read long before the kill is claimed.
    fn look_at_losses(&mut self, claims: &[Value], begun: f64, killed: f64) {
        for target in AT_REST {
            let status = fs::metadata(file(self.folder.path(), target)).unwrap();
            if status.ctime() as f64 + status.ctime_nsec() as f64 / 1e9 >= begun {
                continue;
            }
            let inode = status.ino().cast_signed();
            let of_file: Vec<_> =
                claims.iter().filter(|claim| int(claim, "inode") == inode).collect();
            let of_run = of_file.iter().filter(|claim| int(claim, "at") as f64 >= begun.floor());
            let claimed: Vec<_> =
                of_run.map(|claim| (int(claim, "begin"), int(claim, "end"))).collect();
            let reads = self.record.iter().filter(|((number, _), _)| *number == inode);
            for read in reads.flat_map(|(_, reads)| reads) {
                let is_of_run = read.begun >= begun && read.end - read.begin == SLOW_READ;
                self.slow_reads += usize::from(is_of_run);
                if is_of_run && !missing(read.begin, read.end, claimed.iter().copied()).is_empty() {
                    self.lost = self.lost.max(killed - read.ended);
                }
            }
        }
        assert!(
            self.lost <= LOST_SECONDS_MAX,
            "what was read {} s before the kill is lost",
            self.lost
        );
    }

    /// What was done to a page before a run began that has claimed it is known; and nothing is found
    /// that was never done.
    fn look_at_findings(&mut self, claims: &[Value], findings: &[Value]) {
        let is_at =
            |row: &Value, site: &Site| row["target"] == site.database && row["file"] == site.name;
        for site in &self.changes.sites {
            let offset = site.offset.cast_signed();
            let is_seen = claims.iter().any(|claim| {
                claim["target"] == site.database
                    && claim["name"] == site.name
                    && (int(claim, "begin")..int(claim, "end")).contains(&offset)
                    && int(claim, "at") as f64 > site.since
            });
            let open = findings.iter().find(|row| is_at(row, site) && row["offset"] == offset);
            if is_seen {
                let word = if site.is_damaged { "damaged" } else { "sound" };
                *self.looks.entry(word).or_default() += 1;
                assert_eq!(open.is_some(), site.is_damaged, "page at {offset}: {open:?}");
            }
        }
        for row in findings.iter().filter(|row| row["severity"] == "damage" && row["is_own"] == 1) {
            let mut sites = self.changes.sites.iter();
            let is_done = sites
                .any(|site| is_at(row, site) && row["offset"] == site.offset && site.was_damaged);
            assert!(is_done || row["target"] == "grown", "a false alarm: {row}");
        }
    }

    /// `status` says what the claims say.
    fn look_at_status(&self, left: &Left) {
        let outcome = run(&mut with_config(self.folder.path(), &["status", "--json", "-q"]));
        let json: Value = serde_json::from_str(&outcome.stdout).unwrap();
        let asked = now();
        let sums = left.rows(
            "SELECT t.name, coalesce(sum((f.end - f.first) / f.page_size), 0) AS pages,
             coalesce(sum((SELECT sum(c.end - c.begin) FROM claim c WHERE c.file = f.id AND c.pass = t.pass)
                / f.page_size), 0) AS verified,
             coalesce(sum((SELECT sum(c.end - c.begin) FROM claim c WHERE c.file = f.id) / f.page_size), 0)
                AS covered,
             (SELECT min(c.at) FROM claim c JOIN file g ON g.id = c.file WHERE g.target = t.id) AS oldest
             FROM target t LEFT JOIN file f ON f.target = t.id GROUP BY t.id",
        );
        for row in &sums {
            let mut targets = json["targets"].as_array().unwrap().iter();
            let target = targets.find(|target| target["name"] == row["name"]).unwrap();
            let coverage = &target["coverage"];
            assert_eq!(
                (&coverage["pages"], &coverage["verified"]),
                (&row["pages"], &row["verified"])
            );
            let is_whole = row["pages"] == row["covered"];
            let says_whole = coverage["pass_complete"] == true
                || ["intact", "unprotected"].iter().any(|word| target["verdict"] == *word);
            assert!(is_whole || !says_whole, "{target}: {row}");
            if let Some(oldest) = row["oldest"].as_i64() {
                let age = int(coverage, "oldest_unverified_seconds") as f64;
                assert!(age + 2.0 >= asked - oldest as f64, "{target}: {row}");
                assert_eq!(coverage["overdue"], age > int(coverage, "every_seconds") as f64);
            }
        }
    }

    /// Forgets reads that no claim can be about any more.
    fn forget(&mut self, claims: &[Value], begun: f64) {
        let mut oldest: HashMap<(i64, i64), f64> = HashMap::new();
        for claim in claims {
            let at = int(claim, "at") as f64;
            let first = oldest.entry((int(claim, "inode"), int(claim, "born"))).or_insert(at);
            *first = first.min(at);
        }
        self.record.retain(|file, reads| {
            self.reads += reads.iter().filter(|read| read.begun >= begun).count();
            let Some(oldest) = oldest.get(file) else { return false };
            reads.retain(|read| read.begun >= *oldest);
            true
        });
    }

    /// A run that is not killed ends all passes, and the receipts of all of them hold.
    fn end(&mut self, command: &str, begin: Instant) {
        let killed = begin.elapsed();
        self.changes.configure("none");
        let begun = now();
        let log = self.folder.path().join("log");
        let mut traced = Traced::spawn(&with_config(self.folder.path(), &["scrub", "-q"]), &log);
        let status = traced.child.wait().unwrap().code();
        assert!([Some(0), Some(1)].contains(&status), "{status:?}");
        traced.read(&[], &mut self.record);
        self.look(begun, now(), false);
        let evidence = self.folder.path().join("evidence");
        let words = ["evidence", "export", "-o", evidence.to_str().unwrap()];
        let outcome = run(&mut with_config(self.folder.path(), &words));
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        let verify = run(crate::runner::pagewarden().args(["evidence", "verify"]).arg(&evidence));
        assert_eq!(verify.status, Some(0), "{verify:?}");
        eprintln!(
            "{command}: {} kills in {killed:.0?}, {} changes meanwhile: {} claims of {} MiB compared with \
             {} reads, none false; {} passes and as many receipts; pages {:?} looked at; at most {:.1} s lost, by {} reads",
            kills(),
            self.changes.count,
            self.claims,
            self.claimed_bytes >> 20,
            self.reads,
            self.passes,
            self.looks,
            self.lost,
            self.slow_reads,
        );
    }
}

fn killed_over_and_over(words: &[&str]) {
    if !has_shell() || !has_strace() {
        return;
    }
    let mut trial = Trial::begin();
    let begin = Instant::now();
    for number in 0..kills() {
        trial.round(words, number);
    }
    trial.end(words[0], begin);
}

#[test]
fn killed_runs_of_scrub_claim_only_what_the_kernel_saw_them_read() {
    killed_over_and_over(&["scrub"]);
}

#[test]
fn killed_servers_claim_only_what_the_kernel_saw_them_read() {
    killed_over_and_over(&["serve", "--listen", "127.0.0.1:0"]);
}
