//! How mounts end: by signals, from outside, and by force.

use rustix::fs::{Advice, fadvise};

use super::*;
use crate::packs::kills;

#[test]
fn a_signal_or_an_unmount_ends_it_with_success() {
    let Some(packed) = Packed::new() else { return };
    let place = packed.path("files");
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mount = Mount::begin(&packed.pack, &place, &[]);
        assert!(fs::read(place.join("shop.db")).unwrap() == packed.plain);
        mount.signal(signal);
        let outcome = mount.wait();
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        assert!(!is_mounted(&place));
        assert!(!place.exists(), "the folder that it made is gone with it");
    }
    fs::create_dir(&place).unwrap();
    Mount::begin(&packed.pack, &place, &[]).end();
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "one that was there stays");
    if rustix::process::geteuid().is_root() {
        let mount = Mount::begin(&packed.pack, &place, &[]);
        let begin = Instant::now();
        // A program that looks through all mounts is in this one for a moment.
        while !Command::new("umount").arg(&place).status().unwrap().success() {
            assert!(begin.elapsed() < Duration::from_secs(60), "it stays busy");
            thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(mount.wait().status, Some(0));
    }
}

#[test]
fn who_has_a_file_open_is_served_to_the_end() {
    let Some(packed) = Packed::new() else { return };
    let place = packed.path("files");
    let mount = Mount::begin(&packed.pack, &place, &[]);
    let file = File::open(place.join("shop.db")).unwrap();
    mount.signal(Signal::TERM);
    let begin = Instant::now();
    while is_mounted(&place) {
        assert!(begin.elapsed() < Duration::from_secs(60), "it stays mounted");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "no program comes in any longer");
    let mut all = vec![0; packed.plain.len()];
    file.read_exact_at(&mut all, 0).unwrap();
    assert!(all == packed.plain);
    drop(file);
    let outcome = mount.wait();
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    // A user who does not want to wait sends the signal twice.
    let mount = Mount::begin(&packed.pack, &place, &[]);
    let file = File::open(place.join("shop.db")).unwrap();
    mount.signal(Signal::TERM);
    while is_mounted(&place) {
        thread::sleep(Duration::from_millis(5));
    }
    // Two that come at once are one wish, as `timeout` sends them.
    thread::sleep(Duration::from_millis(500));
    mount.signal(Signal::TERM);
    assert_eq!(mount.wait().status, Some(3));
    drop(file);
}

/// The system is still asking ahead when the last file is closed, and ends the mount under
/// the process that it has just asked.
#[test]
fn the_last_file_may_be_closed_while_it_is_read_ahead() {
    let Some(packed) = Packed::new() else { return };
    thread::scope(|scope| {
        for worker in 0..4 {
            let (pack, place) = (&packed.pack, packed.path(&format!("files{worker}")));
            scope.spawn(move || {
                for _ in 0..30 {
                    let mount = Mount::begin(pack, &place, &[]);
                    let file = File::open(place.join("shop.db")).unwrap();
                    mount.signal(Signal::TERM);
                    while is_mounted(&place) {
                        thread::sleep(Duration::from_millis(2));
                    }
                    fadvise(&file, 0, None, Advice::WillNeed).unwrap();
                    drop(file);
                    let outcome = mount.wait();
                    assert_eq!(outcome.status, Some(0), "{outcome:?}");
                }
            });
        }
    });
}

#[test]
fn what_is_not_ours_or_in_use_is_left_alone() {
    let Some(packed) = Packed::new() else { return };
    let place = packed.path("files");
    let fails = |arguments: &[&Path]| {
        let outcome = run(pagewarden().arg("mount").args(arguments));
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        outcome.stderr
    };
    let cleanup = Path::new("--cleanup");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("precious"), "x").unwrap();
    assert!(fails(&[&packed.pack, &place]).contains("it is not empty"));
    fs::remove_file(place.join("precious")).unwrap();
    assert!(fails(&[&packed.path("shop.db"), &place]).contains("it is no pack"));
    assert!(fails(&[cleanup, Path::new("/proc")]).contains("no pack"));
    let outcome = run(pagewarden().args(["mount", "--json", "no such pack"]).arg(&place));
    let json: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((outcome.status, &json["verdict"]), (Some(2), &"incomplete".into()));
    assert!(json["error"].as_str().unwrap().contains("no such pack"), "{json}");
    let mount = Mount::begin(&packed.pack, &place, &[]);
    assert!(fails(&[cleanup, &place]).contains("a running process serves it"));
    assert!(fails(&[&packed.pack, &place]).contains("it is not empty"));
    assert!(fs::read(place.join("shop.db")).unwrap() == packed.plain);
    mount.end();
    let outcome = run(pagewarden().arg("mount").args([cleanup, &place]));
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
}

