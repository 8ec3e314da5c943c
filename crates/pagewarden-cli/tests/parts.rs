//! Targets that are parts of a cluster: folders, tablespaces, single files
//! inside it and copied away.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::clusters::{any_installation, installations, page_files, sample};
use crate::damage::{Damage, Dice, PAGE, Wound, page, stamp};
use crate::runner::{Finding, check};

/// The only link in `pg_tblspc`, its name, and the folder of a database there.
fn tablespace(root: &Path, file: &str) -> (PathBuf, String, String) {
    let oid = file.split('/').nth(1).unwrap().to_owned();
    let folder = file.rsplit_once('/').unwrap().0.to_owned();
    (root.join("pg_tblspc").join(&oid), oid, folder)
}

#[test]
fn damage_in_a_tablespace_is_named_by_its_path_in_the_cluster() {
    for installation in installations() {
        let version = &installation.version;
        let sample = sample(&installation, true);
        let cluster = sample.loan();
        let root = cluster.data_dir();
        let file = sample.file("elsewhere");
        let (link, oid, folder) = tablespace(root, file);
        assert!(file.starts_with(&format!("pg_tblspc/{oid}/PG_{version}_")), "{file}");
        let mut dice = Dice::seeded();
        let _wound = Wound::to(root.join(file)).inflict(Damage::BitInTuple, &mut dice, 2);

        let report = check([root]).report();
        assert_eq!(report.findings(), [Finding::page(file, 2, "damage", "checksum")], "{version}");
        // A part of it, named through the cluster.
        let name = file.rsplit_once('/').unwrap().1;
        let expected = Finding::page(name, 2, "damage", "checksum");
        let report = check([root.join(&folder)]).report();
        assert_eq!(report.findings(), std::slice::from_ref(&expected), "{version}: {folder}");
        let report = check([root.join(file)]).report();
        assert_eq!(report.findings(), [expected], "{version}: {file}");
        let report = check([link]).report();
        let below = file.splitn(3, '/').nth(2).unwrap();
        assert_eq!(report.findings(), [Finding::page(below, 2, "damage", "checksum")], "{version}");
        let tablespaces = check([root.join("pg_tblspc")]).report();
        assert_eq!(tablespaces.findings().len(), 1, "{version}");
    }
}

#[test]
fn tablespace_that_cannot_be_reached_is_unread_and_the_rest_is_checked() {
    for installation in installations() {
        let version = &installation.version;
        let sample = sample(&installation, true);
        let cluster = sample.copy();
        let root = cluster.data_dir();
        let (link, oid, folder) = tablespace(root, sample.file("elsewhere"));
        let before = check([root]).report();
        let inside: u64 = page_files(root)
            .iter()
            .filter(|(name, _)| name.starts_with("pg_tblspc"))
            .map(|(_, bytes)| bytes / PAGE as u64)
            .sum();
        let place = fs::read_link(&link).unwrap();
        let file = format!("pg_tblspc/{oid}");
        let assert_unread = |what: &str| {
            let outcome = check([root]);
            let report = outcome.report();
            assert_eq!(report.findings(), [], "{version}: {what}");
            assert_eq!(report.unread().into_keys().collect::<Vec<_>>(), [&file], "{what}");
            assert_eq!(
                (outcome.status, report.verdict()),
                (Some(2), "incomplete"),
                "{version}: {what}"
            );
            assert_eq!(report.pages("total"), before.pages("total") - inside, "{what}");
        };
        fs::rename(&place, place.with_extension("gone")).unwrap();
        assert_unread("nothing behind the link");
        fs::create_dir(&place).unwrap();
        assert_unread("an empty mount point behind the link");
        fs::create_dir(place.join("PG_99_209901011")).unwrap();
        assert_unread("another version's folder behind the link");
        fs::remove_file(&link).unwrap();
        symlink(&file, root.join(&file)).unwrap();
        assert_unread("a link to itself");
        assert!(folder.starts_with("pg_tblspc"));
    }
}

