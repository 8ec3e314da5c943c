//! A healthy database has no findings, whatever it went through, and every
//! page is counted as the server's own tool counts it.

use std::collections::BTreeMap;
use std::fs;

use pagewarden_scratch::postgres::{Cluster, Options, StopMode};

use crate::clusters::{
    contents, forget_accesses, give_to_owner_of_folder, installations, metadata, page_files, sample,
};
use crate::damage::{PAGE, Wound, computed, page, stamp};
use crate::runner::{check, check_text};

/// A number in the report of `pg_checksums`: "Blocks scanned:  1234".
pub fn tool_count(output: &str, name: &str) -> u64 {
    let line = output.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim_start_matches(':').trim().parse().ok())
        .unwrap_or_else(|| panic!("no {name} in {output}"))
}

#[test]
fn healthy_cluster_is_intact_and_counted_as_its_own_tool_counts() {
    for installation in installations() {
        let version = &installation.version;
        let sample = sample(&installation, true);
        let outcome = check([sample.cluster.data_dir()]);
        let report = outcome.report();
        assert_eq!(report.findings(), [], "{version}");
        assert!(report.unread().is_empty(), "{version}: {:?}", report.unread());
        assert_eq!((outcome.status, report.verdict()), (Some(0), "intact"), "{version}");
        assert_eq!(outcome.stderr, "");

        let target = report.target();
        assert_eq!(target["engine"], format!("PostgreSQL {version}"));
        assert_eq!(target["format"], "postgres");
        assert_eq!(target["page_size"], 8192);
        assert_eq!(target["setting"], "checksum");
        assert_eq!(target["protection"], "checksum");
        assert_eq!(target["live"], false);
        for count in ["unprotected", "unverifiable", "undecided", "damaged"] {
            assert_eq!(report.pages(count), 0, "{version}: {count}");
        }
        assert_eq!(report.pages("ok"), target["by_mode"]["checksum"].as_u64().unwrap());
        // See the sample's description: healthy and yet with empty pages.
        assert!(report.pages("empty") > 0, "{version}");

        let files = page_files(sample.cluster.data_dir());
        assert_eq!(target["files"], files.len(), "{version}");
        let bytes: u64 = files.values().sum();
        assert_eq!(target["bytes"], bytes, "{version}");
        assert_eq!(report.pages("total"), bytes / PAGE as u64, "{version}");
        if installation.has("pg_checksums") {
            let tool = sample.cluster.pg_checksums(&["--check"]).unwrap();
            assert!(tool.success(), "{tool:?}");
            assert_eq!(tool_count(&tool.stdout, "Bad checksums"), 0);
            assert_eq!(tool_count(&tool.stdout, "Blocks scanned"), report.pages("total"));
            assert_eq!(tool_count(&tool.stdout, "Files scanned"), target["files"]);
        }
    }
}

#[test]
fn healthy_cluster_without_checksums_is_unprotected() {
    for installation in installations() {
        let version = &installation.version;
        let sample = sample(&installation, false);
        let outcome = check([sample.cluster.data_dir()]);
        let report = outcome.report();
        assert_eq!(report.findings(), [], "{version}");
        assert_eq!((outcome.status, report.verdict()), (Some(0), "unprotected"), "{version}");
        let target = report.target();
        assert_eq!((&target["setting"], &target["protection"]), (&"none".into(), &"none".into()));
        let bytes: u64 = page_files(sample.cluster.data_dir()).values().sum();
        assert_eq!(report.pages("total"), bytes / PAGE as u64, "{version}");
        assert_eq!(report.pages("unprotected") + report.pages("empty"), report.pages("total"));
        assert_eq!(report.pages("unprotected"), target["by_mode"]["none"].as_u64().unwrap());

        let path = [sample.cluster.data_dir().as_os_str()];
        let outcome = check(path.into_iter().chain(["--require-protection".as_ref()]));
        assert_eq!(outcome.status, Some(1), "{version}");
        assert_eq!(outcome.report().verdict(), "unprotected");
    }
}

