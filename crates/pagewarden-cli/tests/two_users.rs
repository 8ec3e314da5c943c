//! What root writes below a folder of another user, who changes that folder meanwhile: nothing
//! of root's is touched, and what is made belongs to that user. Needs root.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::clusters::{any_installation, sample};
use crate::packs::{database, json};
use crate::runner::{Outcome, open_to_all, pagewarden, run};

/// The user without rights of every Unix system.
const WITHOUT_RIGHTS: u32 = 65534;

/// A folder of root's that others cannot enter, and what must not change about it.
struct Private {
    path: PathBuf,
    before: String,
}

impl Private {
    fn new(folder: &Path) -> Self {
        let path = folder.join("private");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(path.join("secret"), "root's").unwrap();
        let before = Self::state(&path);
        Self { path, before }
    }

    fn state(path: &Path) -> String {
        let (folder, file) = (fs::metadata(path).unwrap(), path.join("secret"));
        let data = fs::metadata(&file).unwrap();
        let of = |data: &fs::Metadata| (data.uid(), data.gid(), data.mode(), data.mtime_nsec());
        let names: Vec<_> = fs::read_dir(path).unwrap().map(|name| name.unwrap().path()).collect();
        format!("{:?} {names:?} {:?} {:?}", of(&folder), of(&data), fs::read(&file).unwrap())
    }

    fn assert_untouched(&self) {
        assert_eq!(Self::state(&self.path), self.before);
    }
}

/// A shell script of another user, in a folder of theirs.
fn attack(user: u32, home: &Path, private: &Private, script: &str) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("PRIVATE", &private.path).current_dir(home);
    command.uid(user).gid(user).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Waits for the attack to have been made, or ends it.
fn was_made(mut attack: Child) -> bool {
    for _ in 0..100 {
        if let Some(status) = attack.try_wait().unwrap() {
            return status.success();
        }
        thread::sleep(Duration::from_millis(20));
    }
    let _ = attack.kill();
    let _ = attack.wait();
    false
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: only root can be led astray like this");
    }
    is_root
}

/// A folder that all can enter, one of a user without rights in it, and one of root's.
fn folders() -> (TempDir, PathBuf, Private) {
    let folder = tempfile::Builder::new().prefix("pagewarden-").tempdir_in("/tmp").unwrap();
    open_to_all(folder.path());
    let home = folder.path().join("home");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(WITHOUT_RIGHTS), Some(WITHOUT_RIGHTS)).unwrap();
    let private = Private::new(folder.path());
    (folder, home, private)
}

#[test]
fn unpacking_below_another_users_folder_touches_nothing_of_roots() {
    if !is_root() {
        return;
    }
    let (folder, home, private) = folders();
    let Some(database) = database(folder.path()) else { return };
    let pack = folder.path().join("x.pwk");
    json("pack", &[&database, Path::new("-o"), &pack], 0);
    // Slowly, so that there is time for it.
    let unpack = || -> Outcome {
        run(pagewarden().args(["unpack", "--rate", "1MiB/s"]).arg(&pack).arg(home.join("restored")))
    };
    let later = "while [ ! -d .pagewarden-restored.part/files ]; do :; done
        mv .pagewarden-restored.part away && mkdir .pagewarden-restored.part &&
        ln -s \"$PRIVATE\" .pagewarden-restored.part/files";
    let at_once = "while [ ! -d .pagewarden-restored.part ]; do :; done
        mv .pagewarden-restored.part away && mkdir .pagewarden-restored.part &&
        ln -s \"$PRIVATE\" .pagewarden-restored.part/files";
    // On a busy machine an attack may come too late.
    const TRIES: u32 = 20;
    for script in [at_once, later] {
        let is_made = (0..TRIES).any(|_| {
            let attack = attack(WITHOUT_RIGHTS, &home, &private, script);
            unpack();
            let is_made = was_made(attack);
            private.assert_untouched();
            for name in ["away", ".pagewarden-restored.part", "restored"] {
                let _ = fs::remove_dir_all(home.join(name));
                let _ = fs::remove_file(home.join(name));
            }
            is_made
        });
        assert!(is_made, "there was no attack: {script}");
    }
    // Without one it works, and what is made is that user's.
    let outcome = unpack();
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let made = home.join("restored/shop.db");
    assert_eq!(fs::metadata(&made).unwrap().uid(), WITHOUT_RIGHTS);
    assert_eq!(fs::read(&made).unwrap(), fs::read(&database).unwrap());
}

#[test]
fn a_copy_below_another_users_folder_touches_nothing_of_roots() {
    if !is_root() {
        return;
    }
    let Some(installation) = any_installation() else { return };
    let source = sample(&installation, true).copy();
    let home = source.data_dir().parent().unwrap();
    let owner = fs::metadata(home).unwrap().uid();
    let (_folder, _, private) = folders();
    // As an administrator prepares it: the user owns it from the begin.
    let copy = home.join("attacked");
    fs::create_dir(&copy).unwrap();
    chown(&copy, Some(owner), Some(owner)).unwrap();
    let script = "while [ ! -d attacked/pg_twophase ]; do :; done
        mv attacked/pg_twophase twophase && ln -s \"$PRIVATE\" attacked/pg_twophase";
    let attack = attack(owner, home, &private, script);
    let (_, tablespace) = crate::packs_elsewhere::tablespace(source.data_dir());
    let mapping = format!("{}={}", tablespace.display(), home.join("space").display());
    let mut command = pagewarden();
    command.args(["protect", "--mode", "none", "--tablespace-mapping", &mapping, "--copy-to"]);
    let outcome = run(command.arg(&copy).arg(source.data_dir()));
    assert!(was_made(attack), "there was no attack: {outcome:?}");
    private.assert_untouched();
}

