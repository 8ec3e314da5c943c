//! Programs that take no URI, or that open their databases by a library: each with the VFS as the
//! default, on a new database, an old one and a pack.
//!
//! Python's own `sqlite3` is tried where it loads extensions. All others come from
//! `scripts/sqlite-programs.sh`, which installs them into `target/sqlite-programs`; a test says
//! `SKIPPED` where its program is not there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pagewarden::pack::Method;

use crate::packing::{pack, settings};
use crate::shell::{self, Folder};

/// What every program here begins with: the extension loaded once, on a database in memory.
const LOAD: &str = "
import os, sqlite3
def load():
    c = sqlite3.connect(':memory:')
    c.enable_load_extension(True)
    c.execute('SELECT load_extension(?, ?)', [os.environ['EXTENSION'], os.environ['ENTRY']])
load()
";

fn installed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/sqlite-programs")
}

/// A Python whose `sqlite3` loads extensions.
fn python() -> Option<&'static str> {
    let can_load = "import sqlite3; sqlite3.connect(':memory:').enable_load_extension(True)";
    let runs = |python: &str| {
        Command::new(python).args(["-c", can_load]).output().is_ok_and(|out| out.status.success())
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().find(|python| runs(python));
    if found.is_none() {
        eprintln!("SKIPPED: no Python here that loads extensions of SQLite");
    }
    found
}

/// Runs a Python script in `folder`; `None` where `module` is not installed.
fn run(folder: &Folder, module: &str, script: &str) -> Option<Output> {
    let python = python()?;
    let command = |script: &str| {
        Command::new(python)
            .env("PYTHONPATH", installed().join("python"))
            .env("EXTENSION", shell::extension())
            .env("ENTRY", "sqlite3_pagewarden_default_init")
            .current_dir(folder.path(""))
            .args(["-c", script])
            .output()
            .unwrap()
    };
    if !command(&format!("import {module}")).status.success() {
        eprintln!("SKIPPED: no {module} for Python: scripts/sqlite-programs.sh installs it");
        return None;
    }
    Some(command(script))
}

/// The old database of every test, `old.db`, and a pack of one, `old.pwk`.
fn with_old() -> Folder {
    let folder = Folder::new();
    let fill = "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);
        WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n WHERE v<500)
        INSERT INTO t SELECT v, hex(v*v*7919) FROM n;";
    folder.run_plain("old.db", fill);
    pack(&folder.path("old.db"), &folder.path("old.pwk"), settings(65_536, Method::Zstd(3)));
    folder
}

/// It ran, `new.db` is protected and sound, and `old.db` is what it was: plain.
fn assert_went_well(folder: &Folder, output: &Output, said: &str) {
    let rows = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && rows.contains(said), "{output:?}");
    let checked = folder.check("new.db");
    assert_eq!((checked.setting, &checked.findings), (Some("checksum"), &Vec::new()));
    let pages = checked.summary.pages;
    assert!(pages.ok > 1 && pages.ok == pages.total(), "{pages:?}");
    assert_eq!(folder.check("old.db").setting, Some("none"));
}

