//! Tables whose files are laid out in rarer ways: many extents (pages of descriptors behind the first one, extents
//! that MySQL lends to segments), definitions of more than a page, full-text search, indexes on a part of a column.

use std::fs;

use pagewarden_scratch::any_mysql::{Installation, Server};

use crate::runner::check;

/// Bytes in a page; each 1,024th has descriptors of extents.
const PAGE: usize = 1024;
const EXTENT_PAGES: usize = 256;
const LENT: u32 = 5;

fn states(file: &[u8]) -> Vec<u32> {
    let descriptor = 24 + EXTENT_PAGES * 2 / 8;
    let pages = file.chunks_exact(PAGE).step_by(PAGE);
    pages
        .flat_map(|page| page[150..].chunks_exact(descriptor).take(PAGE / EXTENT_PAGES))
        .map(|it| u32::from_be_bytes(it[20..24].try_into().unwrap()))
        .collect()
}

#[test]
fn innodb_files_of_rarer_kinds_raise_no_alarm() {
    for version in ["mysql", "mariadb"] {
        let Some(installation) = Installation::find(version) else {
            println!("SKIPPED: no {version}: cargo xtask servers {version}");
            continue;
        };
        let mut server = Server::install(&installation, &["innodb-page-size=4k"]).unwrap();
        server.start().unwrap();
        let mut sql = String::from(
            "CREATE DATABASE w; USE w;
             CREATE TABLE t (id INT PRIMARY KEY, word VARCHAR(40), KEY (word)) ENGINE=InnoDB ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=1;
             INSERT INTO t VALUES (0, 'a');\n",
        );
        for step in (0..15).map(|power| 1 << power) {
            sql.push_str(&format!(
                "INSERT INTO t SELECT id + {step}, HEX(CRC32(id + {step}) * 7919) FROM t;\n"
            ));
        }
        let columns: String =
            (0..150).map(|it| format!(", c{it} INT COMMENT '{}'", "long ".repeat(it))).collect();
        sql.push_str(&format!(
            "CREATE TABLE wide (id INT PRIMARY KEY{columns}) ENGINE=InnoDB; INSERT INTO wide (id) VALUES (1);
             CREATE TABLE texts (id INT PRIMARY KEY, t TEXT, FULLTEXT (t)) ENGINE=InnoDB;
             INSERT INTO texts SELECT id, CONCAT('some word', id) FROM t WHERE id < 300;
             DELETE FROM texts WHERE id < 40;
             CREATE TABLE parts (id INT PRIMARY KEY, w VARCHAR(300), KEY (w(10)), KEY (id, w(5))) ENGINE=InnoDB;
             INSERT INTO parts SELECT id, REPEAT(word, 3) FROM t WHERE id < 500;"
        ));
        server.sql(&sql).unwrap();
        server.stop().unwrap();
        let states = states(&fs::read(server.data_dir().join("w/t.ibd")).unwrap());
        assert!(states.len() > 2 * PAGE / EXTENT_PAGES, "{}", states.len());
        assert_eq!(states.contains(&LENT), version == "mysql", "{states:?}");
        for options in [&[][..], &["--structure"]] {
            let target = server.data_dir();
            let arguments = options.iter().map(AsRef::as_ref).chain([target.as_os_str()]);
            let report = check(arguments).report();
            assert_eq!(report.verdict(), "intact", "{version}: {:#?}", report.raw_findings());
        }
    }
}
