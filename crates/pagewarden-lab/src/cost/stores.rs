//! Ways to keep databases that no program writes to: as they are, in packs, and in file
//! systems that compress.
//!
//! | path below the home | what |
//! |---|---|
//! | `plain/part-0.db`, ... | the databases |
//! | `pack/part-0.pwk`, ... | a pack of each; other folders hold other profiles |
//! | `mounted/0/`, ... | where `pagewarden mount` serves those of `pack/` |
//! | `btrfs.image`, `squashfs.image` | file systems, on loop devices while they are read |
//!
//! A process that reads a mounted store does so in a name space of mounts and of processes
//! of its own. When its first process ends, in whatever way, the kernel ends the
//! others and takes the mounts down; a loop device goes with the last mount. So
//! nothing stays behind when a run is killed, and what removes the home never walks
//! into a mount.

use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result, bail, ensure};
use pagewarden_scratch::home::Home;
use rustix::process::geteuid;

use crate::cost::experiment::Reading;
use crate::cost::own_program::{IS_ARM, OwnProgram, Task};
use crate::cost::{cold, program, read_only};

/// What a file system needs beside its files.
const SLACK_BYTES: u64 = 256 << 20;
/// Where administrators' programs lie, which the paths of others lack.
const PATHS: &str = "PATH=$PATH:/usr/sbin:/sbin; set -e;";

/// A way to keep them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// As they are.
    Plain,
    /// In packs that SQLite reads through our VFS.
    Packed {
        /// The folder of the packs.
        folder: &'static str,
        /// The arguments of `pagewarden pack`.
        arguments: &'static [&'static str],
    },
    /// In the packs of the folder `pack`, served as files.
    Mounted,
    /// In btrfs, compressed by zstd at level 3.
    Btrfs,
    /// In squashfs, compressed by zstd.
    Squashfs,
}

/// What the engine may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// SQLite's cache, for each file.
    pub pool_kib: u32,
    /// Expanded blocks of packs in our VFS, which reads ahead into it.
    pub pack_cache_kib: u32,
}

/// The databases, and the homes of all that is made of them.
#[derive(Debug)]
pub struct Databases {
    home: Home,
    /// How many there are.
    pub parts: usize,
    /// Rows of each.
    pub rows: u32,
    program: OwnProgram,
    stop: Arc<AtomicBool>,
}

/// The databases, kept in one way.
#[derive(Debug, Clone, Copy)]
pub struct Store {
    way: Way,
    /// What all of them take.
    pub stored_bytes: u64,
}

impl Databases {
    /// Makes them.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn make(
        parts: usize,
        rows: u32,
        program: OwnProgram,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self> {
        let home = Home::new()?;
        // No server works here, and root writes packs to no folder of another user.
        chown(home.path(), Some(geteuid().as_raw()), None)?;
        fs::create_dir(home.path().join("plain"))?;
        for part in 0..parts {
            program::go_on(stop)?;
            let path = home.path().join(format!("plain/part-{part}.db"));
            read_only::make(&path, rows, u64::try_from(part)?)?;
        }
        Ok(Self { home, parts, rows, program, stop: Arc::clone(stop) })
    }

    /// Bytes of one database as it is; all are made alike.
    ///
    /// # Errors
    /// It is gone.
    pub fn part_bytes(&self) -> Result<u64> {
        Ok(fs::metadata(self.home.path().join("plain/part-0.db"))?.len())
    }

