//! What does not lie in one folder: clusters with tablespaces, single tablespaces,
//! streams.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pagewarden_scratch::postgres::StopMode;

use crate::clusters::{any_installation, contents, installations, sample};
use crate::packs::{database, json, refused};
use crate::runner::{pagewarden, run};

/// A sum over each file below a folder and behind its links, by the names under
/// which they are reached.
fn reached(root: &Path) -> BTreeMap<PathBuf, u32> {
    let mut all = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).unwrap() {
            let name = folder.join(entry.unwrap().file_name());
            if root.join(&name).is_dir() {
                folders.push(name);
            } else {
                let sum = contents(&root.join(&name)).into_values().next().unwrap();
                all.insert(name, sum);
            }
        }
    }
    all
}

/// The only link in a cluster's `pg_tblspc`, and where it leads.
pub fn tablespace(data_dir: &Path) -> (PathBuf, PathBuf) {
    let mut links = fs::read_dir(data_dir.join("pg_tblspc")).unwrap();
    let link = links.next().unwrap().unwrap().path();
    let target = fs::read_link(&link).unwrap();
    (link, target)
}

#[test]
fn a_cluster_with_a_tablespace_comes_back_where_it_is_told_to() {
    let Some(installation) = any_installation() else { return };
    let source = sample(&installation, true).copy();
    let mut target = source.duplicate().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let pack = folder.path().join("x.pwk");
    let from = source.data_dir().to_owned();
    let made = json("pack", &[&from, Path::new("-o"), &pack], 0);
    assert_eq!(made["verdict"], "intact");
    let checked = json("check", &[&pack], 0);
    assert_eq!(checked["verdict"], "intact");
    let (_, old) = tablespace(&from);

    let to = target.data_dir().to_owned();
    let (_, new) = tablespace(&to);
    fs::remove_dir_all(&to).unwrap();
    fs::remove_dir_all(&new).unwrap();
    let refused = run(pagewarden().arg("unpack").arg(&pack).arg(&to));
    assert_eq!(refused.status, Some(2), "{refused:?}");
    let hint = format!("--tablespace-mapping {}=NEW", old.display());
    assert!(refused.stderr.contains(&hint), "{refused:?}");
    assert!(!to.exists());
    let wrong = format!("{}={}", new.display(), new.display());
    let mapped = run(pagewarden().arg("unpack").arg(&pack).arg(&to).args(["-T", &wrong]));
    assert_eq!(mapped.status, Some(2), "another link: {mapped:?}");
    // It would be written into.
    let mapping = format!("{}={}", old.display(), old.display());
    let taken = run(pagewarden().arg("unpack").arg(&pack).arg(&to).args(["-T", &mapping]));
    assert!(taken.stderr.contains("not empty"), "{taken:?}");

    let mapping = format!("{}={}", old.display(), new.display());
    json("unpack", &[&pack, &to, Path::new("-T"), Path::new(&mapping)], 0);
    assert_eq!(reached(&to), reached(&from));
    assert_eq!(tablespace(&to).1, new);
    target.start().unwrap();
    let answer = target.execute("postgres", &["SELECT count(*) > 0 FROM elsewhere"]).unwrap();
    assert_eq!(answer.trim(), "t");
    target.stop(StopMode::Fast).unwrap();
    // Without what is behind the link none is needed.
    let part = folder.path().join("part");
    json("unpack", &[&pack, &part, Path::new("--only"), Path::new("global")], 0);
}

#[test]
fn links_that_lead_nowhere_or_back_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(installation) = any_installation() else { return };
    let source = sample(&installation, true).copy();
    let pack = folder.path().join("x.pwk");
    let link = source.data_dir().join("pg_tblspc/link");
    for (target, said) in [
        (folder.path().join("nowhere"), "leads nowhere"),
        (source.data_dir().join("base"), "packed already"),
        (source.data_dir().parent().unwrap().to_owned(), "packed already"),
        (PathBuf::from("/etc/passwd"), "only folders are followed"),
        (tablespace(source.data_dir()).1, "two links lead"),
    ] {
        symlink(&target, &link).unwrap();
        let message = refused(&[source.data_dir(), Path::new("-o"), &pack]);
        assert!(message.contains(said), "{message}");
        fs::remove_file(&link).unwrap();
    }
}

