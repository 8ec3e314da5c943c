//! `make demo`: the main job on databases that it makes itself, sound and
//! damaged side by side, and then a tour of the other commands. The first argument is the
//! pagewarden program.

#![allow(clippy::print_stdout)]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode};

fn main() -> Result<()> {
    let Some(program) = std::env::args_os().nth(1).map(PathBuf::from) else {
        bail!("usage: pagewarden-demo PROGRAM");
    };
    let check = |path: &Path, status: i32| run(&program, &[&"check", &path], status);
    let survey = |path: &Path, status: i32| run(&program, &[&"survey", &path], status);
    println!("== A SQLite database, made now ==\n");
    let folder = tempfile::tempdir()?;
    let shop = sqlite(folder.path(), &check)?;
    match Installation::newest_with("psql") {
        Some(installation) => {
            println!("\n== A PostgreSQL {} cluster, made now ==\n", installation.version);
            let cluster = postgres(&installation, &check)?;
            println!("\n== All of it on one screen ==\n");
            survey(cluster.data_dir(), 0)?;
        }
        None => {
            println!(
                "\n(No PostgreSQL server was found, so no cluster was made. `cargo xtask servers 18`\n \
                 or your system's postgresql package brings one; then run this again.)"
            );
            println!("\n== All of it on one screen ==\n");
            survey(&shop, 0)?;
        }
    }
    tour(&program, folder.path(), &shop)?;
    println!("Now on your own files:\n\n    {} survey PATH", program.display());
    Ok(())
}

/// Runs a command as a user would and shows what a user would see.
fn run(program: &Path, words: &[&dyn AsRef<OsStr>], expected: i32) -> Result<()> {
    let words: Vec<&OsStr> = words.iter().map(|word| (*word).as_ref()).collect();
    let shown: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    println!("$ pagewarden {}", shown.join(" "));
    let status = Command::new(program)
        .args(&words)
        .arg("--quiet")
        .status()
        .with_context(|| format!("cannot run {}", program.display()))?;
    println!("(exit status {})\n", status.code().unwrap_or(-1));
    ensure!(
        status.code() == Some(expected),
        "the demonstration expected exit status {expected}, not {status}"
    );
    Ok(())
}

/// The other commands, on copies of the SQLite database.
fn tour(program: &Path, folder: &Path, shop: &Path) -> Result<()> {
    println!("\n== Turn protection on ==\n");
    let protected = folder.join("protected.sqlite");
    fs::copy(shop, &protected)?;
    run(program, &[&"protect", &"--mode", &"checksum", &protected], 0)?;
    println!("Now each page carries a checksum:\n");
    run(program, &[&"check", &protected], 0)?;

    println!("== Verify it again and again, and see how things stand ==\n");
    let state = folder.join("state");
    run(program, &[&"scrub", &"--state", &state, &protected], 0)?;
    run(program, &[&"status", &"--state", &state], 0)?;

    println!("== Keep what is only read as one compressed file ==\n");
    let pack = folder.join("shop.pwk");
    run(program, &[&"pack", &shop, &"-o", &pack], 0)?;
    run(program, &[&"check", &pack], 0)?;
    println!("Its tables can be read where it is:\n");
    run(program, &[&"checksum", &url(&pack)], 0)?;
    println!("And the very same bytes come out of it:\n");
    let out = folder.join("out");
    run(program, &[&"unpack", &pack, &out], 0)?;
    let unpacked = out.join("shop.sqlite");
    ensure!(fs::read(&unpacked)? == fs::read(shop)?, "{} differs", unpacked.display());

    println!("== Are two databases equal? ==\n");
    let (source, target) = (url(shop), url(&unpacked));
    run(program, &[&"compare", &source, &target], 0)?;
    println!("After one row of the copy was changed:\n");
    let connection = rusqlite::Connection::open(&unpacked)?;
    connection.execute("UPDATE item SET price = price + 1 WHERE id = 4711", [])?;
    connection.close().map_err(|(_, error)| error)?;
    run(program, &[&"compare", &source, &target, &"--show-values"], 1)?;

    println!("== What the disk can do, and what protection costs ==\n");
    let words: [&dyn AsRef<OsStr>; 7] =
        [&"iotest", &"--size", &"64MiB", &"--time", &"1s", &"--no-sweep", &folder];
    run(program, &words, 0)?;
    run(program, &[&"cost", &"--list"], 0)
}