    /// Keeps them in one way: `Err` inside says why this machine cannot.
    ///
    /// # Errors
    /// The run is to end, or what should work does not.
    pub fn keep(&self, way: Way) -> Result<std::result::Result<Store, String>> {
        if let Some(reason) = self.missing(way)? {
            return Ok(Err(reason));
        }
        // Where something is mounted the kernel has its say: a container may withhold it.
        let stored_bytes = match way {
            Way::Plain => self.length("plain", "db")?,
            Way::Packed { folder, arguments } => {
                fs::create_dir(self.home.path().join(folder))?;
                for part in 0..self.parts {
                    let mut command = self.command(&["pack", "--quiet"])?;
                    command.args(arguments).arg(format!("plain/part-{part}.db"));
                    command.arg("-o").arg(format!("{folder}/part-{part}.pwk"));
                    program::expect(&mut command, "", &self.stop)?;
                }
                self.length(folder, "pwk")?
            }
            Way::Mounted => {
                for part in 0..self.parts {
                    fs::create_dir_all(self.home.path().join(format!("mounted/{part}")))?;
                }
                let mut command = self.apart(&serve_script(self.parts));
                let command = command.arg(self.own_path()).arg("--help");
                if let Err(error) = program::expect(command, "", &self.stop) {
                    return self.unable(&error);
                }
                self.length("pack", "pwk")?
            }
            Way::Btrfs => match self.fill_btrfs() {
                Ok(bytes) => bytes,
                Err(error) => return self.unable(&error),
            },
            Way::Squashfs => match self.fill_squashfs() {
                Ok(bytes) => bytes,
                Err(error) => return self.unable(&error),
            },
        };
        Ok(Ok(Store { way, stored_bytes }))
    }

    fn unable(&self, error: &anyhow::Error) -> Result<std::result::Result<Store, String>> {
        program::go_on(&self.stop)?;
        Ok(Err(format!("it cannot be made here: {error:#}")))
    }

