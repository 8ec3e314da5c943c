//! Which data directory this is, as far as its files say.
//!
//! | in | of | |
//! | --- | --- | --- |
//! | `aria_log_control` | MariaDB | a UUID, drawn when the directory was made; copies and backups have it too |
//! | `auto.cnf` | MySQL | `server-uuid`, drawn at the first start; programs for backups leave the file out |
//!
//! Tablespaces have numbers, and no names: two new servers have the same ones.

use std::path::Path;

use crate::files::aria_control;
use crate::files::state::read_small;

const AUTO: &str = "auto.cnf";
const AUTO_BYTES_MAX: usize = 64 << 10;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    aria: Option<String>,
    server: Option<String>,
}

impl Identity {
    pub(super) fn of(root: &Path) -> Self {
        let aria = aria_control::uuid(root)
            .map(|uuid| uuid.iter().map(|byte| format!("{byte:02x}")).collect());
        let server = read_small(&root.join(AUTO), AUTO_BYTES_MAX)
            .and_then(|bytes| server_uuid(&String::from_utf8_lossy(&bytes)));
        Self { aria, server }
    }

    /// For the undo file.
    pub(super) fn in_words(&self) -> String {
        let known: Vec<_> = [self.aria.as_deref(), self.server.as_deref()]
            .into_iter()
            .flatten()
            .map(str::to_owned)
            .collect();
        match known.is_empty() {
            true => "InnoDB data directory that has no UUID".to_owned(),
            false => format!("InnoDB data directory {}", known.join(" ")),
        }
    }

    /// In what another directory is another one, if it is seen to be.
    pub(super) fn difference(&self, theirs: &Self) -> Option<String> {
        let pairs = [
            ("the UUID in aria_log_control", &self.aria, &theirs.aria),
            ("the server-uuid in auto.cnf", &self.server, &theirs.server),
        ];
        pairs.into_iter().find_map(|(name, ours, theirs)| match (ours, theirs) {
            (Some(ours), Some(theirs)) if ours != theirs => {
                Some(format!("{name} is {theirs}, here it is {ours}"))
            }
            _ => None,
        })
    }
}

fn server_uuid(text: &str) -> Option<String> {
    let mut values = text.lines().filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        let name = name.trim().replace('_', "-");
        (name == "server-uuid").then(|| value.trim().to_ascii_lowercase())
    });
    let is_uuid = |value: &String| {
        !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
    };
    values.find(is_uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_uuid_is_read_and_compared_where_both_have_one() {
        let folder = tempfile::tempdir().unwrap();
        let none = Identity::of(folder.path());
        assert!(none.in_words().contains("no UUID"));
        let text = "[auto]\nserver-uuid=8A94F357-AAB4-11DF-86AB-C80AA9429562\n";
        std::fs::write(folder.path().join(AUTO), text).unwrap();
        let one = Identity::of(folder.path());
        assert!(one.in_words().ends_with("8a94f357-aab4-11df-86ab-c80aa9429562"));
        assert_eq!(one.difference(&none), None);
        assert_eq!(one.difference(&one), None);
        std::fs::write(folder.path().join(AUTO), text.replace("8A", "9A")).unwrap();
        let other = Identity::of(folder.path());
        assert!(one.difference(&other).is_some_and(|words| words.contains("server-uuid")));
    }
}
