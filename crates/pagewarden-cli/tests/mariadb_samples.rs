//! Data directories of real MariaDB servers, with tables of every kind, and the
//! layouts they are made in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pagewarden_scratch::mariadb::{Installation, Server};
use tempfile::TempDir;

/// How a server lays out its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub page_kib: u32,
    pub algorithm: &'static str,
    pub encrypted: bool,
}

impl Shape {
    pub const USUAL: Self = Self { page_kib: 16, algorithm: "full_crc32", encrypted: false };

    /// Those of an ordinary run, or all with `PAGEWARDEN_TEST_VERSIONS=all`.
    pub fn chosen() -> Vec<Self> {
        let shape = |page_kib, algorithm, encrypted| Self { page_kib, algorithm, encrypted };
        if std::env::var("PAGEWARDEN_TEST_VERSIONS").is_ok_and(|versions| versions == "all") {
            let sizes = [4, 8, 16, 32, 64];
            return sizes
                .iter()
                .flat_map(|size| ["crc32", "full_crc32"].map(|algorithm| (*size, algorithm)))
                .map(|(size, algorithm)| shape(size, algorithm, size != 8))
                .collect();
        }
        vec![shape(16, "full_crc32", true), shape(4, "crc32", true)]
    }

    /// Bytes in a page.
    pub fn page(self) -> usize {
        self.page_kib as usize * 1024
    }

    /// The options of a server that makes and uses such files.
    pub fn options(self, key_file: &Path) -> Vec<String> {
        let mut options = vec![
            format!("innodb_page_size={}K", self.page_kib),
            format!("innodb_checksum_algorithm={}", self.algorithm),
            // As small as the server allows: pages are written all the time.
            format!("innodb_buffer_pool_size={}M", if self.page_kib > 16 { 24 } else { 8 }),
            "innodb_log_file_size=16M".to_owned(),
        ];
        if self.encrypted {
            options.push("plugin_load_add=file_key_management".to_owned());
            options.push(format!("file_key_management_filename={}", key_file.display()));
        }
        options
    }
}

/// A test that needs a server gets this.
pub fn installation() -> Option<Installation> {
    Installation::for_test().unwrap()
}

/// A server of this shape, stopped, without tables of the test.
pub fn server(installation: &Installation, shape: Shape) -> (Server, TempDir) {
    server_with(installation, shape, &[])
}

/// The same with options of its own, which win.
pub fn server_with(installation: &Installation, shape: Shape, more: &[&str]) -> (Server, TempDir) {
    let keys = tempfile::Builder::new().prefix("pagewarden-").tempdir_in("/tmp").unwrap();
    crate::runner::open_to_all(keys.path());
    let key_file = keys.path().join("keys");
    // A key for these tests only.
    fs::write(&key_file, "1;000102030405060708090a0b0c0d0e0f\n").unwrap();
    let options = shape.options(&key_file);
    let options: Vec<_> = options.iter().map(String::as_str).chain(more.iter().copied()).collect();
    (Server::install(installation, &options).unwrap(), keys)
}

/// The statements that make tables of every kind.
pub fn tables(shape: Shape) -> String {
    let mut sql = String::from(
        "CREATE DATABASE shop; CREATE DATABASE `odd-name`; USE shop;
         CREATE TABLE source (id INT PRIMARY KEY, word VARCHAR(60), body VARCHAR(300)) ENGINE=InnoDB;
         INSERT INTO source SELECT seq, MD5(seq), REPEAT(MD5(seq * 7), 9) FROM seq_1_to_3000;\n",
    );
    let mut make = |name: &str, options: &str| {
        sql.push_str(&format!(
            "CREATE TABLE {name} (id INT PRIMARY KEY, word VARCHAR(60), body VARCHAR(300),
               KEY (word)) {options};
             INSERT INTO {name} SELECT * FROM shop.source;
             DELETE FROM {name} WHERE id % 5 = 0;\n"
        ));
    };
    make("dynamic", "ENGINE=InnoDB ROW_FORMAT=DYNAMIC");
    make("compact", "ENGINE=InnoDB ROW_FORMAT=COMPACT");
    make("redundant", "ENGINE=InnoDB ROW_FORMAT=REDUNDANT");
    make("squeezed", "ENGINE=InnoDB PAGE_COMPRESSED=1");
    make("parts", "ENGINE=InnoDB PARTITION BY HASH (id) PARTITIONS 2");
    make("`odd-name`.`a table`", "ENGINE=InnoDB");
    if shape.page_kib <= 16 {
        make("zipped", "ENGINE=InnoDB ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=2");
    }
    if shape.encrypted {
        make("secret", "ENGINE=InnoDB ENCRYPTED=YES");
        make("secret_squeezed", "ENGINE=InnoDB ENCRYPTED=YES PAGE_COMPRESSED=1");
    }
    make("aria_sums", "ENGINE=Aria PAGE_CHECKSUM=1");
    make("aria_plain", "ENGINE=Aria PAGE_CHECKSUM=0");
    make("aria_session", "ENGINE=Aria TRANSACTIONAL=0 PAGE_CHECKSUM=1");
    sql
}

/// Tables of which there is nothing to test.
pub const UNREAD_FORMATS: &str = "CREATE DATABASE lone; USE lone;
    CREATE TABLE aria_dynamic ENGINE=Aria TRANSACTIONAL=0 ROW_FORMAT=DYNAMIC AS SELECT 1 AS id;
    CREATE TABLE aria_fixed ENGINE=Aria TRANSACTIONAL=0 ROW_FORMAT=FIXED AS SELECT 1 AS id;
    CREATE TABLE other ENGINE=MyISAM AS SELECT 1 AS id;
    CREATE TABLE none (id INT) ENGINE=MyISAM;
    CREATE TABLE csv_rows (id INT NOT NULL) ENGINE=CSV; INSERT INTO csv_rows VALUES (1);";

/// Changes that leave much for recovery to do.
pub const CHANGES: &str = "USE shop;
    UPDATE dynamic SET body = REVERSE(body) WHERE id % 3 = 0;
    UPDATE squeezed SET body = REVERSE(body);
    CREATE TABLE late ENGINE=InnoDB AS SELECT * FROM source;
    DELETE FROM compact WHERE id > 1500;
    TRUNCATE TABLE redundant;
    ALTER TABLE parts ADD COLUMN more INT, ALGORITHM=COPY;
    DROP TABLE aria_plain;
    UPDATE aria_sums SET word = 'changed' WHERE id < 900;";

/// A copy of a folder, which goes with its owner.
pub fn copy(folder: &Path) -> TempDir {
    let copy = tempfile::Builder::new().prefix("pagewarden-").tempdir_in("/tmp").unwrap();
    let status = Command::new("cp").arg("-a").arg(folder).arg(copy.path().join("data")).status();
    assert!(status.unwrap().success());
    copy
}

/// Where the copied folder is.
pub fn inside(copy: &TempDir) -> PathBuf {
    copy.path().join("data")
}

/// Every file below a folder, relative to it, with its bytes and times: for
/// what must stay as it is.
pub fn listing(folder: &Path) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let metadata = entry.metadata().unwrap();
            if metadata.is_dir() {
                folders.push(entry.path());
            }
            found.push((entry.path(), metadata.len(), metadata.modified().unwrap()));
        }
    }
    found.sort();
    found
}
