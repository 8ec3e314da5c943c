//! Copies of clusters with a tablespace that lies elsewhere.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::{assert_protected, cluster, cluster_in, request, run, run_on, setting};
use pagewarden_core::protect::{Request, TablespaceMapping};
use pagewarden_core::testing::recorder::{Hasty, Image, Recorder, image, in_memory, one_thread};
use pagewarden_core::verdict::Protection;

const LINK: &str = "pg_tblspc/16500";
const OURS: &str = "PG_15_202209061";

/// Moves the cluster's tablespace out of it; where it lies then.
fn move_tablespace(root: &Path) -> PathBuf {
    let elsewhere = root.with_file_name("space");
    fs::rename(root.join(LINK), &elsewhere).unwrap();
    symlink(&elsewhere, root.join(LINK)).unwrap();
    elsewhere
}

/// To copy the cluster and its tablespace into two folders of `folder`.
fn mapped(root: &Path, folder: &Path) -> Request {
    Request {
        copy_to: Some(folder.join("copy")),
        tablespaces: vec![TablespaceMapping {
            old: root.with_file_name("space"),
            new: folder.join("new"),
        }],
        ..request(root, Protection::Checksum)
    }
}

/// Without what belongs to a cluster of another version.
fn of_ours(before: &Image) -> Image {
    let names = before.iter().filter(|(name, _)| !name.to_str().unwrap().contains("PG_14_"));
    names.map(|(name, bytes)| (name.clone(), bytes.clone())).collect()
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn copy_has_its_tablespace_where_it_was_told() {
    let (folder, root) = cluster();
    let elsewhere = move_tablespace(&root);
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o750)).unwrap();
    let before = image(&root);
    let asked = mapped(&root, folder.path());
    let outcome = run(&asked).unwrap();
    assert_eq!(outcome.after, Protection::Checksum);
    let (copy, new) = (folder.path().join("copy"), folder.path().join("new"));
    assert_protected(&of_ours(&before), &copy);
    assert_eq!(image(&root), before);
    assert_eq!(fs::read_link(copy.join(LINK)).unwrap(), new);
    // Those of another version are another cluster's.
    assert_eq!(names_in(&new), [OURS]);
    let left_out = "PG_14_202107181: of another version's cluster, left out";
    assert!(outcome.warnings.iter().any(|one| one.contains(left_out)), "{:?}", outcome.warnings);
    let of = |path: &Path| {
        let data = fs::metadata(path).unwrap();
        (data.mode(), data.uid(), data.gid(), data.mtime_nsec())
    };
    assert_eq!(of(&new), of(&elsewhere));
    assert_eq!(of(&new.join(OURS)), of(&elsewhere.join(OURS)));
    // What is copied and not stamped goes there too.
    let second = Request { wish: pagewarden_core::protect::Wish::Mode(Protection::None), ..asked };
    fs::remove_dir_all(&copy).unwrap();
    fs::remove_dir_all(&new).unwrap();
    run(&second).unwrap();
    assert_eq!(setting(&image(&copy)), Some(Protection::None));
    for (name, bytes) in image(&new) {
        let of_source = Path::new(LINK).join(name);
        assert_eq!(before[&of_source], bytes, "{}", of_source.display());
    }
}

#[test]
fn place_that_will_not_do_is_refused_and_nothing_is_made() {
    let (folder, root) = cluster();
    let elsewhere = move_tablespace(&root);
    let full = folder.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("precious"), "words").unwrap();
    let usual = mapped(&root, folder.path());
    let refusal = |request: &Request| {
        let before = names_in(folder.path());
        let error = run(request).unwrap_err().to_string();
        assert_eq!(names_in(folder.path()), before, "{error}");
        error
    };
    let to = |new: PathBuf| Request {
        tablespaces: vec![TablespaceMapping { old: elsewhere.clone(), new }],
        ..usual.clone()
    };
    assert!(refusal(&to(full.clone())).contains("not empty"));
    assert!(refusal(&to("new".into())).contains("absolute path"));
    for inside in [root.join("new"), elsewhere.join("new"), elsewhere.clone()] {
        assert!(refusal(&to(inside)).contains("inside"));
    }
    let copy = usual.copy_to.clone().unwrap();
    assert!(refusal(&to(copy)).contains("inside"));
    let mut unknown = usual.clone();
    unknown.tablespaces[0].old = "/nowhere".into();
    assert!(refusal(&unknown).contains("no tablespace of this cluster lies in /nowhere"));
    let mut twice = usual.clone();
    twice.tablespaces.extend(usual.tablespaces.clone());
    assert!(refusal(&twice).contains("one tablespace and one folder"));
    // Another one, that no mapping names.
    symlink(&full, root.join("pg_tblspc/17000")).unwrap();
    fs::create_dir(full.join(OURS)).unwrap();
    assert!(refusal(&usual).contains("--tablespace-mapping OLD=NEW"));
}

#[test]
fn killed_at_any_change_the_same_command_makes_the_copy_and_its_tablespace() {
    let (_folder, root) = cluster_in(in_memory());
    move_tablespace(&root);
    let before = image(&root);
    let folder = in_memory();
    let recorder = Recorder::new(folder.path(), usize::MAX, 0);
    run_on(&recorder, &mapped(&root, folder.path()), &one_thread()).unwrap();
    let count = recorder.changes.into_inner().unwrap().0.len();
    for lives in (0..count).step_by(5).chain(count.saturating_sub(20)..count) {
        let folder = in_memory();
        let (copy, new) = (folder.path().join("copy"), folder.path().join("new"));
        let asked = mapped(&root, folder.path());
        let recorder = Recorder::new(folder.path(), lives, lives as u64 + 1);
        assert!(run_on(&recorder, &asked, &one_thread()).is_err(), "{lives} of {count}");
        let is_cluster = copy.join("global/pg_control").exists();
        if is_cluster {
            assert_protected_but_for_markers(&before, &copy);
        }
        match run_on(&Hasty, &asked, &one_thread()) {
            Ok(_) => {}
            // Complete, and no longer ours to touch.
            Err(error) => {
                assert!(is_cluster && error.to_string().contains("not empty"), "{lives}: {error}");
            }
        }
        assert_protected(&of_ours(&before), &copy);
        assert_eq!(names_in(&new), [OURS]);
    }
    assert_eq!(image(&root), before, "the source was written to");
}

fn assert_protected_but_for_markers(before: &Image, copy: &Path) {
    let after = image(copy);
    assert_eq!(setting(&after), Some(Protection::Checksum));
    assert!(super::all_pages_are_right(before, &after), "the copy claims too much");
}
