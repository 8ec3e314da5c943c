//! The others, told to do the same.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::Arm;
use super::databases::Databases;

/// reladiff, of all columns but the key and those that it cannot do: on `bytea` it ends with a
/// `TypeError` (0.6.0).
pub fn reladiff(program: &Path, databases: &Databases) -> Arm {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C.UTF-8");
    for database in ["one", "other"] {
        let port = databases.port().unwrap_or_default();
        command.arg(format!("postgresql://postgres@127.0.0.1:{port}/{database}")).arg("t");
    }
    command.args(["--key-columns", "id"]);
    for column in ["i", "s", "d", "e", "r", "f", "b", "name", "note", "at", "day", "u", "doc"] {
        command.args(["--columns", column]);
    }
    Arm::new("reladiff", command)
}

/// pt-table-checksum as it is without options but for what it needs to find both servers.
pub fn pt_table_checksum(program: &Path, databases: &Databases) -> Result<Arm> {
    let mut command = Command::new(program);
    if let Some([primary, replica]) = databases.replicated() {
        let dsn = |server: &pagewarden_scratch::mariadb::Server| {
            format!("S={},u=root", server.socket().display())
        };
        primary.sql(&format!(
            "CREATE DATABASE IF NOT EXISTS percona; \
             CREATE TABLE IF NOT EXISTS percona.dsns (id int AUTO_INCREMENT PRIMARY KEY, \
               parent_id int, dsn varchar(255) NOT NULL); \
             REPLACE INTO percona.dsns VALUES (1, NULL, '{}')",
            dsn(replica)
        ))?;
        let here = dsn(primary);
        command.args(["--databases", "d", "--recursion-method"]);
        command.arg(format!("dsn={here},D=percona,t=dsns")).arg(&here);
    }
    Ok(Arm::new("pt-table-checksum", command))
}
