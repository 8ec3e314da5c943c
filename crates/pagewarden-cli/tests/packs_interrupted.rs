//! What is left when something ends early: of `pack`, of `unpack`, of a pack.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::clusters::{any_installation, sample};
use crate::damage::Dice;
use crate::packs::{below, database, json, kills, large_database};
use crate::runner::{Outcome, Started, pagewarden, run};

fn parts(folder: &Path) -> usize {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".part")).count()
}

#[test]
fn whoever_is_killed_leaves_no_half_pack_and_no_half_folder() {
    let Some(installation) = any_installation() else { return };
    let mut source = sample(&installation, true).copy();
    source.execute("postgres", &["DROP TABLE elsewhere"]).unwrap();
    source.execute("postgres", &["DROP TABLESPACE sample_space"]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (pack, back) = (folder.path().join("x.pwk"), folder.path().join("back"));
    let mut dice = Dice::seeded();
    let kills = kills(4);
    let mut wait = || thread::sleep(Duration::from_millis(dice.within(0..600) as u64));
    for _ in 0..kills {
        let mut command = pagewarden();
        let started =
            Started::spawn(command.arg("pack").arg(source.data_dir()).arg("-o").arg(&pack));
        wait();
        started.signal(Signal::KILL);
        started.wait();
        if pack.exists() {
            json("check", &[&pack], 0);
            fs::remove_file(&pack).unwrap();
        }
    }
    json("pack", &[source.data_dir(), Path::new("-o"), &pack], 0);
    for kill in 0..kills {
        let started = Started::spawn(pagewarden().arg("unpack").arg(&pack).arg(&back));
        wait();
        started.signal(Signal::KILL);
        started.wait();
        if back.exists() {
            assert_eq!(below(&back), below(source.data_dir()));
            fs::remove_dir_all(&back).unwrap();
            continue;
        }
        // Every other time it is resumed, and as whole as if nothing had happened; in
        // between, what is left is left to the next one that is killed.
        if kill % 2 == 1 {
            let done = json("unpack", &[&pack, &back], 0);
            assert!(done["kept_bytes"].is_u64(), "{done}");
            assert_eq!(below(&back), below(source.data_dir()));
            assert_eq!(parts(folder.path()), 0, "nothing is left beside it");
            fs::remove_dir_all(&back).unwrap();
        }
    }
}

#[test]
fn an_unpack_that_was_stopped_goes_on_where_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = large_database(folder.path()) else { return };
    let at = |name: &str| folder.path().join(name);
    json("pack", &[&database, Path::new("-o"), &at("x.pwk")], 0);
    let mut command = pagewarden();
    command.args(["unpack", "--json", "--rate", "1MiB/s"]).arg(at("x.pwk")).arg(at("back"));
    let started = Started::spawn(&mut command);
    let begin = Instant::now();
    while parts(folder.path()) == 0 && begin.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_millis(500));
    // Two at once would write over one another.
    let second = run(pagewarden().arg("unpack").arg(at("x.pwk")).arg(at("back")));
    assert!(second.stderr.contains("another run"), "{second:?}");
    started.signal(Signal::TERM);
    let stopped: Outcome = started.wait();
    assert_eq!(stopped.status, Some(3), "{stopped:?}");
    assert!(stopped.stdout.contains("the same command goes on"), "{stopped:?}");
    assert!(!at("back").exists());
    assert_eq!(parts(folder.path()), 1);
    let done = json("unpack", &[&at("x.pwk"), &at("back")], 0);
    assert!(done["kept_bytes"].as_u64().unwrap() > 0, "{done}");
    assert!(fs::read(at("back/shop.db")).unwrap() == fs::read(&database).unwrap());
    assert_eq!(parts(folder.path()), 0);
}

