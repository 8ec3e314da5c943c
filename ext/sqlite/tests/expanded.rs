//! Pages of packs, expanded once for all processes: by the shell, each time a process of its own.
#![cfg(target_os = "linux")]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::Instant;

use pagewarden::pack::Method;
use tempfile::TempDir;

use crate::packing::{pack, settings};
use crate::shell::{self, Folder};

const BLOCK: u32 = 8192;
const HEAD_BYTES: usize = 4096;

/// A database in a pack, and a folder in memory.
struct Sample {
    folder: Folder,
    memory: TempDir,
    plain: Vec<u8>,
}

const QUERIES: &str = "SELECT * FROM t; SELECT count(*), sum(length(b)) FROM t;
    SELECT a FROM t INDEXED BY i WHERE b > 'F' ORDER BY b LIMIT 2000; PRAGMA integrity_check;";

impl Sample {
    /// `None`, said aloud, where there is no shell.
    fn new(rows: u32) -> Option<Self> {
        if !shell::is_there() {
            return None;
        }
        let folder = Folder::new();
        let script = format!(
            "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);
            WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n WHERE v<{rows})
            INSERT INTO t SELECT v, hex(v*v*7919)||'{}' FROM n; CREATE INDEX i ON t(b);
            INSERT INTO t VALUES(-1, 'as it was packed');",
            "text ".repeat(20)
        );
        assert_eq!(folder.run_plain("x.db", &script).errors, "");
        pack(&folder.path("x.db"), &folder.path("x.pwk"), settings(BLOCK, Method::Zstd(1)));
        let (memory, plain) = (TempDir::new_in("/dev/shm").unwrap(), folder.read("x.db"));
        Some(Self { folder, memory, plain })
    }

    fn name(&self) -> String {
        format!("x.pwk?expanded={}", self.memory.path().display())
    }

    fn expected(&self) -> String {
        let plain = self.folder.run_plain("x.db", QUERIES);
        assert!(plain.rows.ends_with("\nok\n") && plain.errors.is_empty());
        plain.rows
    }

    fn store(&self) -> Option<PathBuf> {
        let mut files = fs::read_dir(self.memory.path()).unwrap();
        let store = files.next().map(|file| file.unwrap().path());
        assert!(files.next().is_none());
        store
    }

    /// How many blocks are there, and of how many; each must be what was packed.
    fn ready(&self, store: &Path) -> (usize, usize) {
        let block = usize::try_from(BLOCK).unwrap();
        let bytes = fs::read(store).unwrap();
        let blocks = self.plain.len().div_ceil(block);
        let (states, kept) = bytes[HEAD_BYTES..].split_at(blocks.next_multiple_of(HEAD_BYTES));
        assert_eq!(kept.len(), self.plain.len());
        let mut ready = 0;
        let pairs = kept.chunks(block).zip(self.plain.chunks(block));
        for (number, (state, (kept, plain))) in states.iter().zip(pairs).enumerate() {
            assert!(*state <= 1, "block {number}");
            assert!(*state == 0 || kept == plain, "block {number}");
            ready += usize::from(*state);
        }
        (ready, blocks)
    }
}

#[test]
fn processes_beside_and_after_each_other_share_what_was_expanded() {
    let Some(sample) = Sample::new(20_000) else { return };
    let expected = sample.expected();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(sample.folder.rows(&sample.name(), QUERIES) == expected));
        }
    });
    let store = sample.store().unwrap();
    let (ready, blocks) = sample.ready(&store);
    assert_eq!(ready, blocks, "all of it was read");
    assert!(sample.folder.rows(&sample.name(), QUERIES) == expected);
    // It is from there that the next one reads: what the owner of the store writes into it he reads.
    let words = b"as it was packed";
    let at = |bytes: &[u8]| bytes.windows(words.len()).position(|found| found == words).unwrap();
    let file = OpenOptions::new().write(true).open(&store).unwrap();
    file.write_all_at(b"as I changed it!", at(&fs::read(&store).unwrap()) as u64).unwrap();
    let script = "SELECT b FROM t WHERE a=-1;";
    assert_eq!(sample.folder.rows(&sample.name(), script), "as I changed it!\n");
    assert_eq!(sample.folder.rows("x.pwk", script), "as it was packed\n");
    // Another pack under the same name finds nothing of the old one.
    pack(
        &sample.folder.path("x.db"),
        &sample.folder.path("x.pwk"),
        settings(BLOCK, Method::Zstd(1)),
    );
    assert_eq!(sample.folder.rows(&sample.name(), script), "as it was packed\n");
}

#[test]
fn process_that_is_killed_while_it_fills_leaves_whole_blocks_alone() {
    let Some(sample) = Sample::new(60_000) else { return };
    let expected = sample.expected();
    let script = sample.folder.path("script");
    fs::write(&script, QUERIES).unwrap();
    let run = || {
        let mut command = sample.folder.command(&sample.name());
        command.stdin(fs::File::open(&script).unwrap());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let begin = Instant::now();
    assert!(run().wait().unwrap().success());
    let whole = begin.elapsed();
    let mut halves = 0;
    for turn in 0..30 {
        if let Some(store) = sample.store() {
            fs::remove_file(store).unwrap();
        }
        let mut child = run();
        thread::sleep(whole * turn / 30);
        child.kill().unwrap();
        child.wait().unwrap();
        if let Some(store) = sample.store() {
            let (ready, blocks) = sample.ready(&store);
            halves += usize::from(ready > 0 && ready < blocks);
        }
        if turn % 10 == 5 {
            assert!(sample.folder.rows(&sample.name(), QUERIES) == expected);
        }
    }
    assert!(halves > 2, "no kill came in time: {halves}");
}

#[test]
fn what_cannot_be_shared_is_said() {
    let Some(sample) = Sample::new(300) else { return };
    let disk = sample.folder.run("x.pwk?expanded=/proc/self", "SELECT count(*) FROM t;");
    assert!(disk.rows.is_empty(), "{disk:?}");
    assert!(
        disk.errors.contains("x.pwk cannot be opened: /proc/self does not lie in memory"),
        "{disk:?}"
    );
    // What lies in the place of the store is left alone, and the pack is read without it.
    let count = "SELECT count(*) FROM t;";
    assert_eq!(sample.folder.rows(&sample.name(), count), "301\n");
    let store = sample.store().unwrap();
    fs::write(&store, "something else").unwrap();
    let output = sample.folder.run(&sample.name(), count);
    assert_eq!(output.rows, "301\n");
    assert!(
        output.errors.contains("pages are not shared: /dev/shm/")
            && output.errors.contains(".expanded cannot be used: ")
            && output.errors.contains("; remove it"),
        "{output:?}"
    );
    assert_eq!(fs::read(&store).unwrap(), b"something else");
}

#[test]
fn damage_of_the_pack_is_seen_before_it_is_shared() {
    let Some(sample) = Sample::new(20_000) else { return };
    let path = sample.folder.path("x.pwk");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&path, bytes).unwrap();
    for _ in 0..2 {
        let output = sample.folder.run(&sample.name(), "SELECT sum(length(b)) FROM t NOT INDEXED;");
        let again = sample.folder.run(&sample.name(), "SELECT b FROM t ORDER BY b;");
        let errors = format!("{}{}", output.errors, again.errors);
        assert!(errors.contains("it cannot be had from the pack: its block at byte"), "{errors}");
    }
    let (ready, blocks) = sample.ready(&sample.store().unwrap());
    assert!(ready > blocks / 4 && ready < blocks, "{ready} of {blocks}");
}