#[test]
fn a_stream_is_packed_as_it_came() {
    let Some(installation) = any_installation() else { return };
    let source = sample(&installation, true);
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let tar = at("base.tar");
    let made = Command::new("tar")
        // A cluster whose tablespace is in another archive is not packed as sound.
        .arg("--exclude=./pg_tblspc/*")
        .arg("-cf")
        .arg(&tar)
        .arg("-C")
        .arg(source.cluster.data_dir())
        .arg(".")
        .status();
    assert!(made.unwrap().success());
    let zipped = Command::new("gzip").args(["-1", "-k"]).arg(&tar).status();
    assert!(zipped.unwrap().success());
    for (name, profile) in [("base.tar", None), ("base.tar.gz", None), ("base.tar", Some("oltp"))] {
        let pack = at(&format!("{}{name}.pwk", profile.unwrap_or_default()));
        let input = Stdio::from(fs::File::open(at(name)).unwrap());
        let mut command = pagewarden();
        command.args(["pack", "--json", "-", "-o"]).arg(&pack).stdin(input);
        command.args(profile.into_iter().flat_map(|profile| ["--profile", profile]));
        let outcome = run(&mut command);
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        let object: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
        let pages = object["check"]["targets"][0]["pages"]["total"].as_u64().unwrap();
        assert!(pages > 1000, "it was verified on the way: {object}");
        assert_eq!(json("check", &[&pack], 0)["verdict"], "intact");
        let back = at("back");
        json("unpack", &[&pack, &back], 0);
        // It is called as the pack is.
        let written = fs::read(back.join(pack.file_stem().unwrap())).unwrap();
        assert!(written == fs::read(at(name)).unwrap(), "{name}");
        fs::remove_dir_all(&back).unwrap();
    }
    // A damaged page inside of it, and one that breaks off.
    let mut bytes = fs::read(&tar).unwrap();
    let file = source.file("item");
    let page = fs::read(source.cluster.data_dir().join(file)).unwrap();
    let place = bytes.windows(4096).position(|window| window == &page[..4096]).unwrap();
    bytes[place + 5000] ^= 1;
    fs::write(at("damaged.tar"), &bytes).unwrap();
    fs::write(at("cut.tar"), &bytes[..place]).unwrap();
    for (name, status) in [("damaged.tar", 1), ("cut.tar", 2)] {
        let input = Stdio::from(fs::File::open(at(name)).unwrap());
        let mut command = pagewarden();
        command.args(["pack", "--json", "-", "-o"]).arg(at("no.pwk")).stdin(input);
        let outcome = run(&mut command);
        assert_eq!(outcome.status, Some(status), "{name}: {outcome:?}");
        assert!(!at("no.pwk").exists(), "{name}");
    }
}

#[test]
fn a_tablespace_is_packed_only_when_it_is_frozen() {
    for installation in installations() {
        let mut source = sample(&installation, true).copy();
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let from = source.data_dir().to_owned();
        let output = [Path::new("-o"), &at("x.pwk")].map(Path::to_owned);
        let pack = |name: &str| {
            run(pagewarden()
                .args(["pack", "--json", "--tablespace", name])
                .arg(&from)
                .args(&output))
        };
        let unknown = pack("nosuch");
        assert!(unknown.stderr.contains("sample_space"), "{unknown:?}");
        assert_eq!(pack("pg_default").status, Some(2));
        let unfrozen = pack("sample_space");
        assert_eq!(unfrozen.status, Some(2), "{unfrozen:?}");
        let statement = "VACUUM (FREEZE) public.elsewhere;";
        assert!(unfrozen.stderr.contains(statement), "{unfrozen:?}");
        assert!(!at("x.pwk").exists());

        source.start().unwrap();
        source.execute("postgres", &[statement]).unwrap();
        source.stop(StopMode::Fast).unwrap();
        let packed = pack("sample_space");
        assert_eq!(packed.status, Some(0), "{packed:?}");
        let (_, space) = tablespace(&from);
        json("unpack", &[&at("x.pwk"), &at("back")], 0);
        assert_eq!(reached(&at("back")), reached(&space));
        fs::remove_file(at("x.pwk")).unwrap();

        // One row more.
        let insert = "INSERT INTO elsewhere VALUES (1, 'one')";
        source.execute("postgres", &[insert, "CHECKPOINT"]).unwrap();
        source.stop(StopMode::Fast).unwrap();
        assert_eq!(pack("sample_space").status, Some(2));
        source
            .execute("postgres", &["CREATE UNLOGGED TABLE u(i int) TABLESPACE sample_space"])
            .unwrap();
        source.execute("postgres", &[statement]).unwrap();
        source.stop(StopMode::Fast).unwrap();
        let unlogged = pack("sample_space");
        assert!(unlogged.stderr.contains("ALTER TABLE public.u SET LOGGED"), "{unlogged:?}");
    }
}

#[test]
fn a_stream_of_nothing_known_is_no_pack() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = database(folder.path()) else { return };
    let (pack, unknown) = (folder.path().join("x.pwk"), folder.path().join("unknown"));
    fs::write(&unknown, "nothing that is known").unwrap();
    for (base, said) in [(None, "stream"), (Some(&database), "packed as a whole")] {
        let input = Stdio::from(fs::File::open(&unknown).unwrap());
        let mut command = pagewarden();
        command.args(["pack", "-", "-o"]).arg(&pack).stdin(input);
        command.args(base.into_iter().flat_map(|base| ["--base".into(), base.clone()]));
        let outcome = run(&mut command);
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains(said), "{outcome:?}");
        assert!(!pack.exists());
    }
}
