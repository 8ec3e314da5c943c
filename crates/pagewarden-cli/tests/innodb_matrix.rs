//! Every MySQL and MariaDB that is installed, in every layout, through all that a server goes
//! through: never a false alarm. And damage planted into what it left when it was stopped: named,
//! or of a kind that `unseen` names; and never called intact where the server does not read it.
//!
//! `PAGEWARDEN_SEED` says where the dice begin, `PAGEWARDEN_ROUNDS` how many rounds of wounds each
//! directory gets, `PAGEWARDEN_MATRIX` which versions and layouts (`mysql-5.5 small`), all if unset.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pagewarden_scratch::any_mysql::{Installation, Server};

use crate::runner::{Finding, Report, pagewarden, run};

/// How a server lays out its files.
struct Layout {
    name: &'static str,
    options: &'static [&'static str],
    /// Of MariaDB from 10.1 on only, and of MySQL.
    more: &'static [&'static str],
    page: usize,
}

const LAYOUTS: [Layout; 5] = [
    Layout { name: "plain", options: &[], more: &[], page: 16_384 },
    Layout {
        name: "shared",
        options: &[
            "innodb_file_per_table=0",
            "innodb_data_file_path=ibdata1:12M;ibdata2:4M:autoextend",
        ],
        more: &[],
        page: 16_384,
    },
    Layout {
        name: "elsewhere",
        options: &[
            "innodb_data_home_dir={elsewhere}/system",
            "innodb_log_group_home_dir={elsewhere}/log",
        ],
        more: &["innodb_undo_directory={elsewhere}/undo"],
        page: 16_384,
    },
    Layout { name: "small", options: &[], more: &["innodb_page_size=4K"], page: 4096 },
    Layout { name: "large", options: &[], more: &["innodb_page_size=64K"], page: 65_536 },
];

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % end
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// Statements that every version knows, and some that only some do.
fn tables(installation: &Installation) -> String {
    let mut sql = String::from(
        "SET GLOBAL innodb_file_format=Barracuda; CREATE DATABASE shop; USE shop;
         CREATE TABLE source (id INT PRIMARY KEY, word VARCHAR(60), body VARCHAR(300)) ENGINE=InnoDB;
         INSERT INTO source VALUES (1, 'one', 'first');\n",
    );
    for step in (0..11).map(|power| 1 << power) {
        sql.push_str(&format!(
            "INSERT INTO source SELECT id + {step}, CONCAT(HEX((id + {step}) * 7919), 'x'),
               REPEAT(CHAR(97 + id % 26), 30 + (id + {step}) % 250) FROM source;\n"
        ));
    }
    let mut make = |name: &str, options: &str| {
        sql.push_str(&format!(
            "CREATE TABLE {name} (id INT PRIMARY KEY, word VARCHAR(60), body VARCHAR(300), KEY (word))
               {options};
             INSERT INTO {name} SELECT * FROM source; DELETE FROM {name} WHERE id % 5 = 0;\n"
        ));
    };
    make("dynamic", "ENGINE=InnoDB ROW_FORMAT=DYNAMIC");
    make("compact", "ENGINE=InnoDB ROW_FORMAT=COMPACT");
    make("redundant", "ENGINE=InnoDB ROW_FORMAT=REDUNDANT");
    make("zipped", "ENGINE=InnoDB ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4");
    make("parts", "ENGINE=InnoDB PARTITION BY HASH (id) PARTITIONS 2");
    if installation.is_mariadb() {
        make("squeezed", "ENGINE=InnoDB PAGE_COMPRESSED=1");
        make("aria", "ENGINE=Aria PAGE_CHECKSUM=1");
    }
    sql.push_str(
        "CREATE TABLE long_rows (id INT PRIMARY KEY, data LONGBLOB) ENGINE=InnoDB;
         INSERT INTO long_rows SELECT id, REPEAT(body, 300) FROM source WHERE id <= 40;\n",
    );
    sql
}

