//! The last proof of "intact": thousands of wounds of every kind, in every kind of file of a
//! cleanly stopped cluster. Each gets a finding, or makes the verdict incomplete, or belongs
//! to a class of what these tests cannot detect, which that run's own report names. What is
//! lost as a whole and called intact, the real server must start with, and read.
//!
//! Many wounds are inflicted at once, each in a file of its own; a wound without a finding
//! of its own is inflicted again alone, and the verdict on that decides.
//!
//! `PAGEWARDEN_WOUNDS` says how many a version (2400), `PAGEWARDEN_SEED` which,
//! `PAGEWARDEN_TEST_VERSIONS` of what.

mod inflict;
mod subject;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use pagewarden_scratch::postgres::{Cluster, Installation, StopMode};

use crate::clusters::installations;
use crate::damage::Dice;
use crate::runner::{OrdinaryUser, Report, check, run};
use inflict::{Inflicted, Kind, Wound};
use subject::{Class, Subject, Thing};

/// Wounds of one run.
const AT_ONCE: usize = 24;
/// Catalogues that say which files there are: with a wound in one, others may go unseen.
const BOOKS: [&str; 8] = ["1259", "1262", "1249", "2610", "2615", "1213", "2601", "1247"];

/// The words of a report for what its tests cannot detect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Blind {
    SumByChance,
    /// Zeroed or cut, where no map and no index knows.
    Unknown,
    Older,
    OtherRelation,
    Status,
    Log,
    Settings,
    /// Nothing is lost: a server makes it anew, or does not read it. Tried with one.
    Harmless,
}

impl Blind {
    fn words(self) -> Option<&'static str> {
        Some(match self {
            Self::SumByChance => "1 damaged page in 65,535",
            Self::Unknown => "zeroed pages and cut ends that no map or index knows",
            Self::Older => "older versions of a page",
            Self::OtherRelation => "pages of a like relation",
            Self::Status => "most of pg_xact and pg_multixact",
            Self::Log => "the log but for its last checkpoint",
            Self::Settings => "settings",
            Self::Harmless => return None,
        })
    }
}

/// The class of what may pass, if any.
fn blind(wound: &Wound) -> Option<Blind> {
    let (kind, class) = (wound.kind, wound.thing.class);
    let is_end_or_zero = matches!(
        kind,
        Kind::Zeroed
            | Kind::ZeroedRange
            | Kind::CutBetweenPages
            | Kind::HalfCut
            | Kind::AllZeroed
            | Kind::Emptied
    );
    Some(match class {
        Class::Log if kind.is_loss() => Blind::Harmless,
        Class::Log => Blind::Log,
        Class::TransactionStatus if kind.is_loss() => Blind::Harmless,
        Class::TransactionStatus => Blind::Status,
        Class::Small if wound.thing.path.ends_with(".conf") => Blind::Settings,
        Class::Small | Class::Folder | Class::TablespaceLink => Blind::Harmless,
        _ if matches!(kind, Kind::OlderPage | Kind::OlderFile) => Blind::Older,
        _ if kind == Kind::GrownByZeroPages => Blind::Harmless,
        _ if kind == Kind::OfAnotherRelation => {
            return wound.is_of_same_kind().then_some(Blind::OtherRelation);
        }
        Class::FreeSpace | Class::VisibilityMap if is_end_or_zero || kind == Kind::Removed => {
            Blind::Harmless
        }
        // The last pages of an index may be unused.
        Class::Heap
        | Class::Btree
        | Class::Hash
        | Class::Gist
        | Class::Gin
        | Class::SpGist
        | Class::Brin
            if is_end_or_zero =>
        {
            Blind::Unknown
        }
        _ if wound.is_right_by_chance => Blind::SumByChance,
        _ => return None,
    })
}

/// How a wound was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Found,
    Blind(Blind),
    Wrong,
}

