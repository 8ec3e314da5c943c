//! The files that a running server has for its tables, by its own dictionary.
//!
//! | | asked |
//! |---|---|
//! | MySQL 8.0 and later | `INNODB_TABLESPACES`, with `INNODB_DATAFILES` for where they are |
//! | MariaDB 10.2 and later | `INNODB_SYS_TABLES`, with `INNODB_SYS_TABLESPACES` for what the server has open |
//!
//! Undo, temporary and system tablespaces are not among them: servers cut and make them anew. The user
//! needs the `PROCESS` privilege and no other. The tables of a statement are read one after the other,
//! so that of tables that are being renamed or removed the answer may be of two moments.

use std::path::PathBuf;

use super::{Mysql, READ_ONLY, open};
use crate::error::{Error, Result};
use crate::location::Location;

const OF_MYSQL: &str = "SELECT t.SPACE, d.PATH, t.NAME, t.STATE \
    FROM information_schema.INNODB_TABLESPACES t \
    LEFT JOIN information_schema.INNODB_DATAFILES d ON d.SPACE = t.SPACE \
    WHERE t.SPACE_TYPE IN ('Single', 'General')";
const OF_MARIADB: &str = "SELECT t.SPACE, s.FILENAME, t.NAME, 'normal' \
    FROM information_schema.INNODB_SYS_TABLES t \
    LEFT JOIN information_schema.INNODB_SYS_TABLESPACES s ON s.SPACE = t.SPACE \
    WHERE t.SPACE > 0";

/// A file of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tablespace {
    /// Its number.
    pub space: u32,
    /// Its file, relative to the data directory or not.
    pub path: String,
    /// The server has it open, or keeps it for a table that can be used.
    pub is_known: bool,
}

/// A server that is asked about its files.
pub struct Files {
    mysql: Mysql,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").field("server", &self.mysql.server).finish_non_exhaustive()
    }
}

impl Files {
    /// Logs in.
    ///
    /// # Errors
    /// It is no MySQL or MariaDB, or cannot be reached, or refuses.
    pub fn of(location: &Location) -> Result<Self> {
        if location.scheme != super::ENGINE.scheme {
            return Err(Error::Connect {
                place: location.to_string(),
                reason: "only a MySQL or MariaDB is asked about its files\n\
                         hint: mysql://USER@HOST/, or mysql://USER@/?socket=PATH"
                    .to_owned(),
            });
        }
        let database = location.database.clone().filter(|name| !name.is_empty());
        let database = Some(database.unwrap_or_else(|| "information_schema".to_owned()));
        let mut mysql = open(&Location { database, ..location.clone() })?;
        mysql.ask(READ_ONLY)?;
        Ok(Self { mysql })
    }

    /// For people: "MySQL 9.7.4".
    #[must_use]
    pub fn server(&self) -> &str {
        &self.mysql.server
    }

    /// True of MariaDB.
    #[must_use]
    pub fn is_mariadb(&self) -> bool {
        self.mysql.is_mariadb
    }

    /// Where it has its data.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn data_directory(&mut self) -> Result<PathBuf> {
        Ok(self.mysql.one("SELECT @@datadir")?.unwrap_or_default().into())
    }

    /// What it has now.
    ///
    /// # Errors
    /// The server does not answer, or not to this user.
    pub fn tablespaces(&mut self) -> Result<Vec<Tablespace>> {
        let sql = if self.mysql.is_mariadb { OF_MARIADB } else { OF_MYSQL };
        let rows = self.mysql.ask(sql)?;
        Ok(rows.into_iter().filter_map(tablespace).collect())
    }
}

fn tablespace(row: Vec<Option<String>>) -> Option<Tablespace> {
    let mut columns = row.into_iter();
    let space = columns.next()??.parse().ok()?;
    let path = columns.next()?;
    let name = columns.next()??;
    let state = columns.next()?.unwrap_or_default();
    // Its table has no file until one is imported.
    if state == "discarded" {
        return None;
    }
    Some(Tablespace {
        space,
        is_known: path.is_some() || name == "mysql",
        path: path.unwrap_or_else(|| format!("./{name}.ibd")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_dictionary_are_files() {
        let row = |columns: [Option<&str>; 4]| {
            tablespace(columns.map(|column| column.map(str::to_owned)).to_vec())
        };
        let file = |space, path: &str, is_known| {
            Some(Tablespace { space, path: path.to_owned(), is_known })
        };
        let found = row([Some("5"), Some("./shop/a.ibd"), Some("shop/a"), Some("normal")]);
        assert_eq!(found, file(5, "./shop/a.ibd", true));
        let found = row([Some("4294967294"), None, Some("mysql"), Some("normal")]);
        assert_eq!(found, file(4_294_967_294, "./mysql.ibd", true));
        let found = row([Some("6"), None, Some("shop/d"), Some("normal")]);
        assert_eq!(found, file(6, "./shop/d.ibd", false));
        assert_eq!(row([Some("3"), Some("./shop/d.ibd"), Some("shop/d"), Some("discarded")]), None);
        assert_eq!(row([None, None, None, None]), None);
        assert_eq!(row([Some("x"), Some("a"), Some("b"), None]), None);
    }
}