/// Changes, after which pages of before are old.
const CHANGES: &str = "USE shop; UPDATE dynamic SET body = REVERSE(word);
    UPDATE compact SET word = CONCAT(word, 'y'); DELETE FROM redundant WHERE id % 3 = 0;
    UPDATE zipped SET word = CONCAT('z', word); INSERT INTO long_rows
    SELECT id + 100, REPEAT(body, 200) FROM source WHERE id <= 20;
    CREATE TABLE late AS SELECT * FROM source; UPDATE aria SET word = 'changed' WHERE id % 2 = 0;";

/// Says all of the statements, whatever becomes of each.
fn say_anyway(server: &Server, sql: &str) {
    let Ok(mut client) = server.client() else { return };
    client.arg("--force").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = client.spawn().unwrap();
    // The server may be killed meanwhile.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(sql.as_bytes()));
    let _ = child.wait();
}

/// A check, and its exit status. Files that lie elsewhere go by whole paths.
fn look(path: &Path) -> (Report, i32) {
    let outcome = run(pagewarden().args(["check", "--json"]).arg(path));
    let json = serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", outcome.stdout, outcome.stderr));
    (Report { json }, outcome.status.unwrap())
}

fn assert_healthy(path: &Path, what: &str) {
    let (report, status) = look(path);
    let told = || format!("{what}: {:#}", report.json);
    assert_eq!(report.serious(), [], "{}", told());
    assert!(report.unread().is_empty(), "{}", told());
    let is_open = report.pages("undecided") > 0;
    assert!(status == 0 || is_open && status == 2, "{}", told());
}

/// Versions that now and then fail an assertion of their own over what they left when they were killed.
const RECOVERS_NOT_ALWAYS: [&str; 1] = ["mariadb-10.1"];
/// How often such a life is begun anew.
const LIVES_MAX: usize = 6;

/// One version in one layout, from the first start to the last stop; with its files of before.
struct Life {
    what: String,
    page: usize,
    server: Server,
    /// Every file with pages, as it was some changes ago.
    earlier: BTreeMap<PathBuf, Vec<u8>>,
    /// What the server must read in full as long as the directory is called intact.
    tables: Vec<String>,
    checks: u32,
}

impl Life {
    /// `None` where the server did not come back from being killed: see `RECOVERS_NOT_ALWAYS`.
    fn live(installation: &Installation, layout: &Layout) -> Option<Self> {
        let is_new = installation.version() != "mysql-5.5";
        let more = layout.more.iter().filter(|_| is_new);
        let mut options: Vec<_> = layout.options.iter().chain(more).copied().collect();
        if layout.name == "elsewhere" && installation.is_mariadb() {
            options.push("innodb_undo_tablespaces=2");
        }
        if layout.name == "large" {
            options.push("innodb_buffer_pool_size=64M");
        }
        let what = format!("{} {}", installation.version(), layout.name);
        let mut server = Server::install(installation, &options)
            .unwrap_or_else(|error| panic!("{what}: {error:#}"));
        if layout.name == "elsewhere" {
            tell_places(&server, &options);
        }
        let root = server.data_dir();
        assert_healthy(&root, &format!("{what}, fresh"));
        server.start().unwrap();
        say_anyway(&server, &tables(installation));
        assert_healthy(&root, &format!("{what}, running"));
        let mut life = Self {
            what,
            page: layout.page,
            server,
            earlier: BTreeMap::new(),
            tables: Vec::new(),
            checks: 2,
        };
        life.be_killed();
        match life.server.start() {
            Err(error) if RECOVERS_NOT_ALWAYS.contains(&installation.version()) => {
                eprintln!(
                    "{}: KILLED, AND DOES NOT RECOVER: {}",
                    life.what,
                    in_short(&error.to_string())
                );
                return None;
            }
            started => started.unwrap(),
        }
        assert_healthy(&root, &format!("{}, recovered", life.what));
        life.stop("stopped");
        for file in life.files() {
            life.earlier.insert(file.clone(), fs::read(&file).unwrap());
        }
        life.server.start().unwrap();
        // What was being made or dropped when the server was killed, old ones leave half made.
        say_anyway(&life.server, "DROP TABLE IF EXISTS shop.passing;");
        say_anyway(&life.server, CHANGES);
        life.tables = tables_of(&life.server);
        assert_eq!(unreadable(&life.server, &life.tables), None, "{}", life.what);
        life.stop("stopped again");
        life.checks += 3;
        Some(life)
    }

