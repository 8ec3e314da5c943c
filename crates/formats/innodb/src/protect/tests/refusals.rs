//! What is refused, and what damage does.

use std::fs;
use std::path::Path;

use super::{SMALL, assert_protected, directory, image, log, request, run, stamped};
use pagewarden_core::protect::{Request, Wish};
use pagewarden_core::source::hold::lock;
use pagewarden_core::verdict::{Kind, Protection};

/// Runs it, and fails unless it refuses and leaves everything as it was.
fn refusal(request: &Request) -> String {
    let root = if request.path.is_dir() { &request.path } else { request.path.parent().unwrap() };
    let before = image(root);
    let error = run(request).expect_err("it must be refused");
    assert!(image(root) == before, "{error}");
    error.to_string()
}

#[test]
fn directories_that_are_not_at_rest_are_refused() {
    let change = |what: &dyn Fn(&Path)| {
        let (_folder, root) = directory();
        what(&root);
        let text = refusal(&request(&root));
        // A file is no better than its directory.
        assert_eq!(
            refusal(&request(&root.join("shop/small_fold.ibd"))).lines().nth(1),
            text.lines().nth(1)
        );
        assert!(run(&Request { dry_run: true, ..request(&root) }).is_err());
        let copy = root.with_file_name("copy");
        assert!(run(&Request { copy_to: Some(copy.clone()), ..request(&root) }).is_err());
        assert!(!copy.exists());
        text
    };
    let crashed = change(&|root| fs::write(root.join("ib_logfile0"), log(false)).unwrap());
    assert!(crashed.contains("not shut down cleanly"), "{crashed}");
    let killed = change(&|root| fs::write(root.join("ibtmp1"), "").unwrap());
    assert!(killed.contains("not shut down cleanly"), "{killed}");
    let unknown = change(&|root| fs::remove_file(root.join("ib_logfile0")).unwrap());
    assert!(
        unknown.contains("its log is not here") || unknown.contains("state unknown"),
        "{unknown}"
    );
    let backup = change(&|root| {
        fs::write(root.join("xtrabackup_checkpoints"), "backup_type = full-backuped\n").unwrap();
    });
    assert!(backup.contains("prepare the backup"), "{backup}");
}

#[test]
fn prepared_backup_is_changed() {
    let (_folder, root) = directory();
    fs::write(root.join("xtrabackup_checkpoints"), "backup_type = full-prepared\n").unwrap();
    let before = image(&root);
    run(&request(&root)).unwrap();
    assert_protected(&before, &root);
}

#[test]
fn directory_that_a_server_holds_is_refused() {
    for name in ["ibdata1", "aria_log_control"] {
        let (_folder, root) = directory();
        let held = fs::OpenOptions::new().read(true).write(true).open(root.join(name)).unwrap();
        assert!(lock(&held).unwrap());
        for path in [root.clone(), root.join("shop/small_fold.ibd")] {
            for dry_run in [false, true] {
                let text = refusal(&Request { dry_run, ..request(&path) });
                assert!(text.contains("a server runs on it"), "{text}");
            }
        }
    }
    // A table without a directory.
    let (folder, root) = directory();
    let lone = folder.path().join("t.ibd");
    fs::copy(root.join("shop/small_fold.ibd"), &lone).unwrap();
    let held = fs::OpenOptions::new().read(true).write(true).open(&lone).unwrap();
    assert!(lock(&held).unwrap());
    assert!(run(&request(&lone)).unwrap_err().to_string().contains("a server runs on it"));
    drop(held);
    run(&request(&lone)).unwrap();
}

