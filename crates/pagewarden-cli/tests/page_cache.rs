//! The page cache and the device behind it hold different bytes: damage in
//! memory is distinguished from damage on the disk.
//!
//! A tablespace lies on a file system in an image file. What is changed in the
//! image is what the device holds; what was read before stays in the cache.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use pagewarden_scratch::postgres::{Cluster, Options, StopMode};
use pagewarden_scratch::python::Python;

use crate::clusters::any_installation;
use crate::runner::{Finding, Outcome, check};

const PAGE: u64 = 8192;
const BLOCK: u64 = 5;

/// A file system in an image file.
struct Mounted {
    image: PathBuf,
    folder: PathBuf,
}

impl Mounted {
    /// `None` where that is not ours to do.
    fn at(folder: &Path, image: &Path) -> Option<Self> {
        let run = |command: &mut Command| command.output().is_ok_and(|out| out.status.success());
        File::create(image).unwrap().set_len(64 << 20).unwrap();
        let made = run(Command::new("mkfs.ext4").args(["-q", "-b", "4096"]).arg(image))
            && run(Command::new("mount").args(["-o", "loop"]).args([image, folder]));
        if !made {
            eprintln!("skipped, loudly: no file system can be mounted here (are we root?)");
            return None;
        }
        Some(Self { image: image.to_owned(), folder: folder.to_owned() })
    }

    /// Where in the image this page lies.
    fn find(&self, page: &[u8]) -> u64 {
        let image = fs::read(&self.image).unwrap();
        let places: Vec<_> = (0..image.len() - page.len())
            .step_by(4096)
            .filter(|at| image[*at..*at + page.len()] == *page)
            .collect();
        assert_eq!(places.len(), 1, "the page lies in one piece, and once");
        places[0] as u64
    }

    fn flip(&self, at: u64) {
        let image = OpenOptions::new().read(true).write(true).open(&self.image).unwrap();
        let mut byte = [0];
        image.read_exact_at(&mut byte, at).unwrap();
        image.write_all_at(&[byte[0] ^ 1], at).unwrap();
        image.sync_all().unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
    }
}

/// The advice leaves out what is in use this moment, so it is given until the page is gone.
fn forget(file: &Path) {
    let file = File::open(file).unwrap();
    let is_cached = || {
        let mut byte = [0];
        let bytes = &mut [std::io::IoSliceMut::new(&mut byte)];
        rustix::io::preadv2(&file, bytes, BLOCK * PAGE, rustix::io::ReadWriteFlags::NOWAIT)
            != Err(rustix::io::Errno::AGAIN)
    };
    for _ in 0..600 {
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        if !is_cached() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("the page stays in the page cache");
}

/// Keeps the pages of a file in the page cache until it ends: where memory is short, as beside other tests, they would go.
fn keep(file: &Path) -> Option<Python> {
    const LOCK: &str = "\
import ctypes, mmap, os
print(ctypes.__version__, flush=True)
file = os.open(input().split('\t')[1], os.O_RDWR)
size = os.fstat(file).st_size
memory = mmap.mmap(file, size)
begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
failed = ctypes.CDLL(None).mlock(ctypes.c_void_p(begin), ctypes.c_size_t(size))
print('failed' if failed else 'kept', flush=True)
os.read(0, 1)
";
    let mut python = Python::with("python", "ctypes", LOCK)?;
    assert_eq!(python.ask("keep", file, 0), "kept");
    Some(python)
}

#[test]
fn damage_in_the_page_cache_and_on_the_device_are_told_apart() {
    let Some(installation) = any_installation() else { return };
    let options = Options { checksums: true, ..Options::default() };
    let mut cluster = Cluster::init(&installation, &options).unwrap();
    let device = cluster.add_dir("device").unwrap();
    let owner = fs::metadata(&device).unwrap();
    let Some(mounted) = Mounted::at(&device, &cluster.home().join("image")) else { return };
    std::os::unix::fs::chown(&device, Some(owner.uid()), Some(owner.gid())).unwrap();
    fs::remove_dir(device.join("lost+found")).unwrap();

    cluster.start().unwrap();
    let space = format!("CREATE TABLESPACE device LOCATION '{}'", device.display());
    cluster.psql(&space).unwrap();
    cluster
        .psql(
            "CREATE TABLE precious TABLESPACE device AS
               SELECT i, md5(i::text) FROM generate_series(1, 20000) i;
             VACUUM precious;
             CHECKPOINT;",
        )
        .unwrap();
    let name = cluster.psql("SELECT pg_relation_filepath('precious')").unwrap();
    let name = name.trim();
    let file = cluster.data_dir().join(name);
    File::open(&file).unwrap().sync_all().unwrap();
    let bytes = fs::read(&file).unwrap();
    let page = bytes.chunks_exact(8192).nth(usize::try_from(BLOCK).unwrap()).unwrap();
    let at = mounted.find(page) + 5000;

    let root = cluster.data_dir().to_owned();
    let directly = || check(["--direct".as_ref(), root.as_os_str()]);
    let expect = |outcome: &Outcome, words: &str, live: bool| {
        let report = outcome.report();
        let damage = Finding::page_at(name, BLOCK, BLOCK * PAGE, "damage", "checksum");
        assert_eq!(report.findings(), [damage], "{words}");
        assert_eq!(report.target()["live"], live);
        assert_eq!(report.pages("damaged"), 1);
        let detail = report.details()[0];
        assert!(detail.contains(words), "{detail}");
    };
    for live in [true, false] {
        if !live {
            cluster.stop(StopMode::Fast).unwrap();
        }
        let Some(kept) = keep(&file) else { return };
        assert_eq!(directly().report().findings(), [], "nothing is wrong yet");

        mounted.flip(at);
        expect(&directly(), "on the device fails, the one in the page cache is sound", live);
        // What a server would get is what the cache holds.
        assert_eq!(check([&root]).report().findings(), [], "the cache hides the device");
        drop(kept);

        forget(&file);
        expect(&directly(), "pd_lsn", live);
        assert!(!directly().report().details()[0].contains("page cache"), "there is one copy only");

        let Some(kept) = keep(&file) else { return };
        expect(&check([&root]), "pd_lsn", live);
        mounted.flip(at);
        expect(&check([&root]), "in the page cache fails, the one on the device is sound", live);
        assert_eq!(directly().report().findings(), [], "the device is sound again");
        drop(kept);
        forget(&file);
    }
    drop(mounted);
}
