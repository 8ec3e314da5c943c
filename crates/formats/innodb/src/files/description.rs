//! What a report says of a data directory as a whole: its server, its state, what was tested.

#![deny(clippy::arithmetic_side_effects)]

use std::path::Path;

use crate::files::definitions;
use crate::files::redo::{self, NoLog};
use crate::files::state::{self, Circumstances, State, read_small};
use pagewarden_core::database::Evidence as Strength;

/// The server, by its log or by what its installer left.
pub(crate) fn engine_of(root: &Path, state: &State) -> String {
    const VERSION_BYTES_MAX: usize = 64;
    let creator = match &state.log {
        Some(log) => Some(log.creator.clone()),
        None => redo::creator(root),
    };
    // Of a clone of MySQL the log does not say which version made it.
    let creator = creator.filter(|creator| !creator.is_empty() && creator != MYSQL_CLONE);
    if let Some(creator) = creator {
        let name = match creator.split_once(' ') {
            // The backup program of MariaDB.
            Some(("Backup", version)) => format!("MariaDB {version}"),
            _ => creator,
        };
        return name.chars().filter(|character| matches!(character, ' '..='~')).collect();
    }
    let upgraded = ["mysql_upgrade_info", "mariadb_upgrade_info"]
        .iter()
        .find_map(|name| read_small(&root.join(name), VERSION_BYTES_MAX));
    if let Some(text) = upgraded {
        let text = String::from_utf8_lossy(&text).into_owned();
        let version = text.trim().trim_end_matches(char::from(0)).to_owned();
        let number: String =
            version.chars().take_while(|it| it.is_ascii_digit() || *it == '.').collect();
        if version.contains("-MariaDB") {
            return format!("MariaDB {number}");
        } else if number.contains('.') {
            return format!("MySQL {number}");
        }
    }
    match root.join("mysql.ibd").is_file() {
        true => definitions::newest_of_history(root)
            .map_or_else(|| "MySQL 8.0 or later".to_owned(), |version| format!("MySQL {version}")),
        false => definitions::server_of(root).unwrap_or_else(|| "InnoDB".to_owned()),
    }
}

/// Who wrote the log of what `CLONE` made, until a server starts on it.
const MYSQL_CLONE: &str = "MySQL Clone";

/// The state of a directory, for people.
pub(super) fn in_words(state: &State) -> String {
    let mut words = state.circumstances.in_words().to_owned();
    if state.circumstances == Circumstances::Unknown {
        words.push_str(match &state.no_log {
            Some(NoLog::Missing) => ": its log is not here",
            _ => ": its log cannot be believed",
        });
    }
    if state.log.as_ref().is_some_and(|log| log.creator == MYSQL_CLONE) {
        "a clone of MySQL: its log has yet to be applied".clone_into(&mut words);
    }
    if state.label.as_ref().is_some_and(state::BackupLabel::is_incremental) {
        words.push_str(", incremental: changed pages only");
    }
    words
}

/// What was tested of a directory in that state, and what that cannot detect.
pub(super) fn strength(circumstances: Circumstances) -> Strength {
    Strength {
        tested_by: match circumstances {
            Circumstances::AtRest | Circumstances::Prepared => {
                "32-bit checksums, page and tablespace numbers, extent maps, lengths, links between the \
                 pages of an index, and the end of the log"
            }
            Circumstances::Crashed => {
                "32-bit checksums, page and tablespace numbers, and what the log has yet to change"
            }
            Circumstances::Running | Circumstances::Backup | Circumstances::Unknown => {
                "32-bit checksums, page and tablespace numbers"
            }
        },
        unseen: match circumstances {
            Circumstances::AtRest => {
                "older versions of a page or of a file; zeroed pages where what maps the pages in use \
                 is encrypted or fails, of an Aria table that was not closed, and bitmaps of one behind its \
                 first; pages of another Aria table, or of another compressed or encrypted tablespace \
                 of MariaDB; changed bytes in files without sums: definitions of tables, MyISAM"
            }
            Circumstances::Prepared => {
                "older versions of a page or of a file; zeroed pages that nothing in the clear leads \
                 to: of long values, of undo logs, of tables in ibdata1, of an index whose root is \
                 compressed or encrypted; those of Aria tables that were not closed; changed bytes in files \
                 without sums: definitions of tables, MyISAM"
            }
            _ => {
                "older versions of a page; zeroed pages, of MySQL those that no older page beside them \
                 leads to; a table that is missing as a whole; a file of the log of MySQL 5.7 or \
                 MariaDB 10.2 that is missing, where one is left"
            }
        },
    }
}