    /// Checked under load, then killed under load.
    fn be_killed(&mut self) {
        let root = self.server.data_dir();
        let stop = AtomicBool::new(false);
        let work = "USE shop; UPDATE dynamic SET body = REVERSE(body);
            UPDATE zipped SET word = REVERSE(word) WHERE id % 7 = 0;
            CREATE TABLE passing (id INT PRIMARY KEY, word VARCHAR(60)) ENGINE=InnoDB;
            INSERT INTO passing SELECT id, word FROM source; ALTER TABLE passing ADD KEY (word);
            TRUNCATE TABLE passing; DROP TABLE passing; UPDATE aria SET word = REVERSE(word);";
        thread::scope(|scope| {
            let (server, stop) = (&self.server, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    say_anyway(server, work);
                }
            });
            let result = std::panic::catch_unwind(|| {
                for turn in 0..3 {
                    thread::sleep(Duration::from_millis(300));
                    assert_healthy(&root, &format!("{}, under load, {turn}", self.what));
                }
            });
            stop.store(true, Ordering::Relaxed);
            result.unwrap();
        });
        let mut client = self.server.client().unwrap();
        client.arg("--force").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut client = client.spawn().unwrap();
        let _ = client.stdin.take().unwrap().write_all(work.repeat(50).as_bytes());
        thread::sleep(Duration::from_millis(500));
        self.server.kill();
        let _ = client.wait();
        assert_healthy(&root, &format!("{}, killed", self.what));
        self.checks += 4;
    }

    fn stop(&mut self, when: &str) {
        self.server.stop().unwrap();
        let (report, status) = look(&self.server.data_dir());
        let found = (report.findings(), report.verdict(), status);
        assert_eq!(found, (vec![], "intact", 0), "{}, {when}: {:#}", self.what, report.json);
    }

    /// Every file with pages, and every other that servers need, in order.
    fn files(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.server.data_dir(), self.server.elsewhere()];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                match entry.file_type().unwrap().is_dir() {
                    true => folders.push(path),
                    false if is_of_tables(&path) => files.push(path),
                    false => {}
                }
            }
        }
        files.sort();
        files
    }

    /// Bytes in a page of a file; `None` of a file without pages.
    fn page_of(&self, path: &Path) -> Option<usize> {
        let name = path.file_name()?.to_str()?;
        match name.rsplit('.').next()? {
            "MAD" | "MAI" => Some(8192),
            "frm" | "par" | "MYI" | "MYD" => None,
            "ibd" if name.starts_with("zipped") => {
                let flags = u32::from_be_bytes(fs::read(path).ok()?[54..58].try_into().ok()?);
                Some(if flags >> 1 & 0xf == 0 { self.page } else { 4096 })
            }
            _ if name.starts_with("ib_log") || name.starts_with("aria_log") => None,
            _ if name.contains("redo") => None,
            _ => Some(self.page),
        }
    }

    /// As the report calls it.
    fn shown(&self, path: &Path) -> String {
        let root = self.server.data_dir();
        path.strip_prefix(&root).unwrap_or(path).display().to_string()
    }
}

/// An options file, as packages have one.
fn tell_places(server: &Server, options: &[&str]) {
    let place = server.elsewhere().display().to_string();
    let lines: Vec<_> = options.iter().map(|it| it.replace("{elsewhere}", &place)).collect();
    fs::write(server.data_dir().join("my.cnf"), format!("[mysqld]\n{}\n", lines.join("\n")))
        .unwrap();
}

fn is_of_tables(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_str().unwrap();
    let is_temporary = name.starts_with("ibtmp") || path.to_str().unwrap().contains("#innodb_temp");
    let endings = [".ibd", ".ibu", ".MAI", ".MAD", ".frm", ".par", ".MYI", ".MYD"];
    let beginnings = ["ibdata", "undo", "ib_logfile", "#ib_redo", "aria_log"];
    !is_temporary
        && !name.ends_with("_tmp")
        && (endings.iter().any(|ending| name.ends_with(ending))
            || beginnings.iter().any(|beginning| name.starts_with(beginning)))
}

