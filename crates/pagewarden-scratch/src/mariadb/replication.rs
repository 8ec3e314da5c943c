//! A primary, and a replica that follows it by GTID.

use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{Installation, Server};

const ARRIVAL_LIMIT: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(50);

/// Two running servers, the second of which follows the first, late by `delay_seconds`.
/// Both have `options`, for example `binlog-format=ROW`. The primary listens on a port of
/// the loopback interface, for its replica.
///
/// # Errors
/// One of them does not start.
pub fn pair(
    installation: &Installation,
    options: &[&str],
    delay_seconds: u64,
) -> Result<[Server; 2]> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let start = |id: u32, networking: &str| -> Result<Server> {
        let (id, port) = (format!("server-id={id}"), format!("port={port}"));
        let own = ["log-bin=log", "bind-address=127.0.0.1", networking, &id, &port];
        let mut server = Server::install(installation, &[options, &own].concat())?;
        server.start()?;
        Ok(server)
    };
    let (primary, replica) = (start(1, "skip-networking=0")?, start(2, "skip-networking")?);
    primary.sql(
        "RESET MASTER; CREATE USER copy IDENTIFIED BY 'copy'; GRANT REPLICATION SLAVE ON *.* TO copy",
    )?;
    replica.sql(&format!(
        "SET GLOBAL gtid_slave_pos = ''; CHANGE MASTER TO MASTER_HOST = '127.0.0.1', \
         MASTER_PORT = {port}, MASTER_USER = 'copy', MASTER_PASSWORD = 'copy', \
         MASTER_USE_GTID = slave_pos, MASTER_DELAY = {delay_seconds}; START SLAVE"
    ))?;
    Ok([primary, replica])
}

/// Waits until the replica has all that the primary's log holds now.
///
/// # Errors
/// It does not come to it; the error says what the replica says of itself.
pub fn await_arrival(primary: &Server, replica: &Server) -> Result<()> {
    let wanted = primary.sql("SELECT @@GLOBAL.gtid_binlog_pos")?;
    let begin = Instant::now();
    while replica.sql(&format!("SELECT MASTER_GTID_WAIT('{wanted}', 1)"))? != "0" {
        let status = replica.sql("SHOW SLAVE STATUS")?;
        ensure!(begin.elapsed() < ARRIVAL_LIMIT, "{wanted} does not arrive:\n{status}");
        thread::sleep(POLL);
    }
    Ok(())
}