/// From 15 on a tablespace can be a folder in `pg_tblspc`.
#[test]
fn tablespace_in_place_is_read() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    let cluster = sample.copy();
    let root = cluster.data_dir();
    let before = check([root]).report();
    let (link, _, _) = tablespace(root, sample.file("elsewhere"));
    let place = fs::read_link(&link).unwrap();
    fs::remove_file(&link).unwrap();
    fs::rename(place, &link).unwrap();
    let after = check([root]).report();
    assert_eq!(after.findings(), []);
    assert_eq!(after.pages("total"), before.pages("total"));
}

#[test]
fn folders_of_a_cluster_are_checked_alone() {
    for installation in installations() {
        let version = &installation.version;
        let sample = sample(&installation, true);
        let cluster = sample.copy();
        let root = cluster.data_dir();
        let file = sample.file("item");
        let (folder, name) = file.rsplit_once('/').unwrap();
        let (_, database) = folder.split_once('/').unwrap();
        let mut dice = Dice::seeded();
        let _wound = Wound::to(root.join(file)).inflict(Damage::BitInTuple, &mut dice, 2);
        let files = page_files(root);
        for (part, expected) in [
            ("base", Some(format!("{database}/{name}"))),
            (folder, Some(name.to_owned())),
            ("global", None),
        ] {
            let report = check([root.join(part)]).report();
            let expected: Vec<_> =
                expected.iter().map(|file| Finding::page(file, 2, "damage", "checksum")).collect();
            assert_eq!(report.findings(), expected, "{version}: {part}");
            let inside = files.iter().filter(|(file, _)| file.starts_with(&format!("{part}/")));
            let pages: u64 = inside.map(|(_, bytes)| bytes / PAGE as u64).sum();
            assert_eq!(report.pages("total"), pages, "{version}: {part}");
        }
        // A trailing slash, a relative path, a link to the cluster: the same.
        let link = cluster.home().join("link");
        symlink(root, &link).unwrap();
        let mut slash = root.as_os_str().to_owned();
        slash.push("/");
        for path in [slash.into(), link.clone(), root.join("base/..")] {
            let report = check([&path]).report();
            let expected = Finding::page(file, 2, "damage", "checksum");
            assert_eq!(report.findings(), [expected], "{version}: {}", path.display());
        }
        let mut command = crate::runner::pagewarden();
        command.args(["check", "--json", "."]).current_dir(root.join(folder));
        let report = crate::runner::run(&mut command).report();
        assert_eq!(report.findings(), [Finding::page(name, 2, "damage", "checksum")], "{version}");
    }
}

/// Only what is named is judged: neither the control file nor a tablespace
/// that lies elsewhere is a matter of one folder.
#[test]
fn what_is_wrong_elsewhere_in_the_cluster_is_no_finding_in_a_part() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    let cluster = sample.copy();
    let root = cluster.data_dir();
    let file = root.join(sample.file("item"));
    let folder = file.parent().unwrap();
    let (link, _, _) = tablespace(root, sample.file("elsewhere"));
    let place = fs::read_link(&link).unwrap();
    fs::rename(&place, place.with_extension("gone")).unwrap();
    let _control = Wound::to(root.join("global/pg_control")).change(|bytes| bytes.fill(0));
    let _map = Wound::to(root.join("global/pg_filenode.map")).change(|bytes| bytes.fill(0));
    fs::write(root.join("base/foreign"), b"").unwrap();
    for part in [folder, &file] {
        let outcome = check([part]);
        let report = outcome.report();
        assert_eq!(report.findings(), [], "{}", part.display());
        assert_eq!((outcome.status, report.verdict()), (Some(0), "intact"));
        let notes = report.target()["notes"].to_string();
        assert!(notes.contains("control file") && !notes.contains("foreign"), "{notes}");
    }
    let report = check([root.join("global")]).report();
    let expected = [
        Finding::file("pg_control", "damage", "header"),
        Finding::file("pg_filenode.map", "damage", "header"),
    ];
    assert_eq!(report.findings(), expected);
    // One is named by the folder it lies in, wherever the working directory is.
    let mut command = crate::runner::pagewarden();
    command.args(["check", "--json", "base"]).current_dir(root);
    assert_eq!(crate::runner::run(&mut command).report().findings(), []);
}