/// What lies about in real data directories and is no damage.
#[test]
fn leftovers_of_a_healthy_history_are_no_findings() {
    for installation in installations() {
        let version = &installation.version;
        let sample = sample(&installation, true);
        let cluster = sample.copy();
        let root = cluster.data_dir();
        let before = check([root]).report();

        let item = sample.file("item");
        let (folder, _) = item.rsplit_once('/').unwrap();
        let folder = root.join(folder);
        let item = fs::read(root.join(item)).unwrap();
        let mut leftovers = BTreeMap::new();
        let mut leave = |name: &str, bytes: &[u8]| {
            fs::write(folder.join(name), bytes).unwrap();
            give_to_owner_of_folder(&folder.join(name));
            leftovers.insert(name.to_owned(), bytes.len() / PAGE);
        };
        // A large DELETE and VACUUM empty the segments after the last page.
        leave("99990", &item[..3 * PAGE]);
        leave("99990.1", b"");
        leave("99990.2", b"");
        // A crashed session's temporary table.
        leave("t3_99999", &item[..2 * PAGE]);
        leave("t0_99999_fsm", b"");
        // A table that was created and not yet written.
        leave("99991", b"");
        let pages: usize = leftovers.values().sum();
        let files = leftovers.len() as u64;
        // No pages, or not PostgreSQL's.
        for name in [
            "pg_internal.init",
            "pg_internal.init.4711",
            "pgsql_tmp4711.0",
            ".DS_Store",
            "16384.orig",
            "core",
        ] {
            fs::write(folder.join(name), b"not a page").unwrap();
        }
        fs::create_dir_all(root.join("base/pgsql_tmp")).unwrap();
        fs::write(root.join("base/pgsql_tmp/pgsql_tmp4711.0"), b"not a page").unwrap();

        let outcome = check([root]);
        let report = outcome.report();
        assert_eq!(report.findings(), [], "{version}");
        assert_eq!((outcome.status, report.verdict()), (Some(0), "intact"), "{version}");
        assert_eq!(report.pages("total"), before.pages("total") + pages as u64);
        assert_eq!(report.target()["files"], before.target()["files"].as_u64().unwrap() + files);
        let notes = report.target()["notes"].to_string();
        for foreign in [".DS_Store", "16384.orig", "core"] {
            assert!(notes.contains(foreign), "{version}: no note on {foreign}");
        }
    }
}

/// Without the product's arithmetic on either side: the server computes the
/// sum of each page, we compute it from the file.
#[test]
fn pageinspect_computes_the_same_sums_page_by_page() {
    for installation in installations() {
        // page_checksum() came with 10.
        if !installation.has_extension("pageinspect") || installation.major < 10 {
            continue;
        }
        let sample = sample(&installation, true);
        let mut cluster = sample.copy();
        let relations = ["item", "item_gin", "item_hash", "wide_toast", "elsewhere"];
        let mut expected = Vec::new();
        for relation in relations {
            let bytes = fs::read(cluster.data_dir().join(sample.file(relation))).unwrap();
            for block in 0..(bytes.len() / PAGE).try_into().unwrap() {
                let page = page(&bytes, block);
                if page.iter().any(|byte| *byte != 0) {
                    expected.push(format!("{relation} {block} {}", computed(page, block)));
                }
            }
        }
        cluster.start().unwrap();
        cluster.psql("CREATE EXTENSION pageinspect").unwrap();
        let mut actual = Vec::new();
        for relation in relations {
            let name = match relation {
                "wide_toast" => cluster
                    .psql("SELECT reltoastrelid::regclass FROM pg_class WHERE relname = 'wide'")
                    .unwrap(),
                name => name.to_owned(),
            };
            let sql = format!(
                "SELECT '{relation} ' || b || ' ' || (page_checksum(page, b::int) & 65535)
                 FROM (SELECT b, get_raw_page('{name}', 'main', b::int) AS page
                       FROM generate_series(0, pg_relation_size('{name}') / 8192 - 1) b) pages
                 WHERE page_checksum(page, b::int) IS NOT NULL
                   AND (page_header(page)).upper > 0 ORDER BY b"
            );
            let rows = cluster.psql(&sql).unwrap();
            actual.extend(rows.lines().map(str::to_owned));
        }
        assert!(actual.len() > 500, "{}", actual.len());
        assert_eq!(actual, expected, "{}", installation.version);
    }
}