struct Campaign<'a> {
    subject: &'a Subject,
    tally: BTreeMap<(Kind, Class), BTreeMap<Told, u32>>,
    /// Called intact; a server must live with them.
    for_the_server: Vec<Wound>,
    wrong: Vec<String>,
}

impl<'a> Campaign<'a> {
    fn root(&self) -> &'a Path {
        self.subject.cluster.data_dir()
    }

    /// Inflicts all, and says which were found.
    fn run(&mut self, wounds: Vec<Wound>) {
        let mut inflicted: Vec<Inflicted> =
            wounds.iter().map(|wound| wound.inflict(self.root())).collect();
        let report = check([self.root()]).report();
        while let Some(last) = inflicted.pop() {
            drop(last);
        }
        let is_single = wounds.len() == 1;
        for wound in wounds {
            match is_single {
                true => self.decide(wound, &report),
                false if is_named(&wound, &report) => self.count(&wound, Told::Found),
                false => self.run(vec![wound]),
            }
        }
    }

    fn decide(&mut self, wound: Wound, report: &Report) {
        if report.verdict() != "intact" {
            return self.count(&wound, Told::Found);
        }
        let unseen = report.target()["unseen"].as_str().unwrap();
        let class = blind(&wound);
        let is_admitted =
            class.is_some_and(|blind| blind.words().is_none_or(|words| unseen.contains(words)));
        let told = class.filter(|_| is_admitted).map_or(Told::Wrong, Told::Blind);
        if told == Told::Wrong {
            self.wrong.push(wound.describe());
        }
        self.count(&wound, told);
        // Settings may lie elsewhere, which is a note.
        let is_claimed = wound.kind.is_loss() || class == Some(Blind::Harmless);
        if is_claimed && class != Some(Blind::Settings) {
            self.for_the_server.push(wound);
        }
    }

    fn count(&mut self, wound: &Wound, told: Told) {
        let of_kind = self.tally.entry((wound.kind, wound.thing.class)).or_default();
        *of_kind.entry(told).or_default() += 1;
    }

    /// What was called intact, a server must open and read: many at once, and each alone
    /// where that fails.
    fn ask_the_server(&mut self, wounds: &[Wound]) {
        if wounds.is_empty() {
            return;
        }
        let copy = self.subject.cluster.duplicate().unwrap();
        let kept: Vec<Inflicted> =
            wounds.iter().map(|wound| wound.inflict(copy.data_dir())).collect();
        let read = open_and_read(copy);
        // Its folder has gone with the server.
        kept.into_iter().for_each(std::mem::forget);
        match (read, wounds) {
            (Ok(()), _) => {}
            (Err(error), [wound]) => {
                self.wrong.push(format!("the server: {}: {error}", wound.describe()));
            }
            (Err(_), _) => {
                let (left, right) = wounds.split_at(wounds.len() / 2);
                self.ask_the_server(left);
                self.ask_the_server(right);
            }
        }
    }
}

/// True if the report speaks of this file, and of these pages if it is about pages.
fn is_named(wound: &Wound, report: &Report) -> bool {
    let path = wound.thing.path.as_str();
    let is_about = |file: &str| match wound.thing.class {
        Class::Folder => file == path || file.starts_with(&format!("{path}/")),
        _ => file == path,
    };
    let found = report.serious().into_iter().any(|finding| {
        let block = finding.page;
        is_about(&finding.file)
            && (wound.blocks.is_empty() || block.is_none_or(|block| wound.blocks.contains(&block)))
    });
    found || report.unread().keys().any(|file| is_about(file))
}

/// Reads all rows of all tables of a database.
const READ_ALL: &str = "DO $$ DECLARE t regclass; BEGIN
     FOR t IN SELECT oid FROM pg_class WHERE relkind IN ('r', 'm') LOOP
     EXECUTE format('SELECT count(t::text) FROM %s t', t); END LOOP; END $$";