#[test]
fn one_relation_file_is_checked_alone() {
    for installation in installations() {
        let version = &installation.version;
        let sample = sample(&installation, true);
        let cluster = sample.loan();
        let root = cluster.data_dir();
        for relation in ["item", "item_gin", "wide_toast", "pg_class", "pg_database"] {
            let file = root.join(sample.file(relation));
            let pages = fs::metadata(&file).unwrap().len() / PAGE as u64;
            let report = check([&file]).report();
            assert_eq!(report.findings(), [], "{version}: {relation}");
            assert_eq!((report.pages("total"), report.verdict()), (pages, "intact"), "{relation}");
            assert_eq!(report.target()["files"], 1);
        }
        let file = root.join(format!("{}_fsm", sample.file("item")));
        assert_eq!(check([&file]).report().verdict(), "intact");

        let file = root.join(sample.file("item"));
        let name = file.file_name().unwrap().to_str().unwrap();
        let mut dice = Dice::seeded();
        for damage in Damage::ALL {
            let _wound = Wound::to(&file).inflict(damage, &mut dice, 2);
            let expected = Finding::page(name, 2, "damage", damage.kind());
            assert_eq!(check([&file]).report().findings(), [expected], "{version}: {damage:?}");
        }
    }
}

/// Page size, segment and the use of sums are then taken from the pages.
#[test]
fn relation_file_copied_away_is_checked_by_its_own_pages() {
    for installation in installations() {
        let version = &installation.version;
        let with_sums = sample(&installation, true);
        let without = sample(&installation, false);
        let folder = tempfile::tempdir().unwrap();
        let item = fs::read(with_sums.cluster.data_dir().join(with_sums.file("item"))).unwrap();
        let mut second = item[..40 * PAGE].to_vec();
        for (index, page) in second.chunks_exact_mut(PAGE).enumerate() {
            stamp(page, 131_072 + u32::try_from(index).unwrap());
        }
        let plain = fs::read(without.cluster.data_dir().join(without.file("item"))).unwrap();
        for (name, bytes, first_page, verdict) in [
            ("16397", &item, 0, "intact"),
            ("16397.1", &second, 131_072, "intact"),
            // A name that says nothing, or the wrong thing.
            ("saved.dat", &item, 0, "intact"),
            ("saved.copy", &second, 131_072, "intact"),
            ("16397.3", &second, 131_072, "intact"),
            ("16398", &plain, 0, "unprotected"),
        ] {
            let what = format!("{version}: {name}");
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            let report = check([&path]).report();
            assert_eq!((report.findings(), report.verdict()), (vec![], verdict), "{what}");
            assert_eq!(report.pages("total"), (bytes.len() / PAGE) as u64, "{what}");
            assert_eq!(report.target()["format"], "postgres", "{what}");
            assert_eq!(report.target()["page_size"], 8192, "{what}");

            let mut dice = Dice::seeded();
            let block = 7;
            let _wound = Wound::to(&path).change(|bytes| {
                let begin = block * PAGE;
                Damage::Noise.inflict(&mut dice, &mut bytes[begin..begin + PAGE], 7);
            });
            let expected = Finding::page_at(
                name,
                first_page + block as u64,
                (block * PAGE) as u64,
                "damage",
                "header",
            );
            let outcome = check([&path]);
            assert_eq!(outcome.report().findings(), [expected], "{what}");
            assert_eq!(outcome.status, Some(1), "{what}");
        }
    }
}

/// Two in three of its pages are gone: the rest must still speak for them.
#[test]
fn file_copied_away_may_be_mostly_damaged() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("16397");
    let mut bytes = fs::read(sample.cluster.data_dir().join(sample.file("item"))).unwrap();
    bytes.truncate(30 * PAGE);
    let mut dice = Dice::seeded();
    for block in 0..20 {
        let at = block as usize * PAGE;
        Damage::BitInTuple.inflict(&mut dice, &mut bytes[at..at + PAGE], block);
    }
    fs::write(&path, &bytes).unwrap();
    let report = check([&path]).report();
    assert_eq!(report.pages("damaged"), 20);
    assert_eq!(report.pages("ok"), 10);
}

#[test]
fn single_page_on_its_own_is_a_relation_file() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    let bytes = fs::read(sample.cluster.data_dir().join(sample.file("item"))).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("16397");
    fs::write(&path, page(&bytes, 0)).unwrap();
    let report = check([&path]).report();
    assert_eq!((report.pages("ok"), report.verdict()), (1, "intact"));
}