#[test]
fn log_segments_of_another_size_are_understood() {
    for installation in installations() {
        if installation.major < 11 {
            continue;
        }
        let options = Options { wal_segment_mib: Some(64), ..Options::default() };
        let mut cluster = Cluster::init(&installation, &options).unwrap();
        cluster.start().unwrap();
        cluster.psql("CREATE TABLE t AS SELECT generate_series(1, 10000) AS id").unwrap();
        let live = check([cluster.data_dir()]).report();
        assert_eq!((live.findings(), live.verdict()), (vec![], "intact"));
        cluster.stop(StopMode::Fast).unwrap();
        let table = {
            let path = cluster.relation_path("postgres", "t").unwrap();
            path.to_str().unwrap().to_owned()
        };
        assert_eq!(check([cluster.data_dir()]).report().findings(), []);
        // The end of the log is where that segment size puts it.
        let _wound = Wound::to(cluster.data_dir().join(&table)).change(|bytes| {
            bytes[..4].fill(0);
            bytes[4..8].copy_from_slice(&0xF000_0000_u32.to_le_bytes());
            stamp(&mut bytes[..PAGE], 0);
        });
        let report = check([cluster.data_dir()]).report();
        let kinds: Vec<_> = report.findings().into_iter().map(|f| (f.file, f.kind)).collect();
        assert_eq!(kinds, [(table, "future_lsn".to_owned())]);
    }
}

#[test]
fn check_leaves_no_trace_in_the_target() {
    for installation in installations() {
        let cluster = sample(&installation, true).copy();
        let root = cluster.data_dir();
        let sums = contents(root);
        forget_accesses(root);
        let before = metadata(root);
        assert_eq!(check([root]).status, Some(0));
        assert_eq!(check_text(["--direct".as_ref(), root.as_os_str()]).status, Some(0));
        assert_eq!(check_text(["--cached".as_ref(), root.as_os_str()]).status, Some(0));
        for (path, after) in metadata(root) {
            assert_eq!(Some(&after), before.get(&path), "{}", path.display());
        }
        assert_eq!(contents(root), sums);
    }
}

/// A table of more than 1 GiB, filled by the server; then most of it deleted
/// and given back, which leaves an empty second segment.
#[test]
#[ignore = "slow: writes 4 GiB"]
fn slow_relation_of_two_segments_grows_and_shrinks() {
    for installation in installations() {
        let version = &installation.version;
        let mut cluster = Cluster::init(
            &installation,
            &Options::default().with("max_wal_size", "'256MB'").with("autovacuum", "off"),
        )
        .unwrap();
        cluster.start().unwrap();
        cluster
            .psql(
                "CREATE TABLE big (id int, filler text);
                 ALTER TABLE big ALTER filler SET STORAGE PLAIN;
                 INSERT INTO big SELECT i, repeat('x', 3900) FROM generate_series(1, 290000) i",
            )
            .unwrap();
        let file = cluster.relation_path("postgres", "big").unwrap();
        let file = file.to_str().unwrap().to_owned();
        let second = format!("{file}.1");
        cluster.stop(StopMode::Fast).unwrap();
        let length = fs::metadata(cluster.data_dir().join(&second)).unwrap().len();
        assert!(length > 0, "{version}: {length}");
        let report = check([cluster.data_dir()]).report();
        assert_eq!((report.findings(), report.verdict()), (vec![], "intact"), "{version}");
        let report = check([cluster.data_dir().join(&second)]).report();
        assert_eq!((report.findings(), report.verdict()), (vec![], "intact"), "{version}");
        assert_eq!(report.pages("total"), length / PAGE as u64);

        cluster.start().unwrap();
        cluster.psql("DELETE FROM big WHERE id > 1000").unwrap();
        cluster.psql("VACUUM big").unwrap();
        cluster.stop(StopMode::Fast).unwrap();
        let length = fs::metadata(cluster.data_dir().join(&second)).unwrap().len();
        assert_eq!(length, 0, "{version}");
        let report = check([cluster.data_dir()]).report();
        assert_eq!((report.findings(), report.verdict()), (vec![], "intact"), "{version}");
    }
}