    /// What a way needs that is not here.
    fn missing(&self, way: Way) -> Result<Option<String>> {
        let (command, programs): (_, &[&str]) = match way {
            Way::Plain => (None, &[]),
            Way::Packed { .. } => (Some("pack"), &[]),
            Way::Mounted => (Some("mount"), &["unshare"]),
            Way::Btrfs => (None, &["unshare", "losetup", "mkfs.btrfs"]),
            Way::Squashfs => (None, &["unshare", "losetup", "mksquashfs"]),
        };
        if let Some(name) = command {
            let knows = match self.program.command(&[name, "--help"]) {
                Some(mut command) => program::run(&mut command, "", &self.stop)?.status == Some(0),
                None => false,
            };
            if !knows {
                return Ok(Some(format!("this program has no command `{name}`")));
            }
        }
        if !programs.is_empty() && !geteuid().is_root() {
            return Ok(Some("only root can mount it".to_owned()));
        }
        for name in programs {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("{PATHS} command -v {name}")]);
            if program::run(&mut command, "", &self.stop)?.status != Some(0) {
                return Ok(Some(format!(
                    "there is no {name} here\n\
                     hint: apt-get install util-linux btrfs-progs squashfs-tools"
                )));
            }
        }
        Ok(None)
    }

    fn fill_btrfs(&self) -> Result<u64> {
        let bytes = self.length("plain", "db")?;
        let image = File::create_new(self.home.path().join("btrfs.image"))?;
        image.set_len(bytes.saturating_add(bytes / 8).saturating_add(SLACK_BYTES))?;
        drop(image);
        fs::create_dir(self.home.path().join("btrfs"))?;
        let script = format!(
            "{PATHS} mkfs.btrfs -q btrfs.image >&2
            device=$(losetup --find --show --direct-io=on btrfs.image)
            mount -o compress-force=zstd:3 \"$device\" btrfs || {{ losetup --detach \"$device\"; exit 1; }}
            losetup --detach \"$device\"
            sync -f btrfs; stat -f -c '%b %f %S' btrfs
            cp plain/*.db btrfs; sync -f btrfs; stat -f -c '%b %f %S' btrfs"
        );
        let output = program::expect(&mut self.apart(&script), "", &self.stop)?;
        let used = |line: &str| {
            let mut numbers = line.split_whitespace().map_while(|word| word.parse::<u64>().ok());
            let (blocks, free) = (numbers.next()?, numbers.next()?);
            blocks.checked_sub(free)?.checked_mul(numbers.next()?)
        };
        let sizes: Vec<u64> = output.stdout.lines().filter_map(used).collect();
        let [before, after] = sizes.as_slice() else { bail!("stat says: {}", output.stdout) };
        Ok(after.saturating_sub(*before))
    }

    fn fill_squashfs(&self) -> Result<u64> {
        fs::create_dir(self.home.path().join("squashfs"))?;
        let script = format!(
            "{PATHS} mksquashfs plain squashfs.image -comp zstd -b 131072 -no-progress >&2
            {}",
            mount_script("squashfs")
        );
        program::expect(&mut self.apart(&script), "", &self.stop)?;
        Ok(fs::metadata(self.home.path().join("squashfs.image"))?.len())
    }

    /// Scans the first `count` databases of a store at once.
    ///
    /// # Errors
    /// It failed.
    pub fn scan(&self, store: &Store, count: usize, memory: Memory, warm: bool) -> Result<Reading> {
        let Memory { pool_kib, pack_cache_kib } = memory;
        let uri = |part: usize| match store.way {
            Way::Plain => format!("file:plain/part-{part}.db?immutable=1"),
            Way::Packed { folder, .. } => {
                let cache = pack_cache_kib >> 10;
                format!("file:{folder}/part-{part}.pwk?vfs=pagewarden&pack_cache_mib={cache}")
            }
            Way::Mounted => format!("file:mounted/{part}/part-{part}.db?immutable=1"),
            Way::Btrfs => format!("file:btrfs/part-{part}.db?immutable=1"),
            Way::Squashfs => format!("file:squashfs/part-{part}.db?immutable=1"),
        };
        let task = Task::Scan(read_only::Task {
            databases: (0..count).map(uri).collect(),
            rows: self.rows,
            pool_kib,
            warm,
            has_server: store.way == Way::Mounted,
        });
        let script = match store.way {
            Way::Plain | Way::Packed { .. } => {
                return self.program.arm(&task, self.home.path(), &self.stop);
            }
            Way::Mounted => serve_script(count),
            Way::Btrfs => format!("{PATHS} {} exec \"$@\"", mount_script("btrfs")),
            Way::Squashfs => format!("{PATHS} {} exec \"$@\"", mount_script("squashfs")),
        };
        let mut command = self.apart(&script);
        command.arg(self.own_path());
        self.program.arm_by(command, &task, self.home.path(), &self.stop)
    }

    /// Takes all of it out of the page cache; `Err` inside says why that does not work.
    ///
    /// # Errors
    /// As [`cold::cool_down`].
    pub fn cool_down(&self) -> Result<std::result::Result<(), String>> {
        cold::cool_down(&self.home)
    }

    /// This program, as a process sees it that is not this one.
    fn own_path(&self) -> String {
        format!("/proc/{}/exe", std::process::id())
    }

    fn command(&self, words: &[&str]) -> Result<Command> {
        let mut command = self.program.command(words).context("this is another program")?;
        command.current_dir(self.home.path());
        Ok(command)
    }

    /// A script in name spaces of its own, which goes with this process.
    fn apart(&self, script: &str) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh"]);
        command.current_dir(self.home.path());
        command
    }

    fn length(&self, folder: &str, extension: &str) -> Result<u64> {
        let mut bytes = 0_u64;
        for part in 0..self.parts {
            let path = self.home.path().join(format!("{folder}/part-{part}.{extension}"));
            let cannot = || format!("cannot look at {}", path.display());
            bytes = bytes.saturating_add(fs::metadata(&path).with_context(cannot)?.len());
        }
        ensure!(bytes > 0, "{folder} is empty");
        Ok(bytes)
    }
}

/// Mounts `NAME.image` on `NAME`, to be read only. The loop device is given up at
/// once, and so goes with the mount.
fn mount_script(name: &str) -> String {
    format!(
        "device=$(losetup --find --show --read-only --direct-io=on {name}.image)
        mount -o ro \"$device\" {name} || {{ losetup --detach \"$device\"; exit 1; }}
        losetup --detach \"$device\";"
    )
}

/// Serves the first packs, and runs the arm when they are there.
fn serve_script(count: usize) -> String {
    let parts: Vec<String> = (0..count).map(|part| part.to_string()).collect();
    let parts = parts.join(" ");
    format!(
        "{PATHS} : > mounted/log
        for part in {parts}; do
            env -u {IS_ARM} \"$1\" mount pack/part-$part.pwk mounted/$part \\
                </dev/null >/dev/null 2>>mounted/log &
        done
        for part in {parts}; do
            tries=0
            while [ ! -e mounted/$part/part-$part.db ]; do
                tries=$((tries + 1))
                [ $tries -lt 2000 ] || {{ cat mounted/log >&2; exit 1; }}
                sleep 0.01
            done
        done
        \"$@\""
    )
}