fn open_and_read(mut cluster: Cluster) -> Result<(), String> {
    cluster.start().map_err(|error| format!("{error:#} {}", cluster.log()))?;
    for database in ["postgres", "other", "template1"] {
        // VACUUM reads indexes and maps, and an INSERT asks for free space.
        let mut statements = vec![READ_ALL, "VACUUM"];
        if database != "template1" {
            statements
                .push("INSERT INTO item SELECT i, 'more' FROM generate_series(10001, 11000) i");
        }
        let read = cluster.execute(database, &statements);
        read.map_err(|error| format!("{database}: {error:#}"))?;
    }
    cluster.stop(StopMode::Fast).map_err(|error| format!("{error:#}"))
}

/// True for what decides what can be said of others: wounded alone.
fn is_alone(thing: &Thing, kind: Kind) -> bool {
    let name = thing.path.rsplit('/').next().unwrap();
    let is_book = BOOKS.contains(&name);
    let is_of_cluster = matches!(
        thing.class,
        Class::Small
            | Class::TransactionStatus
            | Class::Log
            | Class::Folder
            | Class::TablespaceLink
    );
    is_book || is_of_cluster || kind == Kind::OlderFile
}

/// Draws wounds: one in three a loss of a thing as a whole, one in six to what has no pages.
fn draw(subject: &Subject, count: usize, dice: &mut Dice) -> Vec<Wound> {
    let has_pages = |thing: &&Thing| thing.class < Class::TransactionStatus;
    let (paged, others): (Vec<&Thing>, Vec<&Thing>) = subject.things.iter().partition(has_pages);
    let is_user_made = |thing: &&&Thing| {
        let name = thing.path.rsplit('/').next().unwrap();
        name.split(['_', '.']).next().unwrap().parse().is_ok_and(|number: u32| number >= 16384)
    };
    let own: Vec<&Thing> = paged.iter().filter(is_user_made).copied().collect();
    let mut wounds = Vec::new();
    while wounds.len() < count {
        // Catalogues are many and small; what users made is wounded as often.
        let from = match dice.within(0..6) {
            0 => &others,
            1 | 2 => &paged,
            _ => &own,
        };
        let thing = from[dice.within(0..from.len())];
        let kind = match dice.within(0..3) {
            0 => Kind::LOSSES[dice.within(0..Kind::LOSSES.len())],
            _ => Kind::OF_PAGES[dice.within(0..Kind::OF_PAGES.len())],
        };
        wounds.extend(Wound::draw(subject, thing, kind, dice));
    }
    wounds
}

/// Groups of wounds that do not touch one file, those that are alone by themselves.
fn groups(wounds: Vec<Wound>) -> Vec<Vec<Wound>> {
    let mut groups = Vec::new();
    let (mut group, mut files) = (Vec::new(), BTreeSet::new());
    for wound in wounds {
        if is_alone(&wound.thing, wound.kind) {
            groups.push(vec![wound]);
            continue;
        }
        let stem = wound.thing.path.split('_').collect::<Vec<_>>().join("_");
        if group.len() == AT_ONCE || !files.insert(stem) {
            groups.push(std::mem::take(&mut group));
            files.clear();
            files.insert(wound.thing.path.clone());
        }
        group.push(wound);
    }
    groups.push(group);
    groups.retain(|group| !group.is_empty());
    groups
}

