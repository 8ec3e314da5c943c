//! Made-up chains: what fits, what is missing, which way is taken.

use super::*;
use crate::mtf::details::Configuration;

const FAMILY: Guid = Guid([1; 16]);

fn lsn(block: u32) -> Lsn {
    Lsn { file: 42, block, slot: 1 }
}

fn date(minute: u8) -> Option<Date> {
    Some(Date { year: 2026, month: 4, day: 18, hour: 20, minute, second: 0 })
}

/// A backup with its id, the log that is in it, and when it was made.
fn set(kind: SetKind, id: u8, first: u32, last: u32, minute: u8) -> Set {
    let configuration = Configuration {
        database: "shop".to_owned(),
        server: String::new(),
        server_version: (15, 0, 4382),
        database_version: 904,
        compatibility: 150,
        first_lsn: lsn(first),
        last_lsn: lsn(last),
        checkpoint_lsn: lsn(first),
        previous_full_lsn: Lsn::default(),
        created: None,
        begun: date(minute),
        ended: date(minute + 1),
        kind: b'D',
        fork: Fork { id: FAMILY, ..Fork::default() },
        family: FAMILY,
        base_id: Guid::default(),
        files: Vec::new(),
        contents: Vec::new(),
    };
    Set {
        is_elsewhere: false,
        files: vec![PathBuf::from(format!("{id}.bak"))],
        stripes: 1,
        bytes: 0,
        is_compressed: false,
        unusable: None,
        header: SetHeader {
            id: Guid([id; 16]),
            number: 1,
            name: String::new(),
            kind,
            configuration: Box::new(configuration),
            data_pages: Vec::new(),
            is_whole: true,
        },
    }
}

fn full(id: u8, first: u32, last: u32, minute: u8) -> Set {
    set(SetKind::Full, id, first, last, minute)
}

fn log(id: u8, first: u32, last: u32, minute: u8) -> Set {
    set(SetKind::Log, id, first, last, minute)
}

fn differential(id: u8, base: &Set, first: u32, last: u32, minute: u8) -> Set {
    let mut set = set(SetKind::Differential, id, first, last, minute);
    set.header.configuration.base_id = base.header.id;
    set.header.configuration.previous_full_lsn = base.header.configuration.checkpoint_lsn;
    set
}

/// Full 1, log 2, differential 3, logs 4 and 5, full 6, log 7.
fn chain() -> Vec<Set> {
    let first = full(1, 100, 110, 0);
    let changed = differential(3, &first, 150, 160, 10);
    vec![
        first,
        log(2, 90, 140, 5),
        changed,
        log(4, 140, 200, 15),
        log(5, 200, 250, 20),
        full(6, 260, 270, 25),
        log(7, 250, 300, 30),
    ]
}