#[test]
fn what_is_left_of_another_pack_is_not_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = database(folder.path()) else { return };
    let at = |name: &str| folder.path().join(name);
    json("pack", &[&database, Path::new("-o"), &at("x.pwk")], 0);
    let part = at(".pagewarden-back.part");
    fs::create_dir_all(part.join("files/other")).unwrap();
    fs::write(part.join("state"), "pagewarden unpack 1\nroot 00\n").unwrap();
    let refused = run(pagewarden().arg("unpack").arg(at("x.pwk")).arg(at("back")));
    assert!(refused.stderr.contains("is not ours"), "others may write there: {refused:?}");
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(&part, fs::Permissions::from_mode(0o700)).unwrap();
    let done = json("unpack", &[&at("x.pwk"), &at("back")], 0);
    assert_eq!(done["kept_bytes"], 0);
    assert_eq!(fs::read_dir(at("back")).unwrap().count(), 1);
}

#[test]
fn what_is_sound_of_a_cut_pack_is_salvaged_and_the_rest_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = database(folder.path()) else { return };
    let at = |name: &str| folder.path().join(name);
    json("pack", &[&database, Path::new("-o"), &at("whole.pwk")], 0);
    let pack = fs::read(at("whole.pwk")).unwrap();
    let expected = fs::read(&database).unwrap();
    fs::write(at("cut.pwk"), &pack[..pack.len() / 2]).unwrap();
    let mut bytes = pack.clone();
    bytes[pack.len() / 2] ^= 1;
    fs::write(at("flipped.pwk"), &bytes).unwrap();
    for name in ["cut.pwk", "flipped.pwk"] {
        let refused = run(pagewarden().arg("unpack").arg(at(name)).arg(at("back")));
        assert_eq!(refused.status, Some(2), "{refused:?}");
        assert!(!at("back").exists());
        assert_eq!(parts(folder.path()), 0, "what is damaged is no beginning");
        assert!(
            !refused.stderr.contains(".pagewarden-"),
            "a name of a temporary file: {refused:?}"
        );
        let salvaged = json("unpack", &[&at(name), &at("back"), Path::new("--salvage")], 1);
        assert_eq!(salvaged["verdict"], "damaged");
        assert_eq!((&salvaged["files"], &salvaged["partial_files"]), (&0.into(), &1.into()));
        let partial = fs::read(at("back/shop.db.partial")).unwrap();
        assert_eq!(partial.len(), expected.len());
        let missing = salvaged["missing"].as_array().unwrap();
        let lost = |at: usize| {
            missing.iter().any(|part| {
                let begin = part["offset"].as_u64().unwrap();
                (begin..begin + part["length"].as_u64().unwrap()).contains(&(at as u64))
            })
        };
        let mut good = 0;
        for (at, (found, expected)) in partial.iter().zip(&expected).enumerate() {
            if lost(at) {
                assert_eq!(*found, 0, "{name}: byte {at}");
            } else {
                assert_eq!(found, expected, "{name}: byte {at}");
                good += 1;
            }
        }
        assert!(good > expected.len() / 4, "{name}: {good} bytes");
        fs::remove_dir_all(at("back")).unwrap();
    }
    let whole = json("unpack", &[&at("whole.pwk"), &at("back"), Path::new("--salvage")], 0);
    assert_eq!(whole["verdict"], "intact");
    assert!(fs::read(at("back/shop.db")).unwrap() == expected);
}

/// Before anything is written.
#[test]
fn what_does_not_fit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = database(folder.path()) else { return };
    let at = |name: &str| folder.path().join(name);
    json("pack", &[&database, Path::new("-o"), &at("x.pwk")], 0);
    let small = at("small");
    fs::create_dir(&small).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"])
        .arg(&small)
        .output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: only root can make a small file system");
        return;
    }
    let unpack = run(pagewarden().arg("unpack").arg(at("x.pwk")).arg(small.join("back")));
    let pack = run(pagewarden().arg("pack").arg(&database).arg("-o").arg(small.join("y.pwk")));
    let left = fs::read_dir(&small).unwrap().count();
    let unmounted = std::process::Command::new("umount").arg(&small).status();
    assert!(unmounted.unwrap().success());
    assert_eq!((unpack.status, pack.status), (Some(2), Some(2)), "{unpack:?} {pack:?}");
    assert!(unpack.stderr.contains("are needed, and"), "{unpack:?}");
    assert!(pack.stderr.contains("it will have about"), "{pack:?}");
    assert_eq!(left, 0);
}
