//! Notifications by a clock that the test sets, with a receiver that remembers.

use std::path::Path;
use std::sync::Mutex;

use pagewarden::verdict::{ByteOffset, Finding, Kind, PageNo, Severity};
use serde_json::Value;

use super::deliver::Request;
use super::way::{By, Topic};
use super::*;
use crate::ledger::TargetId;
use crate::ledger::findings::{Room, Run, record, seen_sound};
use crate::ledger::tests::ledger;

/// A ledger with a target, a way, and a receiver that remembers.
struct Scene {
    _folder: tempfile::TempDir,
    held: crate::state::Held,
    ledger: Ledger,
    target: TargetId,
    ways: Vec<Way>,
    /// Ids and bodies that were taken.
    taken: Arc<Mutex<Vec<(String, Value)>>>,
    refuses: Arc<AtomicBool>,
}

impl Scene {
    fn new() -> Self {
        let (folder, held, ledger, target) = ledger();
        let way = Way {
            name: "ops".to_owned(),
            by: By::Webhook {
                url: "http://localhost/".to_owned(),
                secret_file: None,
                link_local: false,
            },
            on: Topic::ALL.to_vec(),
            wait: Duration::from_secs(60),
            per_hour: 3,
        };
        let (taken, refuses) = (Arc::default(), Arc::default());
        Self { _folder: folder, held, ledger, target, ways: vec![way], taken, refuses }
    }

    fn subjects() -> Vec<Subject> {
        vec![Subject::of_path(Path::new("/data"))]
    }

    fn run(&self, now: i64) -> Run<'static> {
        Run { target: self.target, member: "", run: now, pass: 1, now }
    }

    fn finds(&self, page: u64, severity: Severity, now: i64) {
        let mut finding = Finding::of_file("a", severity, Kind::Torn, "detail".to_owned());
        finding.place.page = Some(PageNo(page));
        finding.place.offset = Some(ByteOffset(page * 10));
        let mut room = Room::of(&self.ledger.db, self.target).unwrap();
        record(&self.ledger.db, self.run(now), &finding, true, &mut room).unwrap();
    }

    fn mends(&self, page: u64, now: i64) {
        seen_sound(&self.ledger.db, self.run(now), "a", page * 10, page * 10 + 10).unwrap();
    }

    /// One turn of a server; returns the messages that were taken in it.
    fn turn(&mut self, now: i64) -> Vec<Value> {
        let before = self.taken.lock().unwrap().len();
        look(&mut self.ledger, &Self::subjects(), &self.ways, now).unwrap();
        self.send(now);
        self.taken.lock().unwrap()[before..].iter().map(|(_, body)| body.clone()).collect()
    }

    fn send(&mut self, now: i64) {
        let (taken, refuses) = (Arc::clone(&self.taken), Arc::clone(&self.refuses));
        let post = move |request: &Request<'_>, _: &AtomicBool| {
            if refuses.load(Ordering::Relaxed) {
                return Err("the receiver answered 503".to_owned());
            }
            let id = request.headers.iter().find(|(name, _)| *name == "Pagewarden-Id");
            let body = serde_json::from_str(request.body).unwrap();
            taken.lock().unwrap().push((id.unwrap().1.clone(), body));
            Ok(())
        };
        let notifier = Notifier { post: &post, stop: Arc::default(), log: &|_| {} };
        notifier.send(&mut self.ledger, &self.ways, now, false).unwrap();
    }

    fn not_taken(&self) -> (u64, u64) {
        let Notifications { waiting, given_up } = standing(&self.ledger).unwrap().unwrap();
        (waiting, given_up)
    }

    /// As after a kill: what was committed is there.
    fn killed(mut self) -> Self {
        self.ledger = Ledger::open(&self.held).unwrap();
        self
    }
}

/// What a message says: the kind of each event and its number.
fn events(message: &Value) -> Vec<(String, u64)> {
    let events = message["events"].as_array().unwrap().iter();
    events
        .map(|event| (event["what"].as_str().unwrap().to_owned(), event["count"].as_u64().unwrap()))
        .collect()
}

fn one(what: &str, count: u64) -> Vec<(String, u64)> {
    vec![(what.to_owned(), count)]
}

#[test]
fn findings_are_grouped_and_reported_once() {
    let mut scene = Scene::new();
    scene.finds(1, Severity::Damage, 1000);
    assert!(scene.turn(1001).is_empty(), "more may come");
    scene.finds(2, Severity::Suspect, 1020);
    scene.finds(3, Severity::Notice, 1020);
    assert!(scene.turn(1060).is_empty());
    let messages = scene.turn(1061);
    assert_eq!(messages.len(), 1);
    assert_eq!(events(&messages[0]), one("finding", 2));
    let text = messages[0]["text"].as_str().unwrap();
    assert!(text.contains("a page 1: torn (damage)"), "{text}");
    assert!(text.contains("look: pagewarden check /data"), "{text}");
    // Seen again, it is no news; what was merely suspect and is damage now is.
    scene.finds(1, Severity::Damage, 1100);
    assert!(scene.turn(1200).is_empty());
    scene.finds(2, Severity::Damage, 1300);
    scene.turn(1300);
    assert_eq!(events(&scene.turn(1361)[0]), one("finding", 1));
    for page in 1..4 {
        scene.mends(page, 1400);
    }
    scene.turn(1400);
    let gone = scene.turn(1461);
    assert_eq!(events(&gone[0]), one("gone", 2), "no word of the notice");
    assert!(gone[0]["text"].as_str().unwrap().contains("the page was seen sound"));
    assert!(scene.turn(99_999).iter().all(|message| events(message) != one("gone", 2)));
}