#[test]
fn killed_mounts_are_cleaned_up_and_mounted_again() {
    let Some(packed) = Packed::new() else { return };
    let (place, scratch) = (packed.path("files"), packed.path("scratch"));
    fs::create_dir(&scratch).unwrap();
    let mut dice = Dice::seeded();
    for _ in 0..kills(6) {
        let options = ["--scratch", scratch.to_str().unwrap()];
        let mount = Mount::begin(&packed.pack, &place, &options);
        thread::scope(|scope| {
            for number in 0..3_usize {
                let (place, plain) = (&place, &packed.plain);
                scope.spawn(move || work_until_it_dies(place, plain, number));
            }
            thread::sleep(Duration::from_millis(dice.within(5..150) as u64));
            mount.signal(Signal::KILL);
        });
        mount.wait();
        let error = fs::read_dir(&place).unwrap_err();
        assert_eq!(kind(&error), libc_number("ENOTCONN"), "{error}");
        let refused = run(pagewarden().arg("mount").arg(&packed.pack).arg(&place));
        assert!(refused.stderr.contains("mount --cleanup"), "{refused:?}");
        let outcome = run(pagewarden().args(["mount", "--cleanup"]).arg(&place));
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        assert!(!is_mounted(&place));
        assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0, "nothing is left");
    }
    let mount = Mount::begin(&packed.pack, &place, &[]);
    assert!(fs::read(place.join("shop.db")).unwrap() == packed.plain);
    assert_eq!(mount.end().0.status, Some(0));
}

/// Reads and writes until the files are gone. What it reads is right to the end.
fn work_until_it_dies(place: &Path, plain: &[u8], number: usize) {
    let mut dice = Dice::seeded();
    let Ok(file) = File::options().read(true).write(true).open(place.join("shop.db")) else {
        return;
    };
    loop {
        let page = dice.within(100..plain.len() / 4096) * 4096;
        let mut out = vec![0; 4096];
        if file.read_exact_at(&mut out, page as u64).is_err() {
            return;
        }
        assert!(out == plain[page..page + 4096]);
        if file.write_all_at(&out, number as u64 * 4096).is_err() {
            return;
        }
    }
}

#[test]
fn what_is_to_last_lasts_when_it_was_synced() {
    let Some(packed) = Packed::new() else { return };
    let (place, durable) = (packed.path("files"), packed.path("durable"));
    let options = ["--durable", durable.to_str().unwrap()];
    let kills = kills(6);
    let mut dice = Dice::seeded();
    let mut expected = packed.plain.clone();
    for round in 0..kills {
        let mount = Mount::begin(&packed.pack, &place, &options);
        assert!(fs::read(place.join("shop.db")).unwrap() == expected, "round {round}");
        assert_eq!(place.join("round").exists(), round > 0);
        let file = File::options().write(true).open(place.join("shop.db")).unwrap();
        for _ in 0..20 {
            let mut bytes = vec![0; dice.within(1..20_000)];
            dice.fill(&mut bytes);
            let at = dice.within(0..expected.len() - bytes.len());
            file.write_all_at(&bytes, at as u64).unwrap();
            expected[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        let mut new = File::create(place.join("new")).unwrap();
        write!(new, "{round}").unwrap();
        fs::rename(place.join("new"), place.join("round")).unwrap();
        file.sync_all().unwrap();
        fs::write(place.join("not synced"), "x").unwrap();
        drop((file, new));
        if round % 2 == 0 {
            mount.signal(Signal::KILL);
            mount.wait();
            let outcome = run(pagewarden().args(["mount", "--cleanup"]).arg(&place));
            assert_eq!(outcome.status, Some(0), "{outcome:?}");
        } else {
            let (outcome, json) = mount.end();
            assert_eq!(outcome.status, Some(0), "{outcome:?}");
            assert!(json["delta_bytes"].as_u64().unwrap() > 0, "{json}");
        }
    }
    let mount = Mount::begin(&packed.pack, &place, &options);
    assert_eq!(fs::read_to_string(place.join("round")).unwrap(), (kills - 1).to_string());
    let other =
        run(pagewarden().arg("mount").args(options).arg(&packed.pack).arg(packed.path("other")));
    assert_eq!(other.status, Some(2), "{other:?}");
    assert!(other.stderr.contains("a running process uses it"), "{other:?}");
    mount.end();
    let mount = Mount::begin(&packed.pack, &place, &[]);
    assert!(fs::read(place.join("shop.db")).unwrap() == packed.plain, "the pack is as it was");
    mount.end();
}

/// A process that is killed while it waits for an answer of its own mount is waited for by the
/// system for good, and so is everyone who looks into the mount.
#[test]
fn a_mount_asks_nothing_of_itself() {
    let Some(packed) = Packed::new() else { return };
    if !crate::read_record::has_strace() {
        return;
    }
    let (place, log) = (packed.path("files"), packed.path("calls"));
    let plain = pagewarden();
    let mut command = Command::new("strace");
    command.args(["-D", "-f", "-e", "trace=%file", "-o"]).arg(&log);
    command.arg(plain.get_program()).args(["mount", "--json"]).arg(&packed.pack).arg(&place);
    let mount = Mount::spawn(&mut command, &place);
    let serves = mount.started.as_ref().unwrap().id().to_string();
    assert!(!fs::read(place.join("shop.db")).unwrap().is_empty());
    mount.end();
    // The tracer writes on for a moment.
    let calls = (0..500).find_map(|_| {
        let calls = fs::read_to_string(&log).unwrap();
        if calls.contains("umount2(") {
            return Some(calls);
        }
        thread::sleep(Duration::from_millis(20));
        None
    });
    let calls = calls.expect("it was unmounted");
    let name = place.to_str().unwrap();
    let mine = calls.lines().filter(|line| line.starts_with(&serves) && line.contains(name));
    let mut since = mine.skip_while(|line| !line.contains(" mount("));
    assert!(since.next().is_some(), "{calls}");
    let asked: Vec<_> = since.take_while(|line| !line.contains("umount2(")).collect();
    assert!(asked.is_empty(), "{asked:#?}");
}
