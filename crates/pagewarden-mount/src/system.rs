//! What the system says of its mounts, without a question to any of them.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// A file system that is mounted, as a line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)) has it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SystemMount {
    /// Such as `ext4` and `fuse.pagewarden`.
    pub kind: String,
    /// The device's numbers, as `0:41`.
    pub device: String,
}

/// What was mounted last on a folder, of which all links are resolved.
pub(crate) fn mount_on(folder: &Path) -> io::Result<Option<SystemMount>> {
    Ok(topmost(&fs::read("/proc/self/mountinfo")?, folder))
}

/// Of a list of all mounts: fields divided by spaces, the third being the device, the fifth the
/// folder, and the kind behind a lonely dash.
fn topmost(mounts: &[u8], folder: &Path) -> Option<SystemMount> {
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let mount = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let device = text(fields.nth(2)?);
        let place = unescape(fields.nth(1)?);
        let kind = text(fields.skip_while(|field| *field != b"-").nth(1)?);
        (place == folder).then_some(SystemMount { kind, device })
    };
    mounts.split(|byte| *byte == b'\n').filter_map(mount).next_back()
}

/// Spaces and the like are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = field;
    while let Some((first, others)) = rest.split_first() {
        let code = others
            .split_at_checked(3)
            .filter(|_| *first == b'\\')
            .and_then(|(digits, behind)| Some((octal(digits)?, behind)));
        match code {
            Some((byte, behind)) => {
                bytes.push(byte);
                rest = behind;
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_their_folder() {
        let mounts = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            40 22 0:40 / /mnt/with\\040space rw,nosuid shared:9 master:1 - tmpfs tmp rw\n\
            41 22 0:41 / /mnt/with\\040space rw,nosuid - fuse.pagewarden /x.pwk rw,user_id=0\n";
        let found = |place: &str| topmost(mounts, Path::new(place));
        let is = |kind: &str, device: &str| {
            Some(SystemMount { kind: kind.to_owned(), device: device.to_owned() })
        };
        assert_eq!(found("/mnt/with space"), is("fuse.pagewarden", "0:41"));
        assert_eq!(found("/"), is("ext4", "8:1"));
        assert_eq!(found("/mnt"), None);
    }
}
