//! A disk held to a number of bytes a second: a control group for the programs that read from it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

const BLKIO: &str = "/sys/fs/cgroup/blkio";
const UNIFIED: &str = "/sys/fs/cgroup";
const NAME: &str = "pagewarden-bench";

/// A group of processes whose reads of some devices are held back. It ends when dropped.
#[derive(Debug)]
pub struct Throttle {
    folder: PathBuf,
    is_unified: bool,
}

impl Throttle {
    /// A group that holds nothing back yet.
    pub fn new() -> anyhow::Result<Self> {
        let is_unified = !Path::new(BLKIO).is_dir();
        let folder = Path::new(if is_unified { UNIFIED } else { BLKIO }).join(NAME);
        if !folder.is_dir() {
            fs::create_dir(&folder).with_context(|| {
                format!(
                    "cannot make {}\nhint: the disk is held back as root only",
                    folder.display()
                )
            })?;
        }
        Ok(Self { folder, is_unified })
    }

    /// Holds reads of a device, named `7:0`, to a number of bytes a second; `None` lets them go.
    pub fn limit(&self, device: &str, bytes_per_second: Option<u64>) -> anyhow::Result<()> {
        let (file, line) = if self.is_unified {
            let limit = bytes_per_second.map_or("max".to_owned(), |bytes| bytes.to_string());
            ("io.max", format!("{device} rbps={limit}"))
        } else {
            let limit = bytes_per_second.unwrap_or(0);
            ("blkio.throttle.read_bps_device", format!("{device} {limit}"))
        };
        let path = self.folder.join(file);
        fs::write(&path, line).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Takes a process and its children into the group; theirs to come are in it then.
    pub fn take_in(&self, process: u32) -> anyhow::Result<()> {
        let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"))?;
        let procs = self.folder.join("cgroup.procs");
        let process = process.to_string();
        for one in std::iter::once(process.as_str()).chain(children.split_whitespace()) {
            let taken = fs::write(&procs, one);
            // One that has ended meanwhile reads nothing any more.
            if Path::new("/proc").join(one).exists() {
                taken.with_context(|| format!("cannot write {}", procs.display()))?;
            }
        }
        Ok(())
    }

    /// A command that runs in the group.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg("echo $$ > \"$0\" && exec \"$@\"");
        command.arg(self.folder.join("cgroup.procs")).arg(program);
        command
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        // A process that is still in it keeps it; it holds nothing back then that is not ours.
        let _ = fs::remove_dir(&self.folder);
    }
}
