//! A running PostgreSQL, scrubbed by `serve` while pages of it are damaged and mended: each is found
//! within one pass, each alarm comes once, and every look at the pages shows what is so.
//!
//! `PAGEWARDEN_HOUR_SECONDS` makes the hour shorter.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pagewarden_scratch::postgres::{Cluster, Installation, Options};
use serde_json::Value;
use tempfile::TempDir;

use crate::damage::{Damage, Dice, PAGE};
use crate::serve::{Serving, with_config};

/// Pages that are damaged and mended, over and over.
const SITES: usize = 12;
/// A pass begins at 70 to 75 % of this, is asked for every 15 s, and needs time on a slow machine.
const EVERY: &str = "3m";
/// From one look at the server to the next.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A message has come this long after what it reports was seen.
const ALARM_WITHIN: Duration = Duration::from_secs(30);

/// What becomes of a page, with the passes that ended since.
enum Life {
    /// As it was, until then.
    Sound(Instant),
    Damaged(u32),
    /// It was found, and is mended then.
    Found(Instant),
    Mended(u32),
}

/// A page, and how often it was damaged and mended.
struct Site {
    block: u32,
    sound: Vec<u8>,
    life: Life,
    found: usize,
    gone: usize,
}

/// All that is at work.
struct Trial {
    folder: TempDir,
    cluster: Cluster,
    load: Child,
    serving: Serving,
    /// The file whose pages are damaged, and its name in reports.
    path: PathBuf,
    name: String,
    sites: Vec<Site>,
    dice: Dice,
    last_pass: Value,
    passes: u32,
    /// Looks that were right, by the state they showed.
    looks: BTreeMap<String, usize>,
}

impl Drop for Trial {
    fn drop(&mut self) {
        let _ = self.load.kill();
        let _ = self.load.wait();
    }
}

fn hour() -> Duration {
    let asked = std::env::var("PAGEWARDEN_HOUR_SECONDS").ok();
    Duration::from_secs(asked.map_or(3600, |seconds| seconds.parse().unwrap()))
}