/// The tables of a server that is sound, and of which every row can be read.
fn tables_of(server: &Server) -> Vec<String> {
    let list =
        "SELECT CONCAT('`', table_schema, '`.`', table_name, '`') FROM information_schema.tables
        WHERE table_type = 'BASE TABLE' AND engine IN ('InnoDB', 'Aria')
        AND table_schema NOT IN ('information_schema', 'performance_schema')";
    server.sql(list).unwrap().lines().map(str::to_owned).collect()
}

/// What the server says of the first of these tables that it does not read.
fn unreadable(server: &Server, tables: &[String]) -> Option<String> {
    for table in tables {
        let said =
            server.sql(&format!("CHECK TABLE {table} EXTENDED; SELECT COUNT(*) FROM {table};"));
        match said {
            Err(error) => return Some(format!("{table}: {error}")),
            Ok(said) => {
                let is_bad = |line: &&str| {
                    line.contains("\terror\t")
                        || line.contains("\tError\t")
                        || line.ends_with("Corrupt")
                        || line.contains("corrupt")
                };
                if let Some(line) = said.lines().find(is_bad) {
                    return Some(line.to_owned());
                }
            }
        }
    }
    None
}

fn is_of_system(path: &Path) -> bool {
    path.file_name().unwrap().to_str().unwrap().starts_with("ibdata")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Flip,
    Zero,
    Swap,
    Foreign,
    Older,
}

struct Wound {
    path: PathBuf,
    page: u64,
    kind: Kind,
    before: Vec<u8>,
    page_type: u16,
    /// Zeroes there are no damage: by the maps of the file as it was.
    is_unused: bool,
}

/// What came of the wounds of one kind.
#[derive(Debug, Default)]
struct Tally {
    made: u64,
    named: u64,
    blind: u64,
}

/// Wounds pages of every file of a stopped server, far enough from one another.
fn wound(life: &Life, dice: &mut Dice) -> Vec<Wound> {
    let mut wounds = Vec::new();
    for path in life.files() {
        let Some(page) = life.page_of(&path) else { continue };
        let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let bytes = fs::read(&path).unwrap();
        let pages = (bytes.len() / page) as u64;
        let mut at = 1 + dice.below(8);
        while at + 1 < pages {
            let here = at;
            at += 4 + dice.below(12);
            let place = here as usize * page;
            let before = bytes[place..place + page].to_vec();
            let is_aria =
                page == 8192 && path.extension().is_some_and(|it| it == "MAD" || it == "MAI");
            if before.iter().all(|byte| *byte == 0) || is_aria && here == 1 {
                continue;
            }
            let page_type = u16::from_be_bytes(before[24..26].try_into().unwrap());
            let next = bytes[place + page..place + 2 * page].to_vec();
            let (kind, after) = match dice.below(5) {
                0 => (Kind::Zero, vec![0; page]),
                1 if next.iter().any(|byte| *byte != 0) => {
                    file.write_all_at(&before, (place + page) as u64).unwrap();
                    wounds.push(Wound {
                        path: path.clone(),
                        page: here + 1,
                        kind: Kind::Swap,
                        before: next.clone(),
                        page_type: 0,
                        is_unused: false,
                    });
                    (Kind::Swap, next)
                }
                2 => match life.foreign(&path, page, here) {
                    Some(other) if other != before => (Kind::Foreign, other),
                    _ => continue,
                },
                3 => match life.earlier.get(&path).and_then(|old| old.get(place..place + page)) {
                    Some(old) if old != before => (Kind::Older, old.to_vec()),
                    _ => continue,
                },
                _ => {
                    let mut flipped = before.clone();
                    // Within what even compressed pages have stored.
                    flipped[60 + dice.below(100) as usize] ^= 1 << dice.below(8);
                    (Kind::Flip, flipped)
                }
            };
            file.write_all_at(&after, place as u64).unwrap();
            let is_unused = life.is_unused(&path, here, &bytes);
            let path = path.clone();
            wounds.push(Wound { path, page: here, kind, before, page_type, is_unused });
        }
    }
    wounds
}

