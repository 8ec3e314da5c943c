//! Where a read-only database lies: in a file system on a loop device, compressed or not, or in a
//! pack that lies in one.
//!
//! All loop devices pass the page cache of the file beneath them and read ahead equally far, so
//! that what differs is what reads them. Taken down and mounted again, a store is cold.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use pagewarden::pack::Pack;
use tempfile::TempDir;

use crate::packs::throttle::Throttle;

const PACK: &str = "stock.pwk";
/// How far the system reads ahead of a process that reads a file from end to end.
const READ_AHEAD_KIB: &str = "4096";
/// What a file system needs besides its files.
const SLACK_BYTES: u64 = 256 << 20;
/// Blocks of a pack that are timed.
const BLOCKS_TIMED: u64 = 4000;
/// The file system in memory that is on every Linux.
const MEMORY: &str = "/dev/shm";
/// How long a mount may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// What stores keep: all that lies in a folder.
#[derive(Debug, Clone)]
pub struct Kept {
    /// The folder, with nothing else in it.
    pub folder: PathBuf,
    /// The file or folder in it.
    pub name: OsString,
    /// The arguments of `pack` to make a pack of it.
    pub pack: Vec<OsString>,
    /// It is opened for writing, though nothing is written.
    pub is_writable: bool,
}

impl Kept {
    fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }
}

/// A way to keep a database.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// As tables name it.
    pub name: &'static str,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Ext4,
    Btrfs,
    Squashfs,
    Erofs,
    /// Plain, and served by FUSE as it is: the least that a mount costs.
    Passed,
    /// A pack made with these arguments, served as files.
    Mounted(&'static [&'static str]),
    /// The same, read by SQLite itself.
    Linked(&'static [&'static str]),
    /// The same, and what was expanded is kept in memory for all processes.
    Shared(&'static [&'static str], Pages),
}

/// Of which pages a file system in memory is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pages {
    /// As the system has it.
    Usual,
    /// Mounted so that it takes huge ones.
    Huge,
}

/// A folder in memory.
#[derive(Debug)]
enum Memory {
    Usual(TempDir),
    /// A file system of its own.
    Huge(PathBuf),
}

impl Memory {
    fn path(&self) -> &Path {
        match self {
            Self::Usual(folder) => folder.path(),
            Self::Huge(folder) => folder,
        }
    }
}

impl Kind {
    /// True if nothing can be opened for writing in it.
    pub fn is_read_only(&self) -> bool {
        matches!(self.what, What::Squashfs | What::Erofs | What::Passed)
    }

    /// True if a process of its own serves it.
    fn is_served(&self) -> bool {
        matches!(self.what, What::Passed | What::Mounted(_))
    }

    /// True if only SQLite can read it, by itself.
    pub fn is_linked(&self) -> bool {
        matches!(self.what, What::Linked(_) | What::Shared(..))
    }
}

/// What all others are measured against.
pub const PLAIN: Kind = Kind { name: "ext4", what: What::Ext4 };

/// Everything that is measured.
pub const KINDS: [Kind; 17] = [
    PLAIN,
    Kind { name: "floor: FUSE alone", what: What::Passed },
    Kind { name: "floor: VFS alone", what: What::Linked(&["--profile", "oltp", "--codec", "raw"]) },
    Kind { name: "btrfs zstd:3", what: What::Btrfs },
    Kind { name: "squashfs zstd 128K", what: What::Squashfs },
    Kind { name: "erofs lz4 64K", what: What::Erofs },
    Kind { name: "pack", what: What::Mounted(&[]) },
    Kind { name: "pack, scan", what: What::Mounted(&["--profile", "scan"]) },
    Kind { name: "pack, oltp", what: What::Mounted(&["--profile", "oltp"]) },
    Kind { name: "pack, archive", what: What::Mounted(&["--profile", "archive"]) },
    Kind { name: "pack, lz4", what: What::Mounted(&["--codec", "lz4"]) },
    Kind { name: "pack, VFS", what: What::Linked(&[]) },
    Kind { name: "pack, scan, VFS", what: What::Linked(&["--profile", "scan"]) },
    Kind { name: "pack, oltp, VFS", what: What::Linked(&["--profile", "oltp"]) },
    Kind { name: "pack, lz4, VFS", what: What::Linked(&["--codec", "lz4"]) },
    Kind { name: "oltp, VFS, shared", what: What::Shared(&["--profile", "oltp"], Pages::Usual) },
    Kind {
        name: "oltp, VFS, shared huge",
        what: What::Shared(&["--profile", "oltp"], Pages::Huge),
    },
];