#[test]
fn root_refuses_where_any_user_could_have_led_it() {
    if !is_root() {
        return;
    }
    let (folder, home, private) = folders();
    let Some(database) = database(folder.path()) else { return };
    let pack = folder.path().join("x.pwk");
    json("pack", &[&database, Path::new("-o"), &pack], 0);
    let open = folder.path().join("open to all");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let unpack = |to: &Path| run(pagewarden().arg("unpack").arg(&pack).arg(to));
    let outcome = unpack(&open.join("restored"));
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    let hint = format!("chmod go-w '{}'", open.display());
    assert!(outcome.stderr.contains(&hint), "{outcome:?}");
    assert_eq!(fs::read_dir(&open).unwrap().count(), 0);
    // With the rights of the one user that could have, a link to root's leads nowhere.
    symlink(&private.path, home.join("link")).unwrap();
    let outcome = unpack(&home.join("link/restored"));
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    assert!(outcome.stderr.contains("with the rights of"), "{outcome:?}");
    private.assert_untouched();
}

/// A pack and a report of root's are made in the folder that was looked at, and nowhere else.
#[test]
fn files_of_root_are_not_led_elsewhere() {
    if !is_root() {
        return;
    }
    let (folder, home, private) = folders();
    let Some(database) = database(folder.path()) else { return };
    symlink(&private.path, home.join("link")).unwrap();
    for (command, option) in [("pack", "-o"), ("check", "--html"), ("check", "--seal")] {
        let file = home.join("link/new");
        let outcome = run(pagewarden().arg(command).arg(&database).arg(option).arg(&file));
        assert_eq!(outcome.status, Some(2), "{command} {option}: {outcome:?}");
        assert!(outcome.stderr.contains("can replace what is below it"), "{outcome:?}");
        private.assert_untouched();
    }
    // In that user's own folder nothing is in the way.
    let pack = home.join("new.pwk");
    let outcome = run(pagewarden().arg("pack").arg(&database).arg("-o").arg(&pack));
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert!(pack.exists());
}

#[test]
fn what_a_pack_says_reaches_no_terminal_and_no_shell() {
    let Some(installation) = any_installation() else { return };
    let source = sample(&installation, true).copy();
    let folder = tempfile::tempdir().unwrap();
    let (link, old) = crate::packs_elsewhere::tablespace(source.data_dir());
    // A folder of such a name, where a server would have made an honest one.
    let hostile = folder.path().join("x\x1b]0;PWNED\x07\u{202e}; touch pwned #=");
    fs::create_dir(&hostile).unwrap();
    let status = Command::new("cp").arg("-a").arg(old.join(".")).arg(&hostile).status();
    assert!(status.unwrap().success());
    let data = fs::metadata(source.data_dir()).unwrap();
    chown(&hostile, Some(data.uid()), Some(data.gid())).unwrap();
    fs::remove_file(&link).unwrap();
    symlink(&hostile, &link).unwrap();
    let pack = folder.path().join("x.pwk");
    json("pack", &[source.data_dir(), Path::new("-o"), &pack], 0);
    let to = folder.path().join("to");
    let outcome = run(pagewarden().arg("unpack").arg(&pack).arg(&to));
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    let is_plain = |c: char| c == '\n' || (!c.is_control() && c != '\u{202e}');
    assert!(outcome.stderr.chars().all(is_plain), "{outcome:?}");
    // The hint works when it is pasted.
    let (_, hint) = outcome.stderr.split_once("hint: add ").unwrap();
    let option = hint.split(" (NEW must").next().unwrap();
    let new = folder.path().join("new");
    let option = option.replace("=NEW", &format!("={}", new.display()));
    let script = format!("\"$0\" unpack \"$1\" \"$2\" {option}");
    let mut command = Command::new("bash");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_pagewarden")]).arg(&pack).arg(&to);
    let outcome = run(command.current_dir(folder.path()));
    assert_eq!(outcome.status, Some(0), "{script}: {outcome:?}");
    assert!(!folder.path().join("pwned").exists());
    assert_eq!(fs::read_link(to.join(link.strip_prefix(source.data_dir()).unwrap())).unwrap(), new);
}

/// SQLite finds a ledger and what lies beside it by names, so root keeps none where another user can
/// change what these lead to.
#[test]
fn roots_ledger_is_not_led_elsewhere() {
    if !is_root() {
        return;
    }
    let (folder, home, private) = folders();
    let Some(database) = database(folder.path()) else { return };
    symlink(&private.path, home.join("link")).unwrap();
    fs::create_dir(home.join("own")).unwrap();
    chown(home.join("own"), Some(WITHOUT_RIGHTS), Some(WITHOUT_RIGHTS)).unwrap();
    for state in ["link", "own", "new/deep"] {
        let state = home.join(state);
        let outcome = run(pagewarden().arg("scrub").arg("--state").arg(&state).arg(&database));
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains("can replace what is below it"), "{outcome:?}");
        assert!(outcome.stderr.contains("sudo -u "), "{outcome:?}");
        private.assert_untouched();
    }
    assert_eq!(fs::read_dir(home.join("own")).unwrap().count(), 0);
    assert!(!home.join("new").exists());
}
