//! RESTORE statements, ready to be run.

use std::fmt::Write as _;
use std::path::Path;

use crate::files::backup::SetKind;
use crate::files::backup::chains::links::Set;

/// The statements that restore these backups, in this order, and end in recovery. The paths are those
/// of this machine.
pub(super) fn restore(database: &str, way: &[&Set]) -> Vec<String> {
    let mut statements: Vec<String> = way
        .iter()
        .map(|set| {
            let what = if set.kind() == SetKind::Log { "LOG" } else { "DATABASE" };
            let mut text = format!("RESTORE {what} {} FROM ", identifier(database));
            for (path, index) in set.files.iter().zip(0_u32..) {
                let comma = if index > 0 { ", " } else { "" };
                let _ = write!(text, "{comma}DISK = {}", literal(path));
            }
            let _ = write!(text, " WITH FILE = {}, NORECOVERY;", set.header.number);
            text
        })
        .collect();
    if !way.is_empty() {
        statements.push(format!("RESTORE DATABASE {} WITH RECOVERY;", identifier(database)));
    }
    statements
}

fn identifier(name: &str) -> String {
    format!("[{}]", name.replace(']', "]]"))
}

/// A server would look for a relative path in a folder of its own.
fn literal(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    format!("N'{}'", path.to_string_lossy().replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_are_quoted() {
        assert_eq!(identifier("a]b [c"), "[a]]b [c]");
        assert_eq!(literal(Path::new("/b/it's.bak")), "N'/b/it''s.bak'");
        assert!(restore("x", &[]).is_empty());
    }
}
