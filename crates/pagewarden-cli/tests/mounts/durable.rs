//! Deltas that last: while a program writes no signal takes the mount away, and in the end
//! the pack and the delta become one pack.

use super::*;

/// Runs `mount` where it is to fail, and gives what it says.
fn refused(arguments: &[&Path]) -> String {
    let outcome = run(pagewarden().arg("mount").args(arguments));
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    outcome.stderr
}

#[test]
fn a_mount_with_changes_that_last_stays_while_files_are_open() {
    let Some(packed) = Packed::new() else { return };
    let (place, durable) = (packed.path("files"), packed.path("durable"));
    let options = ["--durable", durable.to_str().unwrap()];
    let file = place.join("shop.db");
    // Without changes it goes as any other, whatever program reads.
    let mount = Mount::in_words(&packed.pack, &place, &options);
    let reader = File::open(&file).unwrap();
    mount.signal(Signal::TERM);
    let begin = Instant::now();
    while is_mounted(&place) {
        assert!(begin.elapsed() < Duration::from_secs(20), "it stays mounted");
        thread::sleep(Duration::from_millis(5));
    }
    drop(reader);
    let outcome = mount.wait();
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert!(outcome.stderr.contains("nothing was changed"), "{}", outcome.stderr);

    let mount = Mount::in_words(&packed.pack, &place, &options);
    let writer = OpenOptions::new().write(true).open(&file).unwrap();
    writer.write_all_at(b"changed", 8190).unwrap();
    mount.signal(Signal::TERM);
    thread::sleep(Duration::from_millis(300));
    assert!(is_mounted(&place));
    // Others come in as before, and what is written now lasts too.
    let mut expected = packed.plain.clone();
    expected[8190..8197].copy_from_slice(b"changed");
    assert!(fs::read(&file).unwrap() == expected);
    writer.write_all_at(b"again", 50_000).unwrap();
    expected[50_000..50_005].copy_from_slice(b"again");
    drop(writer);
    let outcome = mount.wait();
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert!(!is_mounted(&place));
    let text = &outcome.stderr;
    assert_eq!(text.matches("stays mounted").count(), 1, "told once: {text}");
    assert!(text.contains("the pack is not all without it"), "{text}");

    let mount = Mount::begin(&packed.pack, &place, &options);
    assert!(fs::read(&file).unwrap() == expected);
    let (_, json) = mount.end();
    assert_eq!(json["has_lasting_changes"], true, "of the earlier mount: {json}");
}

#[test]
fn a_pack_and_its_delta_become_one_pack() {
    let Some(packed) = Packed::new() else { return };
    let (place, durable) = (packed.path("files"), packed.path("durable"));
    let (new, before) = (packed.path("new.pwk"), fs::read(&packed.pack).unwrap());
    let options = ["--durable", durable.to_str().unwrap()];
    let repack = |pack: &Path| {
        let mut command = pagewarden();
        command.args(["mount", "--json"]).args(options).arg("--repack").arg(&new).arg(pack);
        run(&mut command)
    };
    let says = |outcome: &Outcome, text: &str| {
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains(text), "{outcome:?}");
        assert!(!new.exists());
    };
    says(&repack(&packed.pack), "nothing was written in");
    let mount = Mount::begin(&packed.pack, &place, &options);
    says(&repack(&packed.pack), "a running process uses it");
    mount.end();
    says(&repack(&packed.pack), "nothing to repack");

    let mount = Mount::begin(&packed.pack, &place, &options);
    sqlite::shell(&place, ".open shop.db\nUPDATE stock SET quantity = 7 WHERE id % 500 = 0;");
    fs::write(place.join("beside"), "x").unwrap();
    let expected = fs::read(place.join("shop.db")).unwrap();
    assert!(expected != packed.plain);
    mount.end();
    // What a pack of one file cannot hold is not dropped.
    says(&repack(&packed.pack), "beside is beside it now");
    let mount = Mount::begin(&packed.pack, &place, &options);
    fs::remove_file(place.join("beside")).unwrap();
    mount.end();

    let outcome = repack(&packed.pack);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let json: Value = outcome.stdout.lines().last().unwrap().parse().unwrap();
    assert_eq!(json["repacked"], new.to_str().unwrap());
    assert_eq!(fs::metadata(durable.join("pages")).unwrap().len(), 0, "its room is given back");
    assert!(fs::read(&packed.pack).unwrap() == before, "the old pack is never written");
    let text = refused(&[Path::new("--durable"), &durable, &packed.pack, &place]);
    assert!(text.contains("over another pack"), "{text}");
    let again = run(pagewarden().arg("mount").args(options).arg("--repack").arg(&new).arg(&new));
    assert_eq!(again.status, Some(2), "{again:?}");
    for options in [&options[..], &[]] {
        let mount = Mount::begin(&new, &place, options);
        assert!(fs::read(place.join("shop.db")).unwrap() == expected);
        let (_, json) = mount.end();
        assert_ne!(json["has_lasting_changes"], true, "{json}");
    }
}

/// A database that has lost its end is damaged: nothing is thrown away for it.
#[test]
fn a_delta_with_damage_in_it_is_kept_as_it_is() {
    let Some(packed) = Packed::new() else { return };
    let (place, durable) = (packed.path("files"), packed.path("durable"));
    let new = packed.path("new.pwk");
    let options = ["--durable", durable.to_str().unwrap()];
    let mount = Mount::begin(&packed.pack, &place, &options);
    let writer = OpenOptions::new().write(true).open(place.join("shop.db")).unwrap();
    writer.set_len(packed.plain.len() as u64 - 4096).unwrap();
    drop(writer);
    let expected = fs::read(place.join("shop.db")).unwrap();
    mount.end();
    let mut command = pagewarden();
    let outcome =
        run(command.arg("mount").args(options).arg("--repack").arg(&new).arg(&packed.pack));
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    assert!(outcome.stdout.contains("verdict: damaged"), "{outcome:?}");
    assert!(!new.exists());
    let mount = Mount::begin(&packed.pack, &place, &options);
    assert!(fs::read(place.join("shop.db")).unwrap() == expected);
    mount.end();
}