#[test]
fn every_alarm_is_sent_once_over_kills_between_any_two_steps() {
    let mut scene = Scene::new();
    scene.finds(1, Severity::Damage, 1000);
    scene = scene.killed();
    look(&mut scene.ledger, &Scene::subjects(), &scene.ways, 1001).unwrap();
    scene = scene.killed();
    look(&mut scene.ledger, &Scene::subjects(), &scene.ways, 1002).unwrap();
    assert!(gather(&mut scene.ledger, &scene.ways[0].clone(), 1062, false).unwrap());
    scene = scene.killed();
    assert!(!gather(&mut scene.ledger, &scene.ways[0].clone(), 1063, false).unwrap());
    assert_eq!(scene.turn(1064).len(), 1);
    scene = scene.killed();
    assert!(scene.turn(1065).is_empty() && scene.turn(2000).is_empty());
    // Taken, and killed before that was written down: once more, under the same id.
    scene.ledger.db.execute("UPDATE message SET done_at = NULL", []).unwrap();
    scene = scene.killed();
    assert_eq!(scene.turn(9000).len(), 1);
    let taken = scene.taken.lock().unwrap();
    assert_eq!(taken[0], taken[1]);
}

#[test]
fn receiver_that_fails_is_asked_again_later_each_time_and_gets_what_came_meanwhile_as_one() {
    let mut scene = Scene::new();
    scene.refuses.store(true, Ordering::Relaxed);
    scene.finds(1, Severity::Damage, 0);
    let mut attempts = Vec::new();
    for now in 0..4000_i64 {
        if now % 100 == 50 {
            scene.finds(10 + now.unsigned_abs(), Severity::Damage, now);
        }
        look(&mut scene.ledger, &Scene::subjects(), &scene.ways, now).unwrap();
        let count = |scene: &Scene| -> i64 {
            let sql = "SELECT coalesce(sum(attempts), 0) FROM message";
            scene.ledger.db.query_row(sql, [], |row| row.get(0)).unwrap()
        };
        let before = count(&scene);
        scene.send(now);
        if count(&scene) > before {
            attempts.push(now - 60);
        }
    }
    assert_eq!(attempts, [0, 10, 30, 70, 150, 310, 630, 1270, 2550]);
    assert_eq!(scene.not_taken(), (1, 0));
    scene.refuses.store(false, Ordering::Relaxed);
    assert_eq!(events(&scene.turn(6200)[0]), one("finding", 2), "the message as it was made");
    let rest = scene.turn(6201);
    assert_eq!(events(&rest[0]), one("finding", 39));
    let samples = rest[0]["events"][0]["samples"].as_array().unwrap().len();
    assert_eq!(samples, changes::SAMPLES_MAX);
    assert!(rest[0]["text"].as_str().unwrap().contains("  and 34 more\n"));
    // One that is never taken is given up.
    scene.refuses.store(true, Ordering::Relaxed);
    scene.finds(1_000_000, Severity::Damage, 10_000);
    for now in (10_000..10_000 + GIVE_UP_SECONDS + 8000).step_by(1800) {
        scene.turn(now);
    }
    assert_eq!(scene.not_taken(), (0, 1));
}

#[test]
fn messages_of_an_hour_are_capped() {
    let mut scene = Scene::new();
    let mut sent = Vec::new();
    for now in 0..7300_i64 {
        if now % 100 == 0 {
            scene.finds(now.unsigned_abs(), Severity::Damage, now);
        }
        sent.extend(scene.turn(now).iter().map(|message| (now, events(message)[0].1)));
    }
    // Three an hour, and none of the findings is lost.
    let times: Vec<_> = sent.iter().map(|(now, _)| *now).collect();
    assert_eq!(times, [60, 160, 260, 3660, 3760, 3860, 7260]);
    assert_eq!(sent.iter().map(|(_, count)| count).sum::<u64>(), 73);
}

#[test]
fn overdue_and_unreadable_are_reported_when_they_begin_and_when_they_end() {
    let mut scene = Scene::new();
    let week = 7 * 24 * 3600;
    scene.ways[0].wait = Duration::ZERO;
    // Entered at 1000, and never verified since.
    assert!(scene.turn(1000 + week).is_empty());
    let late = scene.turn(1001 + week);
    assert_eq!(events(&late[0]), one("overdue", 1));
    assert!(late[0]["subject"].as_str().unwrap().contains("/data is overdue"), "{late:?}");
    assert!(scene.turn(1100 + week).is_empty());
    scene
        .ledger
        .failed(scene.target, "cannot open it: no such file\nhint: x", 1200 + week)
        .unwrap();
    let unreadable = scene.turn(1200 + week);
    assert_eq!(events(&unreadable[0]), one("unreadable", 1));
    let text = unreadable[0]["text"].as_str().unwrap();
    assert!(text.contains("cannot be read: cannot open it: no such file\n"), "{text}");
    scene.ledger.db.execute("UPDATE target SET error = NULL, pass = 1", []).unwrap();
    let back = scene.turn(8000 + week);
    let both = [("readable".to_owned(), 1), ("in_time".to_owned(), 1)];
    assert_eq!(events(&back[0]), both);
}

#[test]
fn ways_get_what_they_ask_for_and_clocks_may_be_set_back() {
    let mut scene = Scene::new();
    scene.ways[0].on = vec![Topic::Overdue];
    scene.finds(1, Severity::Damage, 1000);
    assert!(scene.turn(1000).is_empty() && scene.turn(2000).is_empty());
    scene.ways[0].on = vec![Topic::Finding];
    scene.finds(2, Severity::Damage, 5000);
    assert!(scene.turn(5000).is_empty());
    // An hour back: it is not waited until that time comes again.
    assert_eq!(events(&scene.turn(1400)[0]), one("finding", 1));
}