impl Life {
    /// The page with that number of another file.
    fn foreign(&self, path: &Path, page: usize, number: u64) -> Option<Vec<u8>> {
        let others = self.files();
        let mut others = others.into_iter().filter(|other| {
            other != path
                && other.extension() == path.extension()
                && self.page_of(other) == Some(page)
        });
        others.find_map(|other| {
            let bytes = fs::read(other).ok()?;
            let place = number as usize * page;
            let found = bytes.get(place..place + page)?.to_vec();
            found.iter().any(|byte| *byte != 0).then_some(found)
        })
    }

    /// Pages that may be zero, by what maps the pages in use of a file, whose bytes these are.
    fn is_unused(&self, path: &Path, page: u64, bytes: &[u8]) -> bool {
        let page_bytes = self.page_of(path).unwrap();
        match path.extension().and_then(|ending| ending.to_str()) {
            // Of indexes every page; of rows by three bits a page, and the map itself is not in it.
            Some("MAI") => {
                let of_header = u64::from_be_bytes(bytes[89..97].try_into().unwrap());
                page >= of_header / page_bytes as u64
            }
            Some("MAD") => {
                let (group, place) = ((page - 1) / 16, (page - 1) % 16);
                let mut bits = [0; 8];
                bits[..6].copy_from_slice(&bytes[group as usize * 6..][..6]);
                u64::from_le_bytes(bits) >> (3 * place) & 7 == 0
            }
            _ => self.is_free(path, page + self.base_of(path), page_bytes, bytes),
        }
    }

    /// Pages that the extent map of their tablespace has for free, and those that the doublewrite area
    /// takes and does not use.
    fn is_free(&self, path: &Path, page: u64, page_bytes: usize, bytes: &[u8]) -> bool {
        let is_system = is_of_system(path);
        let first = is_system.then(|| fs::read(path.with_file_name("ibdata1")).unwrap());
        let bytes = first.as_deref().unwrap_or(bytes);
        // Of compressed tables by the size of the pages inside.
        let extent = if self.page >= 16_384 { 64 } else { (1 << 20) / self.page };
        let (extent, group) = (extent as u64, page_bytes as u64);
        let first = page / group * group;
        let entry = 24 + extent as usize / 4;
        let place = first as usize * page_bytes
            + 150
            + (page - first) as usize / extent as usize * entry
            + 24;
        let bit = (page - first) % extent * 2;
        let is_free = bytes[place + (bit / 8) as usize] >> (bit % 8) & 1 == 1;
        is_free || is_system && self.single_pages_of_copies(bytes).contains(&page)
    }