/// A database that is kept in one way.
#[derive(Debug)]
pub struct Store {
    /// In which.
    pub kind: Kind,
    /// What it takes.
    pub stored_bytes: u64,
    /// What it takes to have a block of a pack out of the page cache, expanded and tested.
    pub expanding: Option<Duration>,
    kept: Kept,
    folder: PathBuf,
    device: Option<PathBuf>,
    server: Option<Child>,
    /// Where processes that read it share what they have expanded.
    shared: Option<Memory>,
    pagewarden: PathBuf,
}

impl Store {
    /// Puts it into a store below `folder`, which is made.
    pub fn make(
        kind: Kind,
        folder: PathBuf,
        kept: Kept,
        pagewarden: &Path,
    ) -> anyhow::Result<Self> {
        for name in ["device", "mount", "memory"] {
            fs::create_dir_all(folder.join(name))?;
        }
        let pagewarden = pagewarden.to_owned();
        let mut store = Self {
            kind,
            stored_bytes: 0,
            expanding: None,
            kept,
            folder,
            device: None,
            server: None,
            shared: None,
            pagewarden,
        };
        let image = store.image();
        match kind.what {
            What::Squashfs | What::Erofs => {
                let files = store.kept.folder.as_path();
                let mut command = if kind.what == What::Squashfs {
                    let mut command = program("mksquashfs");
                    command.arg(files).arg(&image).args(["-comp", "zstd", "-b", "131072"]);
                    command.args(["-Xcompression-level", "3", "-no-progress", "-noappend"]);
                    command
                } else {
                    let mut command = program("mkfs.erofs");
                    command.args(["-zlz4", "-C65536"]).arg(&image).arg(files);
                    command
                };
                run(&mut command)?;
                store.stored_bytes = fs::metadata(&image)?.len();
            }
            _ => store.fill_image()?,
        }
        Ok(store)
    }

    fn image(&self) -> PathBuf {
        self.folder.join("image")
    }

    /// Makes a file system that is written to, and puts the database or a pack of it there.
    fn fill_image(&mut self) -> anyhow::Result<()> {
        let bytes = bytes_below(&self.kept.folder)?;
        let image = fs::File::create_new(self.image())?;
        image.set_len(bytes.saturating_add(bytes / 8).saturating_add(SLACK_BYTES))?;
        drop(image);
        let maker = if self.kind.what == What::Btrfs { "mkfs.btrfs" } else { "mkfs.ext4" };
        run(program(maker).arg("-q").arg(self.image()))?;
        let device = self.attach()?;
        self.mount_device(&device, true)?;
        let inside = self.folder.join("device");
        let before = used(&inside)?;
        match self.kind.what {
            What::Mounted(arguments) | What::Linked(arguments) | What::Shared(arguments, _) => {
                let pack = inside.join(PACK);
                let mut command = Command::new(&self.pagewarden);
                command.args(["pack", "--quiet"]).args(arguments).args(&self.kept.pack).arg("-o");
                run(command.arg(&pack))?;
                self.stored_bytes = fs::metadata(&pack)?.len();
                self.expanding = Some(expanding(&pack)?);
            }
            _ => {
                run(program("cp").arg("-a").arg(self.kept.path()).arg(&inside))?;
                run(program("sync").arg("-f").arg(&inside))?;
                self.stored_bytes = used(&inside)?.saturating_sub(before);
            }
        }
        self.take_down()
    }

