//! Mounts by who is not root: `fusermount3` makes them, where it is there.

use super::*;
use crate::runner::OrdinaryUser;

/// A pack that this user may read, in a folder of his, with a folder to mount on.
fn for_user(packed: &Packed, user: &OrdinaryUser) -> (PathBuf, PathBuf) {
    let home = packed.path("home");
    let (pack, place) = (home.join("shop.pwk"), home.join("files"));
    fs::create_dir(&home).unwrap();
    fs::copy(&packed.pack, &pack).unwrap();
    for path in [&home, &pack] {
        user.own(path);
    }
    (pack, place)
}

fn has_fusermount() -> bool {
    ["/bin/fusermount3", "/usr/bin/fusermount3"].iter().any(|path| Path::new(path).exists())
}

/// True if users other than root may open the device: as packages leave it, but not every machine.
fn may_open_device() -> bool {
    fs::metadata("/dev/fuse").is_ok_and(|device| device.mode() & 0o006 == 0o006)
}

#[test]
fn an_ordinary_user_mounts_or_is_told_what_is_missing() {
    let Some(packed) = Packed::new() else { return };
    let user = OrdinaryUser::new();
    let (pack, place) = for_user(&packed, &user);
    let command = || {
        let mut command = user.pagewarden();
        command.args(["mount", "--json"]).arg(&pack).arg(&place);
        command
    };
    if !has_fusermount() || !may_open_device() {
        let refused = run(&mut command());
        assert_eq!(refused.status, Some(2), "{refused:?}");
        let hint = if may_open_device() { "install fuse3" } else { "chmod a+rw /dev/fuse" };
        assert!(refused.stderr.contains(hint), "{}", refused.stderr);
        assert!(!place.exists() && !is_mounted(&place), "nothing is left");
        return;
    }
    // As the user, since no other user comes in.
    let read = |name: &str| {
        let mut cat = Command::new("cat");
        if rustix::process::geteuid().is_root() {
            cat.uid(65534).gid(65534);
        }
        cat.arg(place.join(name)).output().unwrap()
    };
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mount = Mount::spawn(&mut command(), &place);
        assert!(read("shop.db").stdout == packed.plain);
        if rustix::process::geteuid().is_root() {
            let error = fs::read_dir(&place).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "root is another user");
        }
        mount.signal(signal);
        let outcome = mount.wait();
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        assert!(!is_mounted(&place) && !place.exists(), "{outcome:?}");
    }
    let mount = Mount::spawn(&mut command(), &place);
    let cleanup = || run(user.pagewarden().args(["mount", "--cleanup"]).arg(&place));
    let alive = cleanup();
    assert!(alive.stderr.contains("a running process serves it"), "{alive:?}");
    mount.signal(Signal::KILL);
    mount.wait();
    assert!(!read("shop.db").status.success());
    let cleaned = cleanup();
    assert_eq!(cleaned.status, Some(0), "{cleaned:?}");
    assert!(!is_mounted(&place));
}

/// A lasting delta stays mounted for a program that has a file open.
#[test]
fn an_ordinary_users_delta_lasts() {
    let Some(packed) = Packed::new() else { return };
    if !has_fusermount() {
        assert!(!required("fusermount3"), "PAGEWARDEN_REQUIRE asks for fusermount3");
        eprintln!("SKIPPED: there is no fusermount3");
        return;
    }
    if !may_open_device() {
        eprintln!("SKIPPED: only root may open /dev/fuse");
        return;
    }
    let user = OrdinaryUser::new();
    let (pack, place) = for_user(&packed, &user);
    let mut command = user.pagewarden();
    command.args(["mount", "--json", "--durable"]).arg(packed.path("home/delta"));
    command.arg(&pack).arg(&place);
    let shell = |script: &str| {
        let mut shell = Command::new("sh");
        if rustix::process::geteuid().is_root() {
            shell.uid(65534).gid(65534);
        }
        shell.args(["-c", script]).current_dir("/").env("F", place.join("new"));
        shell
    };
    let mount = Mount::spawn(&mut command, &place);
    let mut writer = shell("exec 3>\"$F\"; echo one >&3; read -r line; echo two >&3")
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while !shell("test -s \"$F\"").status().unwrap().success() {
        assert!(begin.elapsed() < Duration::from_secs(20), "nothing is written");
        thread::sleep(Duration::from_millis(20));
    }
    mount.signal(Signal::TERM);
    thread::sleep(Duration::from_millis(500));
    assert!(is_mounted(&place), "a program writes");
    writer.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    assert!(writer.wait().unwrap().success());
    let outcome = mount.wait();
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert!(outcome.stderr.contains("stays mounted"), "{outcome:?}");
    let mount = Mount::spawn(&mut command, &place);
    assert_eq!(shell("cat \"$F\"").output().unwrap().stdout, b"one\ntwo\n");
    mount.signal(Signal::INT);
    assert_eq!(mount.wait().status, Some(0));
}