    /// Page 5 of the system tablespace, and the page of segments that it leads to.
    fn pages_that_tell_copies(&self) -> [u64; 2] {
        let files = self.files();
        let first = files.iter().find(|path| path.ends_with("ibdata1")).unwrap();
        let bytes = fs::read(first).unwrap();
        let at = 6 * self.page - 200 + 4;
        [5, u64::from(u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()))]
    }

    /// The single pages of the doublewrite area's segment, which page 5 leads to.
    fn single_pages_of_copies(&self, bytes: &[u8]) -> Vec<u64> {
        let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        let header = 6 * self.page - 200;
        let offset = u16::from_be_bytes(bytes[header + 8..header + 10].try_into().unwrap());
        let segment = number(header + 4) as usize * self.page + usize::from(offset);
        let count = 32.max((1 << 19) / self.page);
        (0..count).map(|slot| u64::from(number(segment + 64 + 4 * slot))).collect()
    }

    /// One round of wounds; the pages are whole again afterwards.
    fn suffer(&self, dice: &mut Dice, tallies: &mut BTreeMap<Kind, Tally>) -> Vec<String> {
        let maps = self.pages_that_tell_copies();
        let wounds = wound(self, dice);
        let (report, _) = look(&self.server.data_dir());
        let found: Vec<Finding> = report.serious();
        let named: BTreeSet<_> =
            found.iter().filter_map(|it| Some((it.file.clone(), it.page?))).collect();
        let mut wrong = Vec::new();
        let mut asked = BTreeSet::new();
        // What maps the pages in use of the system tablespace was wounded itself, as the run says.
        let is_map_hit = wounds
            .iter()
            .any(|wound| wound.path.ends_with("ibdata1") && maps.contains(&wound.page));
        for wound in &wounds {
            let base = self.base_of(&wound.path);
            let shown = self.shown(&wound.path);
            let key = (shown.clone(), wound.page + base);
            let tally = tallies.entry(wound.kind).or_default();
            tally.made += 1;
            let is_named = named.contains(&key);
            asked.insert(key);
            let is_innodb = !shown.ends_with(".MAD") && !shown.ends_with(".MAI");
            let is_blind = match wound.kind {
                Kind::Older => true,
                _ if self.is_copy(&wound.path, wound.page) => true,
                // Behind what an index page of Aria has in use.
                Kind::Flip => shown.ends_with(".MAI"),
                Kind::Zero => wound.is_unused || is_map_hit && is_of_system(&wound.path),
                Kind::Foreign => !is_innodb,
                _ => false,
            };
            match (is_named, is_blind) {
                (true, _) => tally.named += 1,
                (false, true) => tally.blind += 1,
                (false, false) => wrong.push(format!(
                    "{}: not named: {:?} of page {} of {shown}, type {}",
                    self.what, wound.kind, wound.page, wound.page_type
                )),
            }
        }
        // Of pages that each pass their own test, and of which one is old, it may stay open which.
        let may_be_open: BTreeSet<_> = wounds
            .iter()
            .filter(|wound| matches!(wound.kind, Kind::Older | Kind::Foreign))
            .map(|wound| self.shown(&wound.path))
            .collect();
        for finding in found {
            let key = (finding.file.clone(), finding.page.unwrap_or(0));
            let is_open = finding.page.is_none()
                && (&*finding.severity, &*finding.kind) == ("suspect", "structure")
                && may_be_open.contains(&finding.file);
            // An old page of the dictionary names tables that were dropped since.
            let is_of_old_books = finding.kind == "missing"
                && !self.server.data_dir().join(&finding.file).exists()
                && may_be_open.iter().any(|file| file.contains("ibdata"));
            if !asked.contains(&key) && !is_open && !is_of_old_books {
                wrong.push(format!("{}: blamed without a wound: {finding:?}", self.what));
            }
        }
        for wound in wounds.iter().rev() {
            let file = fs::OpenOptions::new().write(true).open(&wound.path).unwrap();
            file.write_all_at(&wound.before, wound.page * wound.before.len() as u64).unwrap();
        }
        wrong
    }

    /// In the doublewrite area of the system tablespace, where servers put it.
    fn is_copy(&self, path: &Path, page: u64) -> bool {
        let extent = 64.max((1 << 20) / self.page as u64);
        path.ends_with("ibdata1") && (extent..3 * extent).contains(&page)
    }

    /// The number of the first page of a file.
    fn base_of(&self, path: &Path) -> u64 {
        let name = path.file_name().unwrap().to_str().unwrap();
        match name {
            "ibdata2" => {
                fs::metadata(path.with_file_name("ibdata1")).unwrap().len() / self.page as u64
            }
            _ => 0,
        }
    }
}

/// What is done to a whole file.
const FILE_WOUNDS: [&str; 5] = ["removed", "emptied", "cut", "extent zeroed", "older"];

impl Life {
    /// Each kind of wound to whole files, one after the other. What is called intact, the server
    /// must read in full.
    fn lose_files(
        &mut self,
        dice: &mut Dice,
        tallies: &mut BTreeMap<String, Tally>,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        let files = self.files();
        for path in &files {
            let is_system =
                !self.shown(path).contains('/') || !path.starts_with(self.server.data_dir());
            // Of the many tables of the server itself a few.
            if !is_system && !self.shown(path).starts_with("shop/") && dice.below(20) > 0 {
                continue;
            }
            for kind in FILE_WOUNDS {
                // Tables are alike; what there is one of is always tried.
                if !is_system && dice.below(3) > 0 {
                    continue;
                }
                wrong.extend(self.lose(path, kind, tallies));
            }
        }
        wrong
    }