impl Trial {
    fn begin(installation: &Installation) -> Self {
        let mut cluster = Cluster::init(installation, &Options::default()).unwrap();
        cluster.start().unwrap();
        cluster.pgbench(&["-i", "-q", "-s", "1"]).unwrap();
        // A table that the load leaves alone: what is damaged there stays so until it is mended.
        cluster
            .psql(
                "CREATE TABLE quiet WITH (autovacuum_enabled = off) AS
                   SELECT i, md5(i::text) AS word FROM generate_series(1, 100000) i;
                 VACUUM FREEZE quiet; CHECKPOINT;",
            )
            .unwrap();
        let name = cluster.relation_path("postgres", "quiet").unwrap();
        let path = cluster.data_dir().join(&name);
        let file = fs::read(&path).unwrap();
        let mut dice = Dice::seeded();
        let blocks = file.len() / PAGE;
        let sites = (0..SITES)
            .map(|number| {
                let block = dice.within(number * blocks / SITES..(number + 1) * blocks / SITES);
                let sound = file[block * PAGE..(block + 1) * PAGE].to_vec();
                let block = u32::try_from(block).unwrap();
                let life = Life::Sound(Instant::now());
                Site { block, sound, life, found: 0, gone: 0 }
            })
            .collect();
        let seconds = (hour().as_secs() + 600).to_string();
        let mut load = cluster.client("pgbench").unwrap();
        load.args(["-n", "-c", "2", "-R", "30", "-T", &seconds]);
        let load = load.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let folder = TempDir::new().unwrap();
        let config = format!(
            "[[database]]\nname = \"main\"\npath = \"{}\"\nevery = \"{EVERY}\"\n\
             [[notify]]\nname = \"log\"\nwait = \"1s\"\nper_hour = 100000\n\
             command = [\"/bin/sh\", \"-c\", \"cat >> messages; echo >> messages\"]\n",
            cluster.data_dir().display()
        );
        fs::write(folder.path().join("pagewarden.toml"), config).unwrap();
        let mut serve = with_config(folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
        serve.current_dir(folder.path());
        let mut serving = Serving::of(serve);
        serving.says("main: ");
        Self {
            folder,
            cluster,
            load,
            serving,
            path,
            name: name.to_str().unwrap().to_owned(),
            sites,
            dice,
            last_pass: Value::Null,
            passes: 0,
            looks: BTreeMap::new(),
        }
    }

    fn json(&self, path: &str) -> Value {
        let (status, answer) = self.serving.get(path);
        assert_eq!(status, 200, "{path}: {answer}");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    /// The blocks with an open finding, which must be of pages that were damaged.
    fn open(&self) -> Vec<u32> {
        let findings = self.json("/api/v1/targets/main/findings");
        let open = findings["findings"].as_array().unwrap().iter();
        open.filter(|finding| finding["severity"] != "notice")
            .map(|finding| {
                assert_eq!(finding["file"], self.name.as_str(), "a false alarm: {finding}");
                let block = u32::try_from(finding["page"].as_u64().unwrap()).unwrap();
                let site = self.sites.iter().find(|site| site.block == block);
                let site = site.unwrap_or_else(|| panic!("a false alarm: {finding}"));
                assert!(!matches!(site.life, Life::Sound(_)), "a false alarm: {finding}");
                block
            })
            .collect()
    }

    /// How the database stands, which must fit what is open.
    fn standing(&self) -> (String, Vec<u32>, Value) {
        let open = self.open();
        let target = self.json("/api/v1/status")["targets"][0].clone();
        assert_eq!(target["coverage"]["overdue"], false, "{target}");
        (target["state"].as_str().unwrap().to_owned(), open, target)
    }

    /// Looks at the pages, and compares them with what was so before and after.
    fn look(&mut self) {
        let (state, open, before) = self.standing();
        let (status, index) = self.serving.get("/");
        assert_eq!(status, 200, "{index}");
        let (status, page) = self.serving.get("/targets/main");
        assert_eq!(status, 200, "{page}");
        let (state_after, open_after, target) = self.standing();
        if (&state, &open, &before["coverage"]["pass_complete"])
            == (&state_after, &open_after, &target["coverage"]["pass_complete"])
        {
            // What the load added is not verified before a pass has come to it.
            let is_under_way = target["coverage"]["pass_complete"] == false;
            let fits = match state.as_str() {
                "damaged" => !open.is_empty(),
                "incomplete" => open.is_empty() && is_under_way,
                "intact" => open.is_empty(),
                _ => false,
            };
            assert!(fits, "{open:?}: {target}");
            for shown in [&index, &page] {
                assert!(shown.contains(&format!("</span> {state}</span>")), "{state}: {shown}");
            }
            let count = format!("<h2>Open findings ({})</h2>", open.len());
            assert!(page.contains(&count), "{count}: {page}");
            let table = page.split("<h2>Pages</h2>").next().unwrap();
            for block in &open {
                let cell = format!("data-label=\"Page\"><span>{block}</span>");
                assert!(table.contains(&cell), "{block}: {page}");
            }
            *self.looks.entry(state).or_default() += 1;
        }
        if self.last_pass != target["last_pass"]["finished"] {
            self.last_pass = target["last_pass"]["finished"].clone();
            self.passes += 1;
        }
        // Asked again: a pass that has ended since must have told what it found.
        let open = self.open();
        self.advance(&open);
    }

    /// Takes each page a step further in its life.
    fn advance(&mut self, open: &[u32]) {
        let file = fs::File::options().write(true).open(&self.path).unwrap();
        let later = |dice: &mut Dice| Instant::now() + Duration::from_millis(dice.next() % 60_000);
        for site in &mut self.sites {
            let is_open = open.contains(&site.block);
            let place = u64::from(site.block) * PAGE as u64;
            site.life = match site.life {
                Life::Sound(until) if Instant::now() >= until => {
                    let mut page = site.sound.clone();
                    let kinds = [Damage::BitInTuple, Damage::Noise, Damage::HeaderSmallLsn];
                    let kind = kinds[self.dice.within(0..kinds.len())];
                    kind.inflict(&mut self.dice, &mut page, site.block);
                    file.write_all_at(&page, place).unwrap();
                    Life::Damaged(self.passes)
                }
                Life::Damaged(_) if is_open => {
                    site.found += 1;
                    Life::Found(later(&mut self.dice))
                }
                Life::Found(until) if Instant::now() >= until => {
                    file.write_all_at(&site.sound, place).unwrap();
                    Life::Mended(self.passes)
                }
                Life::Mended(_) if !is_open => {
                    site.gone += 1;
                    Life::Sound(later(&mut self.dice))
                }
                // The pass that was under way may have been past the page.
                Life::Damaged(at) | Life::Mended(at) if self.passes > at + 1 => panic!(
                    "two passes have ended since page {} was changed, and nothing was said",
                    site.block
                ),
                Life::Sound(at) => Life::Sound(at),
                Life::Damaged(at) => Life::Damaged(at),
                Life::Found(at) => Life::Found(at),
                Life::Mended(at) => Life::Mended(at),
            };
        }
    }

    /// How often each page was reported as found, and as gone.
    fn alarms(&self) -> BTreeMap<(u64, String), usize> {
        let text = fs::read_to_string(self.folder.path().join("messages")).unwrap_or_default();
        let mut alarms = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            // The last line may be half written.
            let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
            for event in message["events"].as_array().unwrap() {
                let what = event["what"].as_str().unwrap();
                assert!(["finding", "gone"].contains(&what), "nothing else happened: {message}");
                let samples = event["samples"].as_array().unwrap();
                assert_eq!(event["count"], samples.len(), "{message}");
                for sample in samples {
                    let page = sample["page"].as_u64().unwrap();
                    *alarms.entry((page, what.to_owned())).or_default() += 1;
                }
            }
        }
        alarms
    }

    /// One alarm for each page that was found, and one for each that is gone.
    fn expected(&self) -> BTreeMap<(u64, String), usize> {
        let of = |site: &Site| {
            let page = u64::from(site.block);
            [((page, "finding".to_owned()), site.found), ((page, "gone".to_owned()), site.gone)]
        };
        self.sites.iter().flat_map(of).filter(|(_, count)| *count > 0).collect()
    }
}

#[test]
#[ignore = "an hour of PostgreSQL 18 under load"]
fn damage_that_comes_and_goes_under_load_is_told_once() {
    let Some(installation) = Installation::for_test("18").unwrap() else { return };
    let mut trial = Trial::begin(&installation);
    let begin = Instant::now();
    while begin.elapsed() < hour() {
        trial.look();
        assert!(trial.load.try_wait().unwrap().is_none(), "the load has ended");
        thread::sleep(LOOK_EVERY);
    }
    let end = Instant::now();
    while trial.alarms() != trial.expected() && end.elapsed() < ALARM_WITHIN {
        thread::sleep(LOOK_EVERY);
    }
    assert_eq!(trial.alarms(), trial.expected());
    let found: usize = trial.sites.iter().map(|site| site.found).sum();
    let gone: usize = trial.sites.iter().map(|site| site.gone).sum();
    let transactions =
        trial.cluster.psql("SELECT count(*) FROM pgbench_history").unwrap().parse::<u64>().unwrap();
    eprintln!(
        "{:?}, {transactions} transactions, {} passes: {found} times damage found within one pass, \
         {gone} times gone, one alarm each; looks at the pages, all right: {:?}",
        begin.elapsed(),
        trial.passes,
        trial.looks
    );
    assert!(found > 0 && gone > 0);
}
