//! sysbench, the load that MySQL and MariaDB are commonly measured with, on a server of
//! our own. It is not needed: without it tests say so aloud and go on.

use std::process::{Child, Command, Stdio};

use pagewarden_scratch::mariadb::Server;

const ROWS: u32 = 20_000;
/// One for each kind of table.
const TABLES: [&str; 4] = [
    "",
    "ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=2",
    "ROW_FORMAT=DYNAMIC PAGE_COMPRESSED=1",
    "ROW_FORMAT=REDUNDANT",
];
const LOADS: [&str; 2] = ["oltp_write_only", "oltp_read_write"];

/// The tables of the load, in a database `sbtest` of a running server.
#[derive(Debug)]
pub struct Sysbench {
    connection: String,
}

/// The load while it runs. It ends when this is dropped, or with its server.
#[derive(Debug)]
pub struct Running(Vec<Child>);

impl Sysbench {
    /// Makes the tables. Nothing, said aloud, where sysbench is not installed; it fails
    /// there if `PAGEWARDEN_REQUIRE` lists `sysbench`.
    pub fn prepare(server: &Server) -> Option<Self> {
        if Command::new("sysbench").arg("--version").output().is_err() {
            assert!(!pagewarden_scratch::required("sysbench"), "sysbench is required");
            eprintln!(
                "SKIPPED: sysbench is not installed here, and the load is ours alone; \
                 apt-get install sysbench"
            );
            return None;
        }
        let socket = server.home().path().join("socket");
        let load = Self { connection: format!("--mysql-socket={}", socket.display()) };
        server.sql("CREATE DATABASE sbtest").unwrap();
        let output = load.command(LOADS[0]).arg("prepare").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        for (options, number) in TABLES.iter().zip(1..).filter(|(options, _)| !options.is_empty()) {
            server.sql(&format!("ALTER TABLE sbtest.sbtest{number} {options}")).unwrap();
        }
        Some(load)
    }

    fn command(&self, load: &str) -> Command {
        let mut command = Command::new("sysbench");
        command
            .args([load, "--db-driver=mysql", "--mysql-user=root", "--mysql-db=sbtest"])
            .args([&self.connection, &format!("--tables={}", TABLES.len())])
            .args([&format!("--table-size={ROWS}"), "--rand-type=uniform"])
            .stdin(Stdio::null());
        command
    }

    /// Starts to write. Conflicts with statements that change the tables are passed over.
    pub fn start(&self) -> Running {
        let start = |load: &&str| {
            let mut command = self.command(load);
            command.args(["--threads=2", "--time=0", "--mysql-ignore-errors=all"]);
            command.arg("run").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        Running(LOADS.iter().map(start).collect())
    }
}

impl Running {
    /// True if none has ended.
    pub fn is_running(&mut self) -> bool {
        self.0.iter_mut().all(|load| load.try_wait().unwrap().is_none())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for load in &mut self.0 {
            let _ = load.kill();
            let _ = load.wait();
        }
    }
}