#[test]
fn other_wishes_are_refused_with_their_reason() {
    let (_folder, root) = directory();
    for (wish, words) in [
        (Wish::Mode(Protection::None), "not taken away"),
        (Wish::Mode(Protection::Torn), "no marks for torn writes"),
        (Wish::ForUpgrade(root.clone()), "another layout of the page"),
        (Wish::Like(root.clone()), "ALTER TABLE ... FORCE"),
    ] {
        let text = refusal(&Request { wish, ..request(&root) });
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn what_cannot_be_understood_is_refused_before_anything_is_written() {
    let (_folder, root) = directory();
    fs::write(root.join("shop/zst.ibd.zst"), "packed").unwrap();
    assert!(refusal(&request(&root)).contains("packed"));
    let (_folder, root) = directory();
    fs::remove_file(root.join("ibdata1")).unwrap();
    assert!(refusal(&request(&root)).contains("first file"));
}

#[test]
fn what_lies_elsewhere_is_left_alone_and_named() {
    let (folder, root) = directory();
    let elsewhere = folder.path().join("far.ibd");
    fs::rename(root.join("shop/small_fold.ibd"), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, root.join("shop/small_fold.ibd")).unwrap();
    fs::write(root.join("shop/other.isl"), "/far/other.ibd").unwrap();
    let far = fs::read(&elsewhere).unwrap();
    let outcome = run(&request(&root)).unwrap();
    let named = |name: &str| outcome.warnings.iter().any(|text| text.contains(name));
    assert!(named("shop/small_fold.ibd") && named("shop/other.isl"), "{:?}", outcome.warnings);
    assert!(fs::read(&elsewhere).unwrap() == far);
    // A copy would share it.
    let copy = Request { copy_to: Some(folder.path().join("copy")), ..request(&root) };
    let refused = run(&copy).unwrap_err().to_string();
    assert!(refused.contains("elsewhere"), "{refused}");
}

/// One page of a file, and the first page of another.
fn damage(root: &Path) -> [(&'static str, u64); 3] {
    let places =
        [("mysql/large_none.ibd", 0), ("mysql/small_fold.ibd", 1), ("shop/zip_fold.ibd", 1)];
    for (name, number) in places {
        let path = root.join(name);
        let mut bytes = fs::read(&path).unwrap();
        let size = if name.contains("zip") { 1024 } else { SMALL };
        // In the LSN, which pages without a sum have twice.
        let at = if number == 0 { 20 } else { number * size + 100 };
        bytes[at] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    places.map(|(name, number)| (name, number as u64))
}

#[test]
fn damaged_pages_are_all_named_and_their_files_stay() {
    let (_folder, root) = directory();
    let damaged = damage(&root);
    let before = image(&root);
    for dry_run in [true, false] {
        let outcome = run(&Request { dry_run, ..request(&root) }).unwrap();
        let found: Vec<_> = outcome
            .findings
            .iter()
            .map(|finding| (&*finding.place.file, finding.place.page.unwrap().0))
            .collect();
        assert_eq!(found, damaged);
        assert_eq!(outcome.findings[0].kind, Kind::Torn);
        assert_eq!((outcome.pages.damaged, outcome.after), (3, Protection::None));
        assert!(outcome.pages.left > 4, "{:?}", outcome.pages);
    }
    let after = image(&root);
    assert_eq!(before.len(), after.len());
    for (name, bytes) in &before {
        let Some(bytes) = bytes else { continue };
        let is_damaged = damaged.iter().any(|(damaged, _)| name == Path::new(damaged));
        if is_damaged {
            assert!(after[name].as_ref().unwrap() == bytes, "{}", name.display());
        } else if name.extension().is_some_and(|ending| ending == "ibd")
            && name.starts_with("shop")
            && !name.to_str().unwrap().contains('#')
        {
            let wanted = stamped(name, bytes);
            assert!(*after[name].as_ref().unwrap() == wanted, "{}", name.display());
        }
    }
}

#[test]
fn skipped_damaged_pages_stay_for_the_server_to_report() {
    let (_folder, root) = directory();
    damage(&root);
    let before = image(&root);
    let outcome = run(&Request { skip_damaged: true, ..request(&root) }).unwrap();
    assert_eq!((outcome.after, outcome.pages.damaged), (Protection::None, 3));
    let after = image(&root);
    for (name, number, size) in [("mysql/small_fold.ibd", 1, SMALL), ("shop/zip_fold.ibd", 1, 1024)]
    {
        let name = Path::new(name);
        let (old, new) = (before[name].as_ref().unwrap(), after[name].as_ref().unwrap());
        let wanted = stamped(name, old);
        for (index, page) in new.chunks(size).enumerate() {
            let range = index * size..(index + 1) * size;
            let expected = if index == number { &old[range] } else { &wanted[range] };
            assert!(page == expected, "{} {index}", name.display());
        }
    }
    // Where the first page is damaged nothing is certain.
    let name = Path::new("mysql/large_none.ibd");
    assert!(before[name] == after[name]);
}

#[test]
fn copy_has_all_that_the_original_has_and_crc32() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    let (folder, root) = directory();
    fs::set_permissions(root.join("shop"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::set_permissions(root.join("shop/zip_fold.ibd"), fs::Permissions::from_mode(0o640)).unwrap();
    let before = image(&root);
    let copy = folder.path().join("copy");
    let to = |copy: &Path| Request { copy_to: Some(copy.to_owned()), ..request(&root) };
    let foreseen = run(&Request { dry_run: true, ..to(&copy) }).unwrap();
    assert!(!copy.exists());
    let outcome = run(&to(&copy)).unwrap();
    assert_eq!((outcome.pages, outcome.after), (foreseen.pages, Protection::Checksum));
    assert!(image(&root) == before);
    assert_protected(&before, &copy);
    for name in before.keys() {
        let [ours, theirs] = [&root, &copy]
            .map(|root| fs::metadata(root.join(name)).unwrap())
            .map(|data| (data.mode(), data.uid(), data.gid(), data.mtime(), data.mtime_nsec()));
        assert_eq!(ours, theirs, "{}", name.display());
    }
    // Not over anything.
    assert!(run(&to(&copy)).unwrap_err().to_string().contains("not empty"));
    for inside in [root.join("copy"), folder.path().to_owned()] {
        assert!(run(&to(&inside)).unwrap_err().to_string().contains("inside"));
    }
    // One table.
    let lone = folder.path().join("lone");
    let one = Request { copy_to: Some(lone.clone()), ..request(&root.join("shop/small_none.ibd")) };
    run(&one).unwrap();
    let name = Path::new("shop/small_none.ibd");
    let wanted = stamped(name, before[name].as_ref().unwrap());
    assert!(fs::read(lone.join("small_none.ibd")).unwrap() == wanted);
    assert_eq!(fs::read_dir(&lone).unwrap().count(), 1);
}

#[test]
fn copy_of_damaged_files_is_not_made() {
    let (folder, root) = directory();
    damage(&root);
    let copy = folder.path().join("copy");
    let request = Request { copy_to: Some(copy.clone()), ..request(&root) };
    let outcome = run(&request).unwrap();
    assert_eq!((outcome.pages.damaged, outcome.after), (3, Protection::None));
    assert!(!copy.join("ibdata1").exists());
    // Or with the damage.
    let outcome = run(&Request { skip_damaged: true, ..request }).unwrap();
    assert_eq!(outcome.pages.damaged, 3);
    assert!(copy.join("ibdata1").exists());
    let name = "mysql/large_none.ibd";
    assert!(fs::read(copy.join(name)).unwrap() == fs::read(root.join(name)).unwrap());
}
