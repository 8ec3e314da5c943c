//! Tablespaces that a MariaDB of our own writes: every kind of table, stopped and running.

use std::fs;
use std::path::{Path, PathBuf};

use pagewarden::verdict::{Severity, Verdict};
use pagewarden_scratch::mariadb::{Installation, Server};

use crate::innodb::{Report, check};

const KEYS: &str = "1;0f0e0d0c0b0a09080706050403020100\n\
                    2;000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";
const OTHER_KEYS: &str = "1;ff0e0d0c0b0a09080706050403020100\n\
                          2;ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

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
        // The server may run as somebody else.
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
    assert_eq!(report.summary.verdict(None), Verdict::Intact, "{}", path.display());
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
