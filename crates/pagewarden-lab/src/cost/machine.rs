//! The machine on which a run was made, as far as the result depends on it.
//!
//! It can be shown to anybody: no host name, no address, no path.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use pagewarden::formats::postgres::checksum::Kernel;
use pagewarden_scratch::home;

/// What is known of this machine, in words by name. What cannot be found out is
/// absent.
#[must_use]
pub fn describe() -> BTreeMap<String, String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mut machine = BTreeMap::new();
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            machine.insert(name.to_owned(), value);
        }
    };
    put("processor", field(&read("/proc/cpuinfo"), "model name"));
    put("architecture", Some(std::env::consts::ARCH.to_owned()));
    put("cores", std::thread::available_parallelism().ok().map(|count| count.to_string()));
    put("checksum kernel", Some(Kernel::best().name().to_owned()));
    put("memory", field(&read("/proc/meminfo"), "MemTotal").and_then(|text| gibibytes(&text)));
    put("kernel", Some(format!("Linux {}", read("/proc/sys/kernel/osrelease").trim())));
    put("system", system(&read("/etc/os-release")));
    if let Some(mount) =
        home::temp_dir().ok().and_then(|folder| mount_of(&read("/proc/self/mountinfo"), &folder))
    {
        put("file system", Some(mount.file_system));
        put("disk", disk(&mount.device));
    }
    machine
}

/// `name : value`, as in several files of `/proc`.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

/// `24684096 kB`
fn gibibytes(text: &str) -> Option<String> {
    let kibibytes: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(format!("{:.1} GiB", kibibytes / f64::from(1 << 20)))
}

fn system(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches('"').to_owned())
}

/// Where a folder lies.
#[derive(Debug, PartialEq)]
pub(crate) struct Mount {
    /// As `254:0`.
    pub(crate) device: String,
    /// As `ext4`.
    pub(crate) file_system: String,
}

/// The last mount over `folder`: the deepest, and of two at one place the later.
/// `36 35 98:0 /root /mount/point rw - ext3 /dev/root rw`
pub(crate) fn mount_of(mountinfo: &str, folder: &Path) -> Option<Mount> {
    let mut best = None;
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let mut left = left.split_whitespace();
        let (Some(device), Some(point)) = (left.nth(2), left.nth(1)) else { continue };
        let depth = Path::new(point).components().count();
        if folder.starts_with(point) && best.as_ref().is_none_or(|(other, _)| depth >= *other) {
            let file_system = right.split_whitespace().next().unwrap_or_default().to_owned();
            best = Some((depth, Mount { device: device.to_owned(), file_system }));
        }
    }
    best.map(|(_, mount)| mount)
}

/// What the system tells of a block device. Of a partition the disk is asked.
pub(crate) fn disk(device: &str) -> Option<String> {
    let here = fs::canonicalize(Path::new("/sys/dev/block").join(device)).ok()?;
    let place = if here.join("queue").exists() { here.as_path() } else { here.parent()? };
    let read = |name: &str| fs::read_to_string(place.join(name)).ok();
    let mut words = Vec::new();
    match place.file_name()?.to_str()? {
        name if name.starts_with("nvme") => words.push("NVMe".to_owned()),
        name if name.starts_with("vd") || name.starts_with("xvd") => {
            words.push("virtual".to_owned());
        }
        _ => {}
    }
    if let Some(model) = read("device/model").map(|model| model.trim().to_owned()) {
        words.push(model);
    }
    if let Some(rotational) = read("queue/rotational") {
        // A virtual disk says 1 unless its host has told it better.
        let kind = if rotational.trim() == "1" { "rotating" } else { "not rotating" };
        words.push(format!("says {kind}"));
    }
    if let Some(ahead) = read("queue/read_ahead_kb") {
        words.push(format!("{} KiB read-ahead", ahead.trim()));
    }
    Some(words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described_without_naming_it() {
        let machine = describe();
        for name in ["architecture", "cores", "kernel", "checksum kernel"] {
            assert!(machine.contains_key(name), "{name}: {machine:?}");
        }
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let all = format!("{machine:?}");
        assert!(host.trim().len() < 4 || !all.contains(host.trim()), "{all}");
        assert!(!all.contains(home::temp_dir().unwrap().to_str().unwrap()), "{all}");
    }

    #[test]
    fn deepest_mount_over_the_folder_wins() {
        let text = "22 1 254:0 / / rw - ext4 /dev/vda rw\n\
            23 22 0:21 / /tmp rw,relatime shared:1 - tmpfs tmpfs rw\n\
            24 22 0:22 / /tmpx rw - btrfs none rw\n";
        let mount = |folder: &str| mount_of(text, Path::new(folder)).unwrap().file_system;
        assert_eq!(mount("/tmp/here"), "tmpfs");
        assert_eq!(mount("/var/tmp"), "ext4");
        assert_eq!(mount_of("", Path::new("/tmp")), None);
    }

    #[test]
    fn figures_come_from_the_lines_of_proc() {
        assert_eq!(
            field("a : 1\nmodel name\t: A CPU: fast\n", "model name").unwrap(),
            "A CPU: fast"
        );
        assert_eq!(gibibytes("25165824 kB").unwrap(), "24.0 GiB");
        assert_eq!(system("NAME=x\nPRETTY_NAME=\"Debian 12\"\n").unwrap(), "Debian 12");
    }
}
