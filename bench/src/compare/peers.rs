//! The others, told to do the same.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use pagewarden_scratch::mariadb::Server;

use super::databases::Databases;
use super::{Arguments, Arm};

/// Who can compare these databases, if anybody.
pub fn of(arguments: &Arguments, databases: &Databases) -> Result<Option<Arm>> {
    let arm = match (databases.port(), databases.replicated()) {
        _ if arguments.no_peers => return Ok(None),
        (Some(port), _) => reladiff(&arguments.reladiff, port).slower(5.0),
        (_, Some(servers)) => pt_table_checksum(&arguments.pt_table_checksum, servers)?.slower(3.0),
        _ => return Ok(None),
    };
    Ok(Some(arm).filter(|arm| Path::new(arm.command.get_program()).exists()))
}

/// reladiff, of all columns but the key and those that it cannot do: on `bytea` it ends with a
/// `TypeError` (0.6.0). It counts what differs: millions of rows would be as many lines.
fn reladiff(program: &Path, port: u16) -> Arm {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C.UTF-8");
    for database in ["one", "other"] {
        command.arg(format!("postgresql://postgres@127.0.0.1:{port}/{database}")).arg("t");
    }
    command.args(["--stats", "--key-columns", "id"]);
    for column in ["i", "s", "d", "e", "r", "f", "b", "name", "note", "at", "day", "u", "doc"] {
        command.args(["--columns", column]);
    }
    Arm::new("reladiff", command)
}

/// pt-table-checksum as it is without options but for what it needs to find both servers.
fn pt_table_checksum(program: &Path, [primary, replica]: &[Server; 2]) -> Result<Arm> {
    let mut command = Command::new(program);
    let dsn = |server: &Server| format!("S={},u=root", server.socket().display());
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
    Ok(Arm::new("pt-table-checksum", command))
}