    fn attach(&mut self) -> anyhow::Result<PathBuf> {
        let mut command = program("losetup");
        command.args(["--find", "--show", "--direct-io=on"]).arg(self.image());
        let output = command.output().context("cannot run losetup")?;
        ensure!(output.status.success(), "losetup: {}", String::from_utf8_lossy(&output.stderr));
        let device = PathBuf::from(String::from_utf8(output.stdout)?.trim());
        self.device = Some(device.clone());
        let name = device.file_name().unwrap_or_default();
        let queue = Path::new("/sys/block").join(name).join("queue/read_ahead_kb");
        fs::write(queue, READ_AHEAD_KIB)?;
        Ok(device)
    }

    fn mount_device(&self, device: &Path, is_written: bool) -> anyhow::Result<()> {
        let options = match (self.kind.what, is_written) {
            (What::Btrfs, true) => "compress-force=zstd:3",
            (_, true) => "rw,noatime",
            (_, false) => "ro",
        };
        run(program("mount").args(["-o", options]).arg(device).arg(self.folder.join("device")))?;
        // A file system on several devices reads ahead by a setting of its own.
        for entry in fs::read_dir("/sys/class/bdi")? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("btrfs") {
                fs::write(entry.path().join("read_ahead_kb"), READ_AHEAD_KIB)?;
            }
        }
        Ok(())
    }

    /// Mounts it, its disk held to `limit` bytes a second. Nothing of it is in the page cache.
    pub fn set_up(&mut self, throttle: &Throttle, limit: Option<u64>) -> anyhow::Result<()> {
        let device = self.attach()?;
        throttle.limit(&number(&device)?, limit)?;
        if let What::Shared(_, pages) = self.kind.what {
            self.shared = Some(self.memory(pages)?);
        }
        let is_plain = matches!(self.kind.what, What::Ext4 | What::Btrfs);
        self.mount_device(&device, is_plain && self.kept.is_writable)?;
        if let Some(mut command) = self.serving(throttle)? {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            self.server = Some(command.spawn()?);
            let deadline = Instant::now() + PATIENCE;
            while !self.files().join(&self.kept.name).exists() {
                let ended = self.server.as_mut().and_then(|server| server.try_wait().ok());
                if ended.flatten().is_some() || Instant::now() > deadline {
                    bail!("{} is not served", self.kind.name);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }

    /// An empty folder in memory, with room: a store takes no more than half of what there is.
    fn memory(&self, pages: Pages) -> anyhow::Result<Memory> {
        if pages == Pages::Usual {
            return Ok(Memory::Usual(tempfile::tempdir_in(MEMORY)?));
        }
        let folder = self.folder.join("memory");
        let bytes = bytes_below(&self.kept.folder)?.saturating_mul(3).saturating_add(SLACK_BYTES);
        let options = format!("huge=always,size={bytes}");
        run(program("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(&folder))?;
        Ok(Memory::Huge(folder))
    }

    /// What serves it, if that is a process.
    fn serving(&self, throttle: &Throttle) -> anyhow::Result<Option<Command>> {
        let device = self.folder.join("device");
        let command = match self.kind.what {
            What::Mounted(_) => {
                let mut command = throttle.command(&self.pagewarden);
                command.arg("mount");
                if self.kept.is_writable {
                    command.arg("--durable").arg(self.folder.join("delta"));
                }
                command.arg(device.join(PACK)).arg(self.files());
                command
            }
            What::Passed => {
                let mut command = throttle.command(&std::env::current_exe()?);
                command.arg("pass").arg(device).arg(self.files());
                command
            }
            _ => return Ok(None),
        };
        Ok(Some(command))
    }

    /// Unmounts it.
    pub fn take_down(&mut self) -> anyhow::Result<()> {
        if let Some(Memory::Huge(folder)) = self.shared.take() {
            run(program("umount").arg(folder))?;
        }
        if let Some(mut server) = self.server.take() {
            run(program("umount").arg(self.files()))?;
            ensure!(server.wait()?.success(), "what served {} ended badly", self.kind.name);
        }
        if let Some(device) = self.device.take() {
            run(program("umount").arg(self.folder.join("device")))?;
            run(program("losetup").arg("--detach").arg(&device))?;
        }
        Ok(())
    }

    /// Where the files are.
    pub fn files(&self) -> PathBuf {
        self.folder.join(if self.kind.is_served() { "mount" } else { "device" })
    }

    /// The pack that SQLite opens by itself, if it is to: the name of the database.
    pub fn linked(&self) -> Option<String> {
        let pack = self.kind.is_linked().then(|| self.files().join(PACK))?;
        let mut name = format!("file:{}?vfs=pagewarden", pack.display());
        if let Some(folder) = &self.shared {
            name.push_str("&expanded=");
            name.push_str(&folder.path().to_string_lossy());
        }
        Some(name)
    }

    /// Fails if a process that has read all of it was to leave it expanded for others, and did not.
    pub fn expect_all_shared(&self) -> anyhow::Result<()> {
        let Some(folder) = &self.shared else { return Ok(()) };
        let wanted = bytes_below(&self.kept.folder)?;
        let mut bytes = 0;
        for file in fs::read_dir(folder.path())? {
            bytes += file?.metadata()?.blocks() * 512;
        }
        let shown = folder.path().display();
        ensure!(bytes >= wanted, "{shown} has no room: {bytes} bytes of {wanted} are there");
        Ok(())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if self.take_down().is_err() {
            // What is left must not keep the folder from being removed.
            for name in ["mount", "device", "memory"] {
                let _ = program("umount").arg("--lazy").arg(self.folder.join(name)).output();
            }
            if let Some(device) = &self.device {
                let _ = program("losetup").arg("--detach").arg(device).output();
            }
        }
        let _ = fs::remove_file(self.image());
    }
}

/// What it takes to have a block of a pack, by one thread and out of the page cache: the median
/// of some that lie at even distances.
fn expanding(pack: &Path) -> anyhow::Result<Duration> {
    let pack = Pack::open(pack)?;
    let files = pack.entries().iter().enumerate();
    let (file, entry) = files.max_by_key(|(_, entry)| entry.bytes()).context("an empty pack")?;
    let count = entry.bytes() / pack.block_bytes() as u64;
    let step = usize::try_from(count / BLOCKS_TIMED).unwrap_or(usize::MAX).max(1);
    let (mut contents, mut block) = (pack.contents(), Vec::new());
    let mut times = Vec::new();
    // The first round brings in blocks and index.
    for _ in 0..2 {
        times.clear();
        for number in (0..count).step_by(step) {
            let begin = Instant::now();
            contents.block(file, number, &mut block)?;
            times.push(begin.elapsed());
        }
    }
    times.sort_unstable();
    times.get(times.len() / 2).copied().context("less than a block")
}

/// A program of the system, which ordinary users' paths often lack.
fn program(name: &str) -> Command {
    let places = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    let place = places.iter().map(|place| Path::new(place).join(name)).find(|path| path.exists());
    Command::new(place.unwrap_or_else(|| PathBuf::from(name)))
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| {
        format!("cannot run {name}\nhint: apt-get install btrfs-progs squashfs-tools erofs-utils")
    })?;
    ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Bytes in all files below a folder.
pub fn bytes_below(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { bytes_below(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}

/// Bytes in use in a file system.
fn used(path: &Path) -> anyhow::Result<u64> {
    let state = rustix::fs::statvfs(path)?;
    Ok(state.f_blocks.saturating_sub(state.f_bfree).saturating_mul(state.f_frsize))
}

/// A device as control groups name it.
fn number(device: &Path) -> anyhow::Result<String> {
    let number = fs::metadata(device)?.rdev();
    Ok(format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number)))
}
