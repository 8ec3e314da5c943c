//! Tables of engines without pages, or with pages that there is no reader for here: MyISAM, CSV,
//! ARCHIVE, MyRocks, TokuDB, and Aria with rows that are not in pages.
//!
//! Those of users are in use and cannot be tested: without a word that they are accepted, a directory
//! that has such is not called intact. Those of the server itself (accounts and help in MyISAM before
//! MySQL 8.0 and MariaDB 10.4, logs in CSV) are a note. An empty file has nothing to test.

use crate::files::names::is_temporary;
use pagewarden_core::database::Step;
use pagewarden_core::verdict::Note;

/// Databases of the server itself.
const OWN: [&str; 4] = ["mysql", "performance_schema", "sys", "information_schema"];
/// Files that a note names.
const NAMED_MAX: usize = 3;

/// What was seen on the way.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    of_users: u64,
    of_server: u64,
    /// The first few of the users'.
    named: Vec<String>,
}

/// True of the folder of an engine that keeps all of its tables in it: MyRocks.
pub(super) fn is_engine(folder: &str) -> bool {
    matches!(folder, "#rocksdb" | ".rocksdb")
}

impl Foreign {
    /// Adds a file of a database.
    pub(super) fn add(&mut self, database: &str, shown: String, is_empty: bool) {
        let name = shown.rsplit('/').next().unwrap_or_default();
        let is_whole_engine = is_engine(name);
        if is_empty || is_temporary(name) && !is_whole_engine {
            return;
        }
        if OWN.contains(&database) {
            self.of_server = self.of_server.saturating_add(1);
            return;
        }
        self.of_users = self.of_users.saturating_add(1);
        if self.named.len() < NAMED_MAX {
            self.named.push(shown);
        }
    }

    /// What there is to say.
    pub(super) fn steps(self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.of_server > 0 {
            let text = format!(
                "{} tables of the server itself have other formats (MyISAM, CSV, Aria without \
                 ROW_FORMAT=PAGE): their rows are in no pages and were not read",
                self.of_server
            );
            steps.push(Step::Note(Note { file: String::new(), text }));
        }
        if self.of_users > 0 {
            let files = if self.of_users == 1 { "file of a table" } else { "files of tables" };
            let named = u64::try_from(self.named.len()).unwrap_or(u64::MAX);
            let more = match self.of_users.saturating_sub(named) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let text = format!(
                "{} {files} not tested, of formats without a reader here (MyISAM, CSV, ARCHIVE and \
                 others): CHECK TABLE ... EXTENDED tests them in their server, ALTER TABLE ... \
                 ENGINE=InnoDB gives them checksums ({}{more}; --accept-unverifiable accepts them)",
                self.of_users,
                self.named.join(", ")
            );
            let note = Note { file: String::new(), text };
            steps.push(Step::Untested(note, self.of_users));
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_users_are_untested_and_those_of_the_server_are_a_note() {
        let mut foreign = Foreign::default();
        assert!(Foreign::default().steps().is_empty());
        foreign.add("mysql", "mysql/user.MYD".to_owned(), false);
        foreign.add("shop", "shop/empty.MYD".to_owned(), true);
        foreign.add("shop", "shop/#sql-1_2.MYD".to_owned(), false);
        let steps = foreign.steps();
        assert!(matches!(steps.as_slice(), [Step::Note(_)]));
        let mut foreign = Foreign::default();
        foreign.add("", "#rocksdb".to_owned(), false);
        for number in 0..5 {
            foreign.add("shop", format!("shop/t{number}.MYD"), false);
        }
        let steps = foreign.steps();
        let [Step::Untested(note, 6)] = steps.as_slice() else { panic!() };
        assert!(note.text.starts_with("6 files of tables not tested"), "{}", note.text);
        assert!(note.text.contains("(#rocksdb, shop/t0.MYD, shop/t1.MYD and 3 more;"));
    }
}
