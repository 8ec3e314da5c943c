//! Our VFS over the others that SQLite brings, and over and under its own checksum VFS.

use std::process::Command;

use pagewarden::verdict::Severity;

use crate::shell::{self, Folder};

const FILL: &str = "CREATE TABLE t(a INTEGER PRIMARY KEY, b);
    WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n WHERE v<500)
    INSERT INTO t SELECT v, hex(randomblob(100)) FROM n;
    PRAGMA cache_size=5; BEGIN; UPDATE t SET b='x'; ROLLBACK; UPDATE t SET b=b||'y' WHERE a%3=0;
    DELETE FROM t WHERE a%50=7;";

fn load_default() -> String {
    format!(".load {} sqlite3_pagewarden_default_init", shell::extension().display())
}

fn run(folder: &Folder, arguments: &[&str], script: &str) -> shell::Output {
    let mut command = Command::new("sqlite3");
    command.current_dir(folder.path("")).args(arguments).args(["-init", "/dev/null", ":memory:"]);
    folder.finish(command, script)
}

/// Each has its own way of locking; some have no shared memory, and SQLite then keeps the rollback journal.
#[test]
fn over_the_other_vfs_of_unix_databases_are_protected() {
    if !shell::is_there() {
        return;
    }
    for (base, mode_for_wal) in
        [("unix", "wal"), ("unix-dotfile", "delete"), ("unix-excl", "wal"), ("unix-none", "delete")]
    {
        for mode in ["DELETE", "WAL"] {
            let folder = Folder::new();
            let script = format!(
                "{}\n.log stderr\n.open x.db\nPRAGMA journal_mode={mode};\n{FILL}
                 PRAGMA page_verify_guard = 1; PRAGMA integrity_check;\n.vfsname\n",
                load_default()
            );
            let output = run(&folder, &["-vfs", base], &script);
            assert_eq!(output.errors, "", "{base}");
            let came = if mode == "WAL" { mode_for_wal } else { "delete" };
            assert_eq!(output.rows, format!("{came}\n1\nok\npagewarden/{base}\n"), "{base} {mode}");
            let checked = folder.check("x.db");
            assert_eq!((checked.setting, checked.findings.len()), (Some("checksum"), 0), "{base}");
            let rows = folder.rows("x.db", "SELECT count(*) FROM t; PRAGMA page_verify_guard = 0;");
            assert_eq!(rows, "490\n0\n", "{base} {mode}");
            folder.run_plain("x.db", "UPDATE t SET b='plain' WHERE a<5;");
            let heal = format!("{}\n.open x.db\nPRAGMA page_verify_heal;\n", load_default());
            let output = run(&folder, &["-vfs", base], &heal);
            assert!(output.rows.ends_with("stamped again\n"), "{base} {mode}: {output:?}");
            assert_eq!(folder.check("x.db").findings.len(), 0, "{base} {mode}");
        }
    }
}

/// SQLite's checksum VFS, as `cargo xtask cksumvfs` puts it beside the servers.
fn checksum_vfs() -> Option<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/servers");
    let servers = std::env::var("PAGEWARDEN_SERVERS").unwrap_or(root.to_owned());
    let library = std::path::absolute(format!("{servers}/cksumvfs/cksumvfs")).unwrap();
    let is_there = library.with_extension("so").exists();
    if !is_there {
        let required = std::env::var("PAGEWARDEN_REQUIRE").unwrap_or_default();
        assert!(
            !required.contains("cksumvfs"),
            "PAGEWARDEN_REQUIRE names cksumvfs, which is not there"
        );
        eprintln!("SKIPPED: no checksum VFS of SQLite here: cargo xtask cksumvfs");
    }
    is_there.then(|| library.display().to_string())
}

/// Over it and under it: databases with its 8 bytes have its sums, those with 24 our markers, and neither VFS
/// finds fault with the other's.
#[test]
fn over_and_under_the_checksum_vfs_pages_have_the_sums_of_one() {
    let Some(checksum) = checksum_vfs().filter(|_| shell::is_there()) else { return };
    let (checksum, ours) = (format!(".load {checksum}"), load_default());
    for mode in ["DELETE", "WAL"] {
        for order in [[&ours, &checksum], [&checksum, &ours]] {
            for reserve in [8, 24] {
                let folder = Folder::new();
                let load = order.map(String::as_str).join("\n");
                if reserve == 8 {
                    let made =
                        format!("{checksum}\n.open x.db\n.filectrl reserve_bytes 8\nVACUUM;");
                    run(&folder, &[], &made);
                }
                let script = format!(
                    "{load}\n.log stderr\n.open x.db\nPRAGMA journal_mode={mode};\n{FILL}
                     PRAGMA page_verify; PRAGMA integrity_check;"
                );
                let output = run(&folder, &[], &script);
                let what = format!("{mode} {reserve} {load}");
                assert_eq!(output.errors, "", "{what}");
                let rows = format!("{}\nCHECKSUM\nok\n", mode.to_lowercase());
                assert_eq!(output.rows, rows, "{what}");
                assert_eq!(folder.read("x.db")[20], reserve, "{what}");
                let checked = folder.check("x.db");
                let is_found = |severity| checked.findings.iter().any(|it| it.severity == severity);
                assert!(!is_found(Severity::Damage) && !is_found(Severity::Suspect), "{checked:?}");
                assert_eq!(checked.setting, Some("checksum"), "{what}");
                for alone in [&checksum, &ours] {
                    let read = format!("{alone}\n.open x.db\nSELECT count(*) FROM t;");
                    assert_eq!(run(&folder, &[], &read).rows, "490\n", "{what}, then {alone}");
                }
                // Damage is found under both.
                let mut bytes = folder.read("x.db");
                bytes[4096 * 3 + 1000] ^= 1;
                folder.write("x.db", &bytes);
                let read = format!("{load}\n.open x.db\nSELECT sum(length(b)) FROM t;");
                assert!(run(&folder, &[], &read).errors.contains("disk I/O error"), "{what}");
            }
        }
    }
}