    fn lose(
        &mut self,
        path: &Path,
        kind: &str,
        tallies: &mut BTreeMap<String, Tally>,
    ) -> Option<String> {
        let before = fs::read(path).unwrap();
        let page = self.page_of(path).unwrap_or(512);
        let mut after = before.clone();
        match kind {
            "removed" => fs::rename(path, self.aside()).unwrap(),
            "emptied" => after.clear(),
            "cut" => after.truncate(before.len() / 2 / page * page),
            "older" => after = self.earlier.get(path)?.clone(),
            _ => {
                let from = if before.len() > 3 << 20 { 1 << 20 } else { 4 * page };
                let to = before.len().min(from + (1 << 20));
                after.get_mut(from..to)?.fill(0);
            }
        }
        if kind != "removed" {
            if after == before {
                return None;
            }
            fs::write(path, &after).unwrap();
        }
        let (report, _) = look(&self.server.data_dir());
        let tally = tallies.entry(kind.to_owned()).or_default();
        tally.made += 1;
        let verdict = report.verdict().to_owned();
        let mut wrong = None;
        if verdict == "intact" {
            let mut copy = self.server.duplicate().unwrap();
            // What check says itself that it does not see.
            let is_told = kind == "older"
                && report.target()["unseen"].as_str().unwrap().contains("older versions");
            let said = match copy.start() {
                _ if is_told => None,
                Ok(()) => unreadable(&copy, &self.tables),
                Err(error) => Some(in_short(&error.to_string())),
            };
            match said {
                Some(said) => {
                    let shown = self.shown(path);
                    wrong = Some(format!(
                        "{}: {shown} {kind}: intact, and the server: {said}",
                        self.what
                    ));
                }
                None => tally.blind += 1,
            }
        } else {
            tally.named += 1;
        }
        if kind == "removed" {
            fs::rename(self.aside(), path).unwrap();
        }
        fs::write(path, &before).unwrap();
        wrong
    }

    fn aside(&self) -> PathBuf {
        self.server.elsewhere().join("aside")
    }
}

/// What a server says of its end.
fn in_short(log: &str) -> String {
    let is_told = |line: &&str| line.contains("[ERROR]") || line.contains("ssertion");
    let lines: Vec<_> = log.lines().filter(is_told).take(3).collect();
    if lines.is_empty() { log.to_owned() } else { lines.join("; ") }
}

#[test]
#[ignore = "hours: `make slow`"]
fn every_version_in_every_layout_is_sound_and_what_is_planted_is_found() {
    let chosen = std::env::var("PAGEWARDEN_MATRIX").unwrap_or_default();
    let is_chosen = |word: &str, all: &[&str]| {
        let asked: Vec<_> = chosen.split_whitespace().filter(|it| all.contains(it)).collect();
        asked.is_empty() || asked.contains(&word)
    };
    let mut dice = Dice(number("PAGEWARDEN_SEED", 0x5EED));
    let (mut tallies, mut of_files) = (BTreeMap::new(), BTreeMap::new());
    let (mut wrong, mut lives, mut checks) = (Vec::new(), 0, 0);
    let layouts = LAYOUTS.map(|layout| layout.name);
    for installation in Installation::all().unwrap() {
        for layout in &LAYOUTS {
            let is_old = installation.version() == "mysql-5.5";
            let is_possible = !is_old || !matches!(layout.name, "small" | "large");
            if !is_possible
                || !is_chosen(layout.name, &layouts)
                || !is_chosen(installation.version(), &pagewarden_scratch::any_mysql::VERSIONS)
            {
                continue;
            }
            let life = (0..LIVES_MAX).find_map(|_| Life::live(&installation, layout));
            let Some(mut life) = life else {
                wrong.push(format!("{} {}: never recovers", installation.version(), layout.name));
                continue;
            };
            for _ in 0..number("PAGEWARDEN_ROUNDS", 20) {
                wrong.extend(life.suffer(&mut dice, &mut tallies));
            }
            wrong.extend(life.lose_files(&mut dice, &mut of_files));
            life.stop("put back");
            (lives, checks) = (lives + 1, checks + life.checks);
            eprintln!(
                "{}: done; {} wrong so far; {tallies:?} {of_files:?}",
                life.what,
                wrong.len()
            );
            wrong.iter().for_each(|one| eprintln!("  {one}"));
        }
    }
    eprintln!(
        "{lives} directories, {checks} healthy checks; pages {tallies:?}; files {of_files:?}"
    );
    assert!(lives > 0 || chosen.is_empty());
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