fn campaign(installation: &Installation, count: usize) {
    let version = &installation.version;
    let mut dice = Dice::seeded();
    let Some(subject) = Subject::new(installation) else { return };
    let root = subject.cluster.data_dir();
    let outcome = check([root]);
    assert_eq!(outcome.report().verdict(), "intact", "{version}: {outcome:?}");
    closed(&subject, count / 10, &mut dice);
    let wounds = draw(&subject, count, &mut dice);
    let mut campaign = Campaign {
        subject: &subject,
        tally: BTreeMap::new(),
        for_the_server: Vec::new(),
        wrong: Vec::new(),
    };
    let mut done = 0;
    for group in groups(wounds) {
        if (done + group.len()) / 200 > done / 200 {
            println!("PostgreSQL {version}: {done} of {count}, wrong {:?}", campaign.wrong);
        }
        done += group.len();
        campaign.run(group);
    }
    assert_eq!(check([root]).report().verdict(), "intact", "{version}: all is healed");
    let mut intact = std::mem::take(&mut campaign.for_the_server);
    let mut seen = BTreeSet::new();
    intact.retain(|wound| seen.insert(wound.thing.path.clone()));
    println!("PostgreSQL {version}: {} called intact are tried with a server", intact.len());
    // What is in a folder that is gone cannot be wounded beside it.
    let (folders, files): (Vec<_>, Vec<_>) =
        intact.into_iter().partition(|wound| wound.thing.class >= Class::Folder);
    for group in folders.chunks(1).chain(files.chunks(AT_ONCE)) {
        campaign.ask_the_server(group);
    }
    let mut totals: BTreeMap<Told, u32> = BTreeMap::new();
    for ((kind, class), told) in &campaign.tally {
        println!("{kind:?} {class:?}: {told:?}");
        for (told, count) in told {
            *totals.entry(*told).or_default() += count;
        }
    }
    println!("PostgreSQL {version}: {totals:?}");
    assert!(campaign.wrong.is_empty(), "{version}: called intact: {:#?}", campaign.wrong);
}

/// What may not be read is unread, each by its name; the rest is checked.
fn closed(subject: &Subject, count: usize, dice: &mut Dice) {
    let copy = subject.cluster.duplicate().unwrap();
    let user = OrdinaryUser::new();
    let home = copy.home();
    let opened = std::process::Command::new("chmod").args(["-R", "a+rX"]).arg(home).status();
    assert!(opened.unwrap().success());
    let check = || {
        let command = &mut user.pagewarden();
        run(command.args(["check", "--json"]).arg(copy.data_dir())).report()
    };
    assert_eq!(check().verdict(), "intact", "as another user");
    let mut closed = 0;
    while closed < count {
        let things: Vec<&Thing> = (0..AT_ONCE.min(count - closed))
            .map(|_| &subject.things[dice.within(0..subject.things.len())])
            .filter(|thing| thing.class < Class::TablespaceLink)
            .collect();
        // A folder hides what is in it, and without the control file it is not known which others
        // there must be: these are closed alone.
        let hides =
            |thing: &&Thing| thing.class == Class::Folder || thing.path == "global/pg_control";
        let (hiding, files): (Vec<_>, Vec<_>) = things.into_iter().partition(hides);
        let alone = hiding.into_iter().map(|thing| vec![thing]);
        for group in alone.chain([files]).filter(|group| !group.is_empty()) {
            let paths = group.iter().map(|thing| copy.data_dir().join(&thing.path));
            let modes: Vec<_> = paths
                .map(|path| (path.clone(), fs::metadata(path).unwrap().permissions()))
                .collect();
            for (path, _) in modes.iter().rev() {
                fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
            }
            let report = check();
            for (path, mode) in modes {
                fs::set_permissions(path, mode).unwrap();
            }
            for thing in group {
                // Files that a server makes anew are not asked for.
                let is_needless = is_needless(&thing.path);
                let is_unread = report.unread().keys().any(|file| *file == thing.path);
                let is_all = thing.class == Class::Folder && report.verdict() == "incomplete";
                assert!(is_unread || is_all || is_needless, "{}: {}", thing.path, report.json);
                closed += 1;
            }
        }
    }
}

/// What is not asked for: of the log only the last checkpoint is read, and what is temporary
/// may be gone.
fn is_needless(path: &str) -> bool {
    path.starts_with("pg_wal/") || path == "pg_stat_tmp"
}

#[test]
#[ignore = "slow: thousands of checks, and servers"]
fn slow_campaign_of_wounds() {
    let count = std::env::var("PAGEWARDEN_WOUNDS").map_or(2400, |count| count.parse().unwrap());
    for installation in installations() {
        campaign(&installation, count);
    }
}
