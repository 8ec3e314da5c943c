//! Where a server keeps what does not lie in its data directory, as far as an options file in or
//! beside that directory says: `my.cnf`, or `backup-my.cnf` of the backup programs.
//!
//! | option | what lies there |
//! | --- | --- |
//! | `innodb_data_home_dir` | `ibdata1` ... |
//! | `innodb_undo_directory` | undo tablespaces |
//! | `innodb_log_group_home_dir` | `ib_logfile0` ..., `#innodb_redo` |

use std::path::{Path, PathBuf};

use crate::files::state::read_small;

const FILES: [&str; 3] = ["my.cnf", "backup-my.cnf", "../my.cnf"];
const BYTES_MAX: usize = 1 << 20;
/// Groups that servers read, before a version behind a `-`.
const GROUPS: [&str; 5] = ["mysqld", "mariadb", "mariadbd", "server", "client-server"];

/// See the module; `None` where it is the data directory itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) system: Option<PathBuf>,
    pub(crate) undo: Option<PathBuf>,
    pub(crate) log: Option<PathBuf>,
}

impl Places {
    /// Looks for an options file.
    pub(crate) fn of(root: &Path) -> Self {
        let texts = FILES.iter().filter_map(|name| read_small(&root.join(name), BYTES_MAX));
        let found = texts.map(|text| Self::parse(root, &String::from_utf8_lossy(&text)));
        found.into_iter().find(|places| *places != Self::default()).unwrap_or_default()
    }

    fn parse(root: &Path, text: &str) -> Self {
        let mut places = Self::default();
        let mut is_of_server = false;
        for line in text.lines().map(str::trim) {
            if let Some(group) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
                let name = group.trim().split('-').next().unwrap_or_default();
                is_of_server = GROUPS.contains(&name) || GROUPS.contains(&group.trim());
                continue;
            }
            let Some((name, value)) = line.split_once('=').filter(|_| is_of_server) else {
                continue;
            };
            let value = value.trim().trim_matches(['"', '\'']);
            let place = root.join(value);
            if value.is_empty() || is_same(&place, root) {
                continue;
            }
            match name.trim().replace('-', "_").trim_start_matches("loose_") {
                "innodb_data_home_dir" => places.system = Some(place),
                "innodb_undo_directory" => places.undo = Some(place),
                "innodb_log_group_home_dir" => places.log = Some(place),
                _ => {}
            }
        }
        places
    }
}

fn is_same(place: &Path, root: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    real(place).is_some_and(|place| Some(place) == real(root))
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "small numbers of a test")]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_server_say_where_its_files_are() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("data");
        std::fs::create_dir_all(&root).unwrap();
        assert_eq!(Places::of(&root), Places::default());
        let text = "[client]\ninnodb_data_home_dir = /wrong\n[mysqld-8.4]\n# a comment\n\
                    innodb-data-home-dir=\"/srv/system\"\nloose_innodb_undo_directory = ../undo\n\
                    innodb_log_group_home_dir = .\n";
        std::fs::write(folder.path().join("my.cnf"), text).unwrap();
        let places = Places::of(&root);
        assert_eq!(places.system.as_deref(), Some(Path::new("/srv/system")));
        assert_eq!(places.undo, Some(root.join("../undo")));
        assert_eq!(places.log, None, "the data directory itself");
        // What lies in the directory wins.
        std::fs::write(root.join("my.cnf"), "[mariadb]\ninnodb_log_group_home_dir=/log\n").unwrap();
        assert_eq!(Places::of(&root).log.as_deref(), Some(Path::new("/log")));
    }
}
