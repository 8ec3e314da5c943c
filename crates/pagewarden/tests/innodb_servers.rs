//! Tablespaces that a MariaDB of our own writes: every kind of table, stopped and running.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pagewarden::verdict::{Severity, Verdict};
use pagewarden_scratch::mariadb::{Installation, Server};

use crate::innodb::{Report, check};

const KEYS: &str = "1;0f0e0d0c0b0a09080706050403020100\n\
                    2;000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";
const OTHER_KEYS: &str = "1;ff0e0d0c0b0a09080706050403020100\n\
                          2;ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

/// What page_compressed packs pages by: zlib is built in, others come as plugins. The server may
/// write a page once more when it is set to another one already, so that the one that we cannot
/// unpack comes first.
const PACKERS: [&str; 6] = ["lzo", "zlib", "lz4", "lzma", "bzip2", "snappy"];

/// Name and options of each table.
const TABLES: &[(&str, &str)] = &[
    ("plain", ""),
    ("compact", "ROW_FORMAT=COMPACT"),
    ("zip", "ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4"),
    ("packed", "PAGE_COMPRESSED=1"),
    ("secret", "ENCRYPTED=YES ENCRYPTION_KEY_ID=1"),
    ("sealed", "PAGE_COMPRESSED=1 ENCRYPTED=YES ENCRYPTION_KEY_ID=2"),
    ("ziplock", "ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8 ENCRYPTED=YES ENCRYPTION_KEY_ID=2"),
];

struct Database {
    server: Server,
    /// Behind the server, which reads its keys until it ends.
    folder: tempfile::TempDir,
}