fn database(sets: Vec<Set>) -> Database {
    let mut all = Database::all(sets);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn without(ids: &[u8]) -> Database {
    database(chain().into_iter().filter(|set| !ids.contains(&set.header.id.0[0])).collect())
}

fn id_of(set: &Set) -> u8 {
    set.header.id.0[0]
}

fn ranges(database: &Database) -> Vec<(u32, u32)> {
    database.ranges().iter().map(|range| (range.from.block, range.to.block)).collect()
}

fn way(database: &Database) -> Vec<u8> {
    database.newest().into_iter().map(id_of).collect()
}

/// Each lack by the id of the backup that it keeps away, and that before the gap.
fn lacks(database: &Database) -> Vec<(u8, Option<u8>)> {
    let id = |at: usize| id_of(&database.sets[at]);
    let all = database.lacks();
    all.into_iter()
        .map(|lack| match lack {
            Lack::Gap { before, log, .. } => (id(log), before.map(id)),
            Lack::Base { set, base } => (id(set), base.map(id)),
        })
        .collect()
}

#[test]
fn whole_chain_brings_back_any_moment() {
    let whole = without(&[]);
    assert_eq!(ranges(&whole), [(110, 300)]);
    assert_eq!((way(&whole), lacks(&whole)), (vec![6, 7], vec![]));
    let range = &whole.ranges()[0];
    assert_eq!(
        (range.from_time, range.to_time),
        (date(1), date(30)),
        "a log ends when it is begun"
    );
}

#[test]
fn each_backup_that_is_missing_costs_what_only_it_holds() {
    type Case<'a> = (u8, &'a [(u32, u32)], &'a [u8], &'a [(u8, Option<u8>)]);
    let cases: [Case<'_>; 7] = [
        // The differential has lost its base, and the logs what they go on from.
        (1, &[(270, 300)], &[6, 7], &[(3, None)]),
        // The differential leads over the gap, into which old states cannot be brought.
        (2, &[(110, 110), (160, 300)], &[6, 7], &[(4, Some(1))]),
        (3, &[(110, 300)], &[6, 7], &[]),
        (4, &[(110, 140), (160, 160), (270, 300)], &[6, 7], &[(5, Some(3))]),
        (5, &[(110, 200), (270, 300)], &[6, 7], &[(7, Some(4))]),
        (6, &[(110, 300)], &[1, 3, 4, 5, 7], &[]),
        (7, &[(110, 250), (270, 270)], &[6], &[]),
    ];
    for (missing, expected, expected_way, expected_lacks) in cases {
        let rest = without(&[missing]);
        assert_eq!(ranges(&rest), expected, "without {missing}");
        assert_eq!(way(&rest), expected_way, "without {missing}");
        assert_eq!(lacks(&rest), expected_lacks, "without {missing}");
    }
    assert_eq!(lacks(&without(&[1, 6])), [(3, None), (2, None)], "no full backup at all");
}

#[test]
fn backup_that_cannot_be_used_counts_as_missing() {
    for missing in 1..=7 {
        let mut sets = chain();
        let set = sets.iter_mut().find(|set| id_of(set) == missing).unwrap();
        set.unusable = Some("it is damaged".to_owned());
        let (damaged, rest) = (database(sets), without(&[missing]));
        assert_eq!(ranges(&damaged), ranges(&rest), "{missing}");
        assert_eq!(way(&damaged), way(&rest), "{missing}");
    }
}

#[test]
fn copy_of_a_backup_is_the_same_backup() {
    let mut sets = chain();
    let mut copy = sets[0].clone();
    sets[0].unusable = Some("it is damaged".to_owned());
    copy.files = vec![PathBuf::from("copy.bak")];
    sets.push(copy);
    let database = database(sets);
    assert_eq!(database.sets.len(), 7);
    assert_eq!(ranges(&database), [(110, 300)]);
}

/// After full 1 was restored, a new history leaves the old one where that backup ends.
#[test]
fn log_of_another_history_does_not_fit() {
    let other = Fork { id: Guid([9; 16]), point: lsn(110), left: FAMILY };
    let mut after = log(8, 105, 180, 40);
    after.header.configuration.fork = other;
    let mut sets = vec![full(1, 100, 110, 0), log(2, 90, 140, 5), after.clone()];
    let of = database(sets.clone());
    assert_eq!(lacks(&of), [], "the new history goes on from full 1, and not from log 2");
    assert_eq!(way(&of), [1, 8]);
    // Without the backup that was restored, the new history cannot be joined to the old one.
    sets[0] = full(3, 112, 120, 1);
    let of = database(sets);
    assert_eq!(way(&of), [3, 2]);
    assert_eq!(lacks(&of), [(8, None)]);
}

#[test]
fn databases_of_one_name_and_of_different_families_are_apart() {
    let mut other = full(9, 500, 510, 0);
    other.header.configuration.family = Guid([2; 16]);
    let all = Database::all(vec![full(1, 100, 110, 0), other]);
    assert_eq!(all.len(), 2);
}