#[test]
fn python_opens_by_plain_paths() {
    if !shell::is_there() {
        return;
    }
    let folder = with_old();
    let script = format!(
        "{LOAD}
new = sqlite3.connect('new.db')
new.execute('PRAGMA journal_mode=WAL')
new.execute('CREATE TABLE t(a INTEGER PRIMARY KEY, b)')
new.executemany('INSERT INTO t(b) VALUES(?)', [('x' * n,) for n in range(300)])
new.commit()
new.execute(\"ATTACH 'old.db' AS old\")
new.execute(\"INSERT INTO old.t(b) VALUES('more')\")
new.commit()
copy = sqlite3.connect('copy.db')
new.backup(copy)
print(copy.execute('PRAGMA page_verify').fetchone()[0])
print(sqlite3.connect('old.pwk').execute('SELECT count(*) FROM t').fetchone()[0])
print(new.execute('SELECT count(*) FROM pagewarden_suspect_pages').fetchone()[0])"
    );
    let Some(output) = run(&folder, "sqlite3", &script) else { return };
    assert_went_well(&folder, &output, "CHECKSUM\n500\n0\n");
    assert_eq!(folder.check("copy.db").damage(), Vec::<&_>::new());
}

#[test]
fn sqlite_utils_opens_by_plain_paths() {
    if !shell::is_there() {
        return;
    }
    let folder = with_old();
    let script = format!(
        "{LOAD}
import sqlite_utils
new = sqlite_utils.Database('new.db')
new['people'].insert_all([{{'id': n, 'name': 'x' * n}} for n in range(300)], pk='id')
new['people'].create_index(['name'])
old = sqlite_utils.Database('old.db')
old['t'].insert({{'b': 'more'}})
print(new['people'].count, old['t'].count, sqlite_utils.Database('old.pwk')['t'].count)"
    );
    let Some(output) = run(&folder, "sqlite_utils", &script) else { return };
    assert_went_well(&folder, &output, "300 501 500\n");
}

#[test]
fn sqlalchemy_opens_by_plain_paths() {
    if !shell::is_there() {
        return;
    }
    let folder = with_old();
    let script = format!(
        "{LOAD}
from sqlalchemy import create_engine, text
with create_engine('sqlite:///new.db').begin() as new:
    new.execute(text('CREATE TABLE t(a INTEGER PRIMARY KEY, b)'))
    new.execute(text('INSERT INTO t(b) VALUES(:b)'), [{{'b': 'x' * n}} for n in range(300)])
with create_engine('sqlite:///old.db').begin() as old:
    old.execute(text(\"INSERT INTO t(b) VALUES('more')\"))
with create_engine('sqlite:///old.pwk').connect() as pack:
    print(pack.execute(text('SELECT count(*) FROM t')).scalar())"
    );
    let Some(output) = run(&folder, "sqlalchemy", &script) else { return };
    assert_went_well(&folder, &output, "500\n");
}

#[test]
fn django_opens_by_plain_paths() {
    if !shell::is_there() {
        return;
    }
    let folder = with_old();
    let script = format!(
        "{LOAD}
import django
from django.conf import settings
engine = 'django.db.backends.sqlite3'
settings.configure(INSTALLED_APPS=['django.contrib.contenttypes', 'django.contrib.auth'],
    DATABASES={{'default': {{'ENGINE': engine, 'NAME': 'new.db'}},
               'old': {{'ENGINE': engine, 'NAME': 'old.db'}},
               'pack': {{'ENGINE': engine, 'NAME': 'old.pwk'}}}})
django.setup()
from django.core.management import call_command
call_command('migrate', verbosity=0)
from django.contrib.auth.models import User
User.objects.bulk_create([User(username='user %d' % n) for n in range(300)])
from django.db import connections
with connections['old'].cursor() as old:
    old.execute(\"INSERT INTO t(b) VALUES('more')\")
with connections['pack'].cursor() as pack:
    pack.execute('SELECT count(*) FROM t')
    print(User.objects.count(), pack.fetchone()[0])"
    );
    let Some(output) = run(&folder, "django", &script) else { return };
    assert_went_well(&folder, &output, "300 500\n");
}

/// apsw brings a SQLite of its own, into which the extension is loaded.
#[test]
fn apsw_opens_by_plain_paths() {
    if !shell::is_there() {
        return;
    }
    let folder = with_old();
    let script = "
import apsw, os
c = apsw.Connection(':memory:')
c.enable_load_extension(True)
c.load_extension(os.environ['EXTENSION'], os.environ['ENTRY'])
new = apsw.Connection('new.db')
new.execute('CREATE TABLE t(a INTEGER PRIMARY KEY, b)')
with new:
    new.executemany('INSERT INTO t(b) VALUES(?)', [('x' * n,) for n in range(300)])
old = apsw.Connection('old.db')
old.execute(\"INSERT INTO t(b) VALUES('more')\")
copy = apsw.Connection('copy.db')
with copy.backup('main', new, 'main') as backup:
    backup.step()
print(copy.pragma('page_verify'), apsw.Connection('old.pwk').execute('SELECT count(*) FROM t').get)";
    let Some(output) = run(&folder, "apsw", script) else { return };
    assert_went_well(&folder, &output, "CHECKSUM 500\n");
    assert_eq!(folder.check("copy.db").damage(), Vec::<&_>::new());
}

/// Datasette opens its databases before it loads the extensions of a connection, so a plugin of four
/// lines loads it when Datasette starts.
#[test]
fn datasette_serves_a_protected_database_and_a_pack() {
    if !shell::is_there() {
        return;
    }
    let folder = with_old();
    folder.run_default(
        "new.db",
        "CREATE TABLE t(a, b); INSERT INTO t VALUES(1, hex(zeroblob(9000)));",
    );
    std::fs::create_dir(folder.path("plugins")).unwrap();
    folder.write("plugins/pagewarden.py", LOAD.as_bytes());
    let script = "
import subprocess, sys
words = [sys.executable, '-m', 'datasette', 'old.pwk', 'new.db', '--plugins-dir', 'plugins', '--get']
for path in ['/old/t.json?_size=1&_shape=array', '/new.json?sql=select+length(b)+from+t&_shape=arrays']:
    out = subprocess.run(words + [path], capture_output=True, text=True)
    print(out.stdout, out.stderr)";
    let Some(output) = run(&folder, "datasette", script) else { return };
    let rows = String::from_utf8_lossy(&output.stdout);
    assert!(rows.contains("37393139"), "from the pack: {output:?}");
    assert_went_well(&folder, &output, "[[18000]]");
    let mut bytes = folder.read("new.db");
    bytes[3 * 4096 + 9] ^= 1;
    folder.write("new.db", &bytes);
    let output = run(&folder, "datasette", script).unwrap();
    let rows = String::from_utf8_lossy(&output.stdout);
    assert!(rows.contains("disk I/O error") && !rows.contains("18000"), "{output:?}");
}

/// Runs a script of JavaScript in `folder`, by `program` of those that are installed or else on the path;
/// `None` where `probe` does not run there.
fn run_script(folder: &Folder, program: &str, probe: &str, script: &str) -> Option<Output> {
    let modules = installed().join("node_modules");
    let own = modules.join(".bin").join(program);
    let names = [own.to_str()?, program];
    let run = |name: &str, script: &str| {
        Command::new(name)
            .env("NODE_PATH", &modules)
            .env("EXTENSION", shell::extension().with_extension("so"))
            .env("ENTRY", "sqlite3_pagewarden_default_init")
            .current_dir(folder.path(""))
            .args(["-e", script])
            .output()
    };
    let can = |name: &&&str| run(name, probe).is_ok_and(|output| output.status.success());
    let Some(name) = names.iter().find(can) else {
        eprintln!(
            "SKIPPED: no {program} that runs {probe}: scripts/sqlite-programs.sh installs it"
        );
        return None;
    };
    Some(run(name, script).unwrap())
}

/// better-sqlite3 is built without URIs.
#[test]
fn better_sqlite3_opens_by_plain_paths() {
    if !shell::is_there() {
        return;
    }
    let folder = with_old();
    // Its binary is of the Node that installed it, and is loaded with the first database.
    let probe = "new (require('better-sqlite3'))(':memory:')";
    let script = "
const Database = require('better-sqlite3');
new Database(':memory:').loadExtension(process.env.EXTENSION, process.env.ENTRY);
const db = new Database('new.db');
db.pragma('journal_mode = WAL');
db.exec('CREATE TABLE t(a INTEGER PRIMARY KEY, b)');
const insert = db.prepare('INSERT INTO t(b) VALUES(?)');
for (let n = 0; n < 300; n++) insert.run('x'.repeat(n));
db.exec(\"ATTACH 'old.db' AS old; INSERT INTO old.t(b) VALUES('more')\");
const pack = new Database('old.pwk', {readonly: true});
console.log(pack.prepare('SELECT count(*) c FROM t').get().c, db.pragma('page_verify', {simple: true}));
db.close();";
    let Some(output) = run_script(&folder, "node", probe, script) else { return };
    assert_went_well(&folder, &output, "500 CHECKSUM\n");
}

/// Node's own module, which loads extensions in its version 24.
#[test]
fn node_sqlite_opens_by_plain_paths() {
    if !shell::is_there() {
        return;
    }
    let folder = with_old();
    let script = "
const { DatabaseSync } = require('node:sqlite');
new DatabaseSync(':memory:', { allowExtension: true })
    .loadExtension(process.env.EXTENSION, process.env.ENTRY);
const db = new DatabaseSync('new.db');
db.exec('PRAGMA journal_mode = WAL; CREATE TABLE t(a INTEGER PRIMARY KEY, b)');
const insert = db.prepare('INSERT INTO t(b) VALUES(?)');
for (let n = 0; n < 300; n++) insert.run('x'.repeat(n));
db.exec(\"ATTACH 'old.db' AS old; INSERT INTO old.t(b) VALUES('more')\");
const pack = new DatabaseSync('old.pwk', { readOnly: true });
const setting = Object.values(db.prepare('PRAGMA page_verify').get())[0];
console.log(pack.prepare('SELECT count(*) c FROM t').get().c, setting);
db.close();";
    let probe = "require('node:sqlite')";
    let Some(output) = run_script(&folder, "node", probe, script) else { return };
    assert_went_well(&folder, &output, "500 CHECKSUM\n");
}

#[test]
fn bun_opens_by_plain_paths() {
    if !shell::is_there() {
        return;
    }
    let folder = with_old();
    let script = "
const { Database } = require('bun:sqlite');
new Database(':memory:').loadExtension(process.env.EXTENSION, process.env.ENTRY);
const db = new Database('new.db');
db.run('PRAGMA journal_mode = WAL');
db.run('CREATE TABLE t(a INTEGER PRIMARY KEY, b)');
const insert = db.query('INSERT INTO t(b) VALUES(?)');
for (let n = 0; n < 300; n++) insert.run('x'.repeat(n));
db.run(\"ATTACH 'old.db' AS old\");
db.run(\"INSERT INTO old.t(b) VALUES('more')\");
const pack = new Database('old.pwk', { readonly: true });
const setting = Object.values(db.query('PRAGMA page_verify').get())[0];
console.log(`${pack.query('SELECT count(*) c FROM t').get().c} ${setting}`);
db.close();";
    let Some(output) = run_script(&folder, "bun", "require('bun:sqlite')", script) else { return };
    assert_went_well(&folder, &output, "500 CHECKSUM\n");
}