fn url(database: &Path) -> String {
    format!("sqlite:{}", database.display())
}

/// Checks a database and a damaged copy. Returns the sound one.
fn sqlite(folder: &Path, check: &dyn Fn(&Path, i32) -> Result<()>) -> Result<PathBuf> {
    let sound = folder.join("shop.sqlite");
    let connection = rusqlite::Connection::open(&sound)?;
    connection.execute_batch(
        "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL);
         CREATE INDEX item_by_name ON item (name);
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
         INSERT INTO item SELECT i, 'item number ' || i, i * 0.25 FROM n;",
    )?;
    connection.close().map_err(|(_, error)| error)?;
    println!("Sound. SQLite has no page checksums of its own, and that is said plainly:\n");
    check(&sound, 0)?;

    println!("A copy that lost its end:\n");
    let cut = folder.join("cut.sqlite");
    fs::copy(&sound, &cut)?;
    let length = fs::metadata(&cut)?.len();
    File::options().write(true).open(&cut)?.set_len(length / 2 + 1000)?;
    check(&cut, 1)?;
    Ok(sound)
}

const PAGE: u64 = 8192;

/// Checks a cluster and a damaged copy. Returns the sound one.
fn postgres(
    installation: &Installation,
    check: &dyn Fn(&Path, i32) -> Result<()>,
) -> Result<Cluster> {
    let mut cluster = Cluster::init(installation, &Options::default())?;
    cluster.start()?;
    cluster.psql(
        "CREATE TABLE account (id int PRIMARY KEY, owner text, balance int);
         INSERT INTO account SELECT i, 'owner number ' || i, i FROM generate_series(1, 100000) i;
         CREATE TABLE entry AS SELECT i AS id, i % 1000 AS account, now() AS at FROM generate_series(1, 100000) i;
         CHECKPOINT;",
    )?;
    let account = cluster.relation_path("postgres", "account")?;
    let entry = cluster.relation_path("postgres", "entry")?;
    cluster.stop(StopMode::Fast)?;
    println!("Sound:\n");
    check(cluster.data_dir(), 0)?;

    println!("Four kinds of damage, on a copy:\n");
    let copy = cluster.duplicate()?;
    let in_copy =
        |path: &Path| File::options().read(true).write(true).open(copy.data_dir().join(path));
    let (account, entry) = (in_copy(&account)?, in_copy(&entry)?);
    println!("  - one bit flipped in block 10 of account");
    let mut byte = [0_u8];
    account.read_exact_at(&mut byte, 10 * PAGE + 5000)?;
    byte.iter_mut().for_each(|byte| *byte ^= 0x10);
    account.write_all_at(&byte, 10 * PAGE + 5000)?;
    println!("  - block 20 of account written over block 30: a misdirected write");
    let mut page = vec![0_u8; 8192];
    account.read_exact_at(&mut page, 20 * PAGE)?;
    account.write_all_at(&page, 30 * PAGE)?;
    println!("  - 64 KiB of noise over entry, from block 40 on: a bad sector run");
    let mut state = 1_u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let [.., high] = state.to_le_bytes();
        high
    })
    .take(64 << 10)
    .collect();
    entry.write_all_at(&noise, 40 * PAGE)?;
    println!("  - the last page of entry cut in half\n");
    let length = entry.metadata()?.len();
    entry.set_len(length - PAGE / 2)?;
    check(copy.data_dir(), 1)?;
    Ok(cluster)
}