impl Database {
    /// All tables with rows, under these options, and the server running.
    fn new(installation: &Installation, options: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("pagewarden-").tempdir_in("/tmp").unwrap();
        let keys = folder.path().join("keys");
        fs::write(&keys, KEYS).unwrap();
        // The server may run as another user.
        for path in [folder.path(), &keys] {
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let key_file = format!("file_key_management_filename={}", keys.display());
        let mut all = vec!["plugin_load_add=file_key_management", &key_file];
        all.extend(options);
        // The rows are many enough for several levels of an index.
        let install: Vec<&str> = options.to_vec();
        let mut plain = Server::install(installation, &install).unwrap();
        let mut server = plain.duplicate(&all).unwrap();
        server.start().unwrap();
        server.sql("CREATE DATABASE t").unwrap();
        for (name, options) in TABLES {
            server
                .sql(&format!(
                    "USE t; CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(400), KEY (v)) {options};
                     INSERT INTO {name} SELECT seq, REPEAT(MD5(seq), 1 + seq % 12) FROM seq_1_to_3000;
                     DELETE FROM {name} WHERE id % 3 = 0"
                ))
                .unwrap();
        }
        Self { server, folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.server.data_dir().join("t").join(format!("{name}.ibd"))
    }

    fn keys(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

fn sound(path: &Path, keyring: Option<&Path>) -> Report {
    let report = check(path, keyring).unwrap();
    assert_eq!(report.findings, [], "{}", path.display());
    let is_untested = report.summary.pages.unverifiable > 0;
    let expected = if is_untested { Verdict::Incomplete } else { Verdict::Intact };
    assert_eq!(report.summary.verdict(None), expected, "{}", path.display());
    report
}

#[test]
fn every_kind_of_table_of_a_stopped_server_is_intact() {
    let Some(installation) = Installation::for_test().unwrap() else { return };
    for (algorithm, page_size) in [("crc32", "16k"), ("full_crc32", "4k"), ("crc32", "64k")] {
        let settings = [
            format!("innodb_checksum_algorithm={algorithm}"),
            format!("innodb_page_size={page_size}"),
        ];
        // 64K pages cannot be compressed row by row, and need more memory.
        let more = ["innodb_strict_mode=OFF", "innodb_buffer_pool_size=64M"];
        let options: Vec<_> = settings.iter().map(String::as_str).chain(more).collect();
        let mut database = Database::new(&installation, &options);
        database.server.stop().unwrap();
        let is_old = algorithm == "crc32";
        for (name, _) in TABLES {
            let report = sound(&database.file(name), None);
            let locked = report.summary.pages.unverifiable;
            assert_eq!(locked > 0, is_old && *name == "sealed", "{name}: {report:?}");
        }
        for name in ["ibdata1", "undo001", "undo002", "mysql/innodb_table_stats.ibd"] {
            let path = database.server.data_dir().join(name);
            if path.exists() {
                sound(&path, None);
            }
        }
        let report = sound(&database.file("sealed"), Some(&database.keys("keys", KEYS)));
        assert_eq!(report.summary.pages.unverifiable, 0, "{report:?}");
        let report = sound(&database.file("sealed"), Some(&database.keys("other", OTHER_KEYS)));
        let says = |words: &str| report.notes.iter().any(|note| note.contains(words));
        assert_eq!(says("another one"), is_old, "{:?}", report.notes);
    }
}

/// Page sizes and algorithms of an ordinary run, or all with `PAGEWARDEN_TEST_VERSIONS=all`.
fn layouts() -> Vec<(&'static str, &'static str)> {
    const ALGORITHMS: [&str; 4] = ["crc32", "full_crc32", "strict_crc32", "strict_full_crc32"];
    let sizes = ["4k", "8k", "16k", "32k", "64k"];
    let all = std::env::var("PAGEWARDEN_TEST_VERSIONS").is_ok_and(|versions| versions == "all");
    let pairs = sizes.iter().enumerate().flat_map(|(at, size)| {
        let chosen =
            ALGORITHMS.iter().enumerate().filter(move |(index, _)| all || *index == at % 2);
        chosen.map(|(_, algorithm)| (*size, *algorithm))
    });
    pairs.collect()
}

/// The tables of one server, each in every form that its pages can have, and what packs them: in
/// the old layout that is what the server is set to when it writes a page.
fn forms(page_kib: usize, packers: &[&str]) -> Vec<(String, String, &'static str)> {
    let table = |name: String, options: &str| (name, options.to_owned(), "zlib");
    let mut forms: Vec<_> = ["DYNAMIC", "COMPACT", "REDUNDANT"]
        .iter()
        .map(|format| table(format.to_lowercase(), &format!("ROW_FORMAT={format}")))
        .collect();
    for block in [1, 2, 4, 8, 16] {
        if page_kib <= 16 && block <= page_kib {
            let zip = format!("ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE={block}");
            forms.push(table(format!("zip{block}"), &zip));
            forms.push(table(format!("ziplock{block}"), &format!("{zip} ENCRYPTED=YES")));
        }
    }
    forms.push(table("secret".to_owned(), "ENCRYPTED=YES ENCRYPTION_KEY_ID=2"));
    for packer in PACKERS.into_iter().filter(|packer| packers.contains(packer)) {
        forms.push((format!("packed_{packer}"), "PAGE_COMPRESSED=1".to_owned(), packer));
        let sealed = "PAGE_COMPRESSED=1 ENCRYPTED=YES".to_owned();
        forms.push((format!("sealed_{packer}"), sealed, packer));
    }
    forms
}

/// Those that this server has.
fn packers(server: &Server) -> Vec<&'static str> {
    let has = |packer: &&str| {
        let is_there =
            *packer == "zlib" || server.sql(&format!("INSTALL SONAME 'provider_{packer}'")).is_ok();
        if !is_there {
            eprintln!("SKIPPED: no page_compressed by {packer}: mariadb-plugin-provider-{packer}");
        }
        is_there
    };
    PACKERS.into_iter().filter(has).collect()
}

/// Says whether MariaDB's own program finds nothing wrong.
fn innochecksum(path: &Path) -> Option<bool> {
    let output = Command::new("innochecksum").arg(path).output().ok()?;
    Some(output.status.success())
}

#[test]
fn every_layout_that_a_server_offers_is_intact() {
    let Some(installation) = Installation::for_test().unwrap() else { return };
    let keys = tempfile::Builder::new().prefix("pagewarden-").tempdir_in("/tmp").unwrap();
    let key_file = keys.path().join("keys");
    fs::write(&key_file, KEYS).unwrap();
    for path in [keys.path(), &key_file] {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (mut files, mut pages, mut agreed, mut locked) = (0, 0, 0, 0);
    for (size, algorithm) in layouts() {
        let page_kib: usize = size.trim_end_matches('k').parse().unwrap();
        let options = [
            format!("innodb_checksum_algorithm={algorithm}"),
            format!("innodb_page_size={size}"),
            "innodb_buffer_pool_size=64M".to_owned(),
            "plugin_load_add=file_key_management".to_owned(),
            format!("file_key_management_filename={}", key_file.display()),
        ];
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let mut server = Server::install(&installation, &options).unwrap();
        server.start().unwrap();
        let forms = forms(page_kib, &packers(&server));
        server.sql("CREATE DATABASE t").unwrap();
        for (name, options, packer) in &forms {
            server
                .sql(&format!(
                    "SET GLOBAL innodb_compression_algorithm={packer}; USE t;
                     CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(200), b MEDIUMBLOB, KEY (v)) {options};
                     INSERT INTO {name} SELECT seq, REPEAT(MD5(seq), 1 + seq % 6),
                       IF(seq % 300 = 0, REPEAT(SHA1(seq), 2000), NULL) FROM seq_1_to_1500;
                     DELETE FROM {name} WHERE id % 3 = 0;
                     FLUSH TABLES {name} FOR EXPORT; UNLOCK TABLES"
                ))
                .unwrap();
        }
        server.stop().unwrap();
        let root = server.data_dir();
        let is_old =
            algorithm.ends_with("_crc32") && !algorithm.contains("full") || algorithm == "crc32";
        for (name, _, packer) in &forms {
            let path = root.join(format!("t/{name}.ibd"));
            let report = sound(&path, None);
            let what = format!("{size} {algorithm} {name}");
            let is_locked = is_old
                && (name.starts_with("sealed") || (name.starts_with("packed") && *packer == "lzo"));
            // A page that does not get smaller by it is not packed.
            assert!(report.summary.pages.unverifiable == 0 || is_locked, "{what}: {report:?}");
            locked += report.summary.pages.unverifiable;
            pages += report.summary.pages.total();
            files += 1;
            if is_locked && *packer != "lzo" {
                let report = sound(&path, Some(&key_file));
                assert_eq!(report.summary.pages.unverifiable, 0, "{what}: {report:?}");
            }
            let Some(theirs) = innochecksum(&path) else { continue };
            assert!(theirs, "{what}: innochecksum finds something, and we do not");
            // What it passes over, it cannot agree on.
            if is_old && (name.starts_with("sealed") || name.starts_with("packed")) {
                continue;
            }
            let healthy = fs::read(&path).unwrap();
            let mut bytes = healthy.clone();
            let physical = report.summary.bytes / report.summary.pages.total();
            // A compressed page stores 256 bytes at least.
            bytes[3 * physical as usize + 100] ^= 0x10;
            fs::write(&path, &bytes).unwrap();
            let ours = check(&path, None).unwrap().findings.is_empty();
            assert_eq!(innochecksum(&path), Some(ours), "{what}: a flipped bit");
            assert!(!ours, "{what}: a flipped bit");
            fs::write(&path, &healthy).unwrap();
            agreed += 1;
        }
        // All of it: the system's own tables, undo logs, Aria.
        let report = sound(root, None);
        let is_known =
            |note: &String| note.contains("other formats") || note.contains("not tested");
        assert!(report.notes.iter().all(is_known), "{report:?}");
        pages += report.summary.pages.total();
    }
    assert!(locked > 100, "{locked} pages of tables that are compressed and encrypted");
    eprintln!(
        "MariaDB: {files} tables in {} layouts, {pages} pages, {locked} of them locked, no finding; \
         innochecksum agrees on {agreed}",
        layouts().len()
    );
}

/// Algorithms that it reads in old files, and writes no more.
#[test]
fn server_writes_no_other_algorithm() {
    let Some(installation) = Installation::for_test().unwrap() else { return };
    for algorithm in ["none", "innodb", "strict_none"] {
        let option = format!("innodb_checksum_algorithm={algorithm}");
        assert!(Server::install(&installation, &[&option]).is_err(), "{algorithm}");
    }
}

#[test]
fn flipped_bit_in_a_compressed_and_encrypted_page_is_seen_with_the_key() {
    let Some(installation) = Installation::for_test().unwrap() else { return };
    let mut database = Database::new(&installation, &["innodb_checksum_algorithm=crc32"]);
    database.server.stop().unwrap();
    let path = database.file("sealed");
    let keys = database.keys("keys", KEYS);
    let mut bytes = fs::read(&path).unwrap();
    bytes[5 * 16_384 + 200] ^= 8;
    fs::write(&path, &bytes).unwrap();
    let with = check(&path, Some(&keys)).unwrap();
    assert_eq!(with.pages(Severity::Damage), [5], "{with:?}");
    let without = check(&path, None).unwrap();
    assert_eq!(without.pages(Severity::Suspect), [5], "{without:?}");
}

#[test]
fn tablespaces_in_use_are_never_called_damaged() {
    let Some(installation) = Installation::for_test().unwrap() else { return };
    let database = Database::new(&installation, &["innodb_checksum_algorithm=crc32"]);
    for round in 0..20 {
        database
            .server
            .sql(&format!("USE t; UPDATE plain SET v = REPEAT(MD5(id + {round}), 9)"))
            .unwrap();
        for (name, _) in TABLES {
            let report = check(&database.file(name), None).unwrap();
            assert!(report.pages(Severity::Damage).is_empty(), "{name}: {report:?}");
        }
    }
}
