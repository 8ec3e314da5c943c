//! A week, by a clock that the test sets: three hours a step, with damage, a repair, a file that is away, a
//! machine that is off, and a clock that goes back. Each change is reported once.

use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pagewarden::database::OpenOptions;
use pagewarden::system::FileExt as _;
use pagewarden::verdict::Verdict;
use pagewarden::verify::Options;
use serde_json::Value;

use super::{Done, Scrub};
use crate::config::Subject;
use crate::ledger::Ledger;
use crate::notify::deliver::Request;
use crate::notify::way::{By, Topic, Way};
use crate::notify::{self, Notifier};
use crate::state::Held;

const HOUR: i64 = 3600;
const BEGIN: i64 = 1_800_000_000;
static CLOCK: AtomicI64 = AtomicI64::new(BEGIN);

fn clock() -> i64 {
    CLOCK.load(Ordering::Relaxed)
}

struct Week {
    _folder: tempfile::TempDir,
    ledger: Ledger,
    subject: Subject,
    way: Way,
    /// What was reported, with the hour.
    told: Arc<Mutex<Vec<(i64, String)>>>,
}

impl Week {
    fn scrub(&mut self) -> Result<Done, pagewarden::Error> {
        let one = NonZero::new(1).unwrap();
        let mut scrub = Scrub {
            ledger: &mut self.ledger,
            open: OpenOptions::default(),
            options: Options { jobs: one, ..Options::default() },
            stop: Arc::new(AtomicBool::new(false)),
            deadline: None,
            clock,
            seals: Path::new("/no/such/folder").to_owned(),
        };
        scrub.target(&self.subject, &mut (), &()).unwrap()
    }

    fn report(&mut self) {
        let told = Arc::clone(&self.told);
        let post = move |request: &Request<'_>, _: &AtomicBool| {
            let body: Value = serde_json::from_str(request.body).unwrap();
            let hour = (clock() - BEGIN) / HOUR;
            for event in body["events"].as_array().unwrap() {
                told.lock().unwrap().push((hour, event["what"].as_str().unwrap().to_owned()));
            }
            Ok(())
        };
        let subjects = [self.subject.clone()];
        let ways = [self.way.clone()];
        notify::look(&mut self.ledger, &subjects, &ways, clock()).unwrap();
        let notifier = Notifier { post: &post, stop: Arc::default(), log: &|_| {} };
        notifier.send(&mut self.ledger, &ways, clock(), true).unwrap();
    }
}

/// A table of a few hundred pages.
fn make(path: &Path) {
    let db = rusqlite::Connection::open(path).unwrap();
    db.execute_batch(
        "CREATE TABLE t (a); WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 500)
         INSERT INTO t SELECT randomblob(900) FROM n;",
    )
    .unwrap();
}

/// What was written within a tick of the clock is read again.
fn grow_old() {
    std::thread::sleep(Duration::from_millis(60));
}

#[test]
fn week_has_each_change_reported_once_and_every_page_verified_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.sqlite");
    make(&path);
    grow_old();
    let held = Held::lock(&folder.path().join("state"), "test", &[]).unwrap();
    let ledger = Ledger::open(&held).unwrap();
    let subject = Subject { every: Duration::from_secs(86_400), ..Subject::of_path(&path) };
    let way = Way {
        name: "ops".to_owned(),
        by: By::Webhook {
            url: "http://localhost/".to_owned(),
            secret_file: None,
            link_local: false,
        },
        on: Topic::ALL.to_vec(),
        wait: Duration::ZERO,
        per_hour: 12,
    };
    let mut week = Week { _folder: folder, ledger, subject, way, told: Arc::default() };
    let away = path.with_extension("away");
    let file = fs::File::options().read(true).write(true).open(&path).unwrap();
    let mut kind = [0];
    file.read_exact_at(&mut kind, 20 * 4096).unwrap();
    let mut passes = 0;
    for hour in (0..168).step_by(3) {
        CLOCK.store(BEGIN + hour * HOUR, Ordering::Relaxed);
        match hour {
            // A page of a kind that there is not, and what it was.
            30 => file.write_all_at(&[0x77], 20 * 4096).unwrap(),
            51 => file.write_all_at(&kind, 20 * 4096).unwrap(),
            81 => fs::rename(&path, &away).unwrap(),
            90 => fs::rename(&away, &path).unwrap(),
            // The clock goes back by ten hours, and comes forward again.
            150..155 => CLOCK.store(BEGIN + (hour - 10) * HOUR, Ordering::Relaxed),
            _ => {}
        }
        if [30, 51, 81, 90].contains(&hour) {
            grow_old();
        }
        let is_off = (99..129).contains(&hour);
        if !is_off {
            let done = week.scrub();
            let expected = match hour {
                30..51 => Some(Verdict::Damaged),
                81..90 => None,
                _ => Some(Verdict::Unprotected),
            };
            let verdict = done.as_ref().ok().map(|done| done.verdict);
            assert_eq!(verdict, expected, "hour {hour}");
            if let Ok(done) = done {
                assert!(!done.coverage.overdue, "hour {hour}");
                assert!(done.coverage.oldest_unverified_seconds <= 86_400);
                passes += i32::from(done.coverage.pass_complete && done.summary.pages.total() > 0);
            }
        }
        // Who looks from outside sees that nothing is verified any more.
        week.report();
    }
    let told = week.told.lock().unwrap().clone();
    let expected = [
        (30, "finding"),
        (51, "gone"),
        (81, "unreadable"),
        (90, "readable"),
        (told.iter().find(|(_, what)| what == "overdue").unwrap().0, "overdue"),
        (129, "in_time"),
    ];
    assert_eq!(told, expected.map(|(hour, what)| (hour, what.to_owned())));
    let (late, _) = told[4];
    assert!((107..=125).contains(&late), "a day after a pass: hour {late}");
    assert!(passes >= 8, "{passes} passes in a week");
}
