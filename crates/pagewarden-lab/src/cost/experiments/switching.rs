//! E2h: turning checksums on and off in a stopped cluster, also when that is
//! interrupted.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use pagewarden_scratch::postgres::Cluster;

use crate::cost::decision::{Decides, POSTGRES_SWITCHING};
use crate::cost::experiment::{
    Arm, Better, Description, Experiment, Form, Kind, Lab, Metric, Prepared, Reading,
};
use crate::cost::own_program::OwnProgram;
use crate::cost::{postgres, program};
use crate::stats::random::Random;

/// See [`DESCRIPTION`].
#[derive(Debug)]
pub struct Switching;

const WHOLE: &str = "uninterrupted";
const KILLED: &str = "killed at a random moment, and run again";

static DESCRIPTION: Description = Description {
    name: "e2h",
    title: "switching checksums on and off",
    question: "How long do pg_checksums and pagewarden protect take to turn checksums on or off, and do they survive a kill?",
    seed: "enabling data checksums by default: Andres and Daniel on the way back; no figures",
    by_hand: "\
1. A stopped cluster without checksums, filled by pgbench -i -s 100; cp -a for every run.
2. time pg_checksums --enable; time pg_checksums --enable --no-sync; time pg_checksums --disable.
3. The same with kill -9 at a random moment of the first run: pg_controldata must still say that
   checksums are off; the second run finishes the job (pg_checksums reads everything again: it keeps no record).
4. time pagewarden protect --mode checksum; with --no-verify; with --no-sync; --mode none; and killed in the same way.
5. After each: pg_checksums --check must end with 0 where they are on.",
    arms: &[
        Arm { name: "enable", what: "pg_checksums --enable, flushed to disk" },
        Arm { name: "enable-no-sync", what: "pg_checksums --enable --no-sync" },
        Arm { name: "disable", what: "pg_checksums --disable: only the control file changes" },
        Arm { name: "protect", what: "pagewarden protect --mode checksum, flushed to disk and read back from there" },
        Arm { name: "protect-no-verify", what: "pagewarden protect --mode checksum --no-verify: flushed, not read back" },
        Arm { name: "protect-no-sync", what: "pagewarden protect --mode checksum --no-sync --no-verify" },
        Arm { name: "protect-none", what: "pagewarden protect --mode none" },
    ],
    metrics: &[
        Metric { name: "seconds", unit: "s", kind: Kind::Timed, better: Better::Lower },
        Metric { name: "mib_per_second", unit: "MiB/s", kind: Kind::Timed, better: Better::Higher },
        Metric { name: "sound", unit: "", kind: Kind::Found, better: Better::Higher },
    ],
    is_price: false,
    decides: Some(Decides::by_main_metric(&POSTGRES_SWITCHING, &["protect"])),
    seed_figures: &[],
    // Fewer than 8 cannot tell six arms from the baseline at once.
    blocks: (8, 10),
};

impl Experiment for Switching {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn unavailable(&self) -> Option<String> {
        postgres::unavailable()
    }

    fn prepare(&self, lab: &Lab) -> Result<Box<dyn Prepared>> {
        let scale = match lab.form {
            Form::Short => 3,
            Form::Whole => 100,
        };
        let installation = postgres::required_newest()?;
        let off = postgres::base(&installation, scale, &lab.stop)?;
        let on = postgres::arm(&off, true, &[], &lab.stop)?;
        Ok(Box::new(Switches {
            scale,
            off,
            on,
            usual: BTreeMap::new(),
            seed: lab.seed,
            program: lab.program,
            stop: Arc::clone(&lab.stop),
        }))
    }
}

struct Switches {
    scale: u32,
    off: Cluster,
    on: Cluster,
    /// Seconds of an uninterrupted run, to choose the moment of a kill by.
    usual: BTreeMap<&'static str, f64>,
    seed: u64,
    program: OwnProgram,
    stop: Arc<AtomicBool>,
}

/// Whose switch it is.
#[derive(Debug, Clone, Copy)]
enum Tool {
    PgChecksums,
    /// This program.
    Protect,
}

impl Switches {
    /// The switch of `cluster`; `None` if this program is not the one to do it.
    fn command(&self, cluster: &Cluster, tool: Tool, arguments: &[&str]) -> Option<Command> {
        let mut command = match tool {
            Tool::PgChecksums => {
                let mut command = cluster.tool("pg_checksums");
                command.args(arguments).arg("-D");
                command
            }
            Tool::Protect => {
                let mut command = self.program.command(&["protect", "--quiet"])?;
                // Where the watchman finds it if we are killed.
                command.args(arguments).current_dir(cluster.home_of_server().path());
                command
            }
        };
        command.arg(cluster.data_dir());
        Some(command)
    }
}

impl Prepared for Switches {
    fn conditions(&self) -> Vec<String> {
        vec![WHOLE.to_owned(), KILLED.to_owned()]
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = BTreeMap::new();
        settings.insert("pgbench scale".to_owned(), self.scale.to_string());
        postgres::add_version(&mut settings, [&self.off]);
        settings
    }

    fn measure(&mut self, condition: &str, arm: &Arm, block: u32) -> Result<Reading> {
        let (tool, on, arguments): (_, _, &[&str]) = match arm.name {
            "enable" => (Tool::PgChecksums, true, &["--enable"]),
            "enable-no-sync" => (Tool::PgChecksums, true, &["--enable", "--no-sync"]),
            "disable" => (Tool::PgChecksums, false, &["--disable"]),
            "protect" => (Tool::Protect, true, &["--mode", "checksum"]),
            "protect-no-verify" => (Tool::Protect, true, &["--mode", "checksum", "--no-verify"]),
            "protect-no-sync" => {
                (Tool::Protect, true, &["--mode", "checksum", "--no-sync", "--no-verify"])
            }
            "protect-none" => (Tool::Protect, false, &["--mode", "none"]),
            other => bail!("no arm {other}"),
        };
        let base = if on { &self.off } else { &self.on };
        let cluster = base.duplicate()?;
        let Some(mut command) = self.command(&cluster, tool, arguments) else {
            return Ok(Reading::unavailable("this program has no command `protect`"));
        };
        // What the copy left to be written is not the switch's to wait for.
        cluster.home_of_server().write_out()?;
        let mut words = Reading::default();
        if condition == KILLED {
            let usual = self.usual.get(arm.name).copied().unwrap_or(0.5);
            let mut random = Random::new(self.seed ^ u64::from(block) << 8);
            let after = Duration::from_secs_f64(usual * random.uniform());
            let word = interrupted(&mut command, &cluster, after)?;
            words = words.with_word("after the kill", word);
        }
        let output = program::run(&mut command, "", &self.stop)?;
        // What was finished before the kill came is refused the second time.
        let done = output.status == Some(0) || output.stderr.contains("already");
        ensure!(done, "{} fails: {}", arm.name, output.stderr.trim());
        if condition == WHOLE {
            self.usual.insert(arm.name, output.seconds);
        }
        let (sound, word) = is_sound(&cluster, on, &self.stop)?;
        let mebibytes = bytes_of_pages(&cluster, &self.stop)? / f64::from(1 << 20);
        let mut reading = words
            .with_value("seconds", output.seconds)
            .with_value("sound", f64::from(u8::from(sound)))
            .with_word("sound", word);
        if output.status == Some(0) && on && output.seconds > 0.0 {
            reading = reading.with_value("mib_per_second", mebibytes / output.seconds);
        }
        Ok(reading)
    }
}

/// Starts the switch, kills it, and says what the control file tells then.
fn interrupted(command: &mut Command, cluster: &Cluster, after: Duration) -> Result<String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot run the switch")?;
    let begin = Instant::now();
    while begin.elapsed() < after && child.try_wait()?.is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    child.kill()?;
    child.wait()?;
    Ok(match protection_version(cluster)? {
        0 => "off",
        1 => "on",
        _ => "in between",
    }
    .to_owned())
}

/// The checksum version in the control file: 0 is off, 1 is on.
fn protection_version(cluster: &Cluster) -> Result<u32> {
    let output = cluster.tool("pg_controldata").arg("-D").arg(cluster.data_dir()).output();
    let output = output.context("cannot run pg_controldata")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("Data page checksum version:"));
    let version = line.and_then(|rest| rest.trim().parse().ok());
    version.with_context(|| format!("pg_controldata says: {text}"))
}

/// True if the control file says what it should and every page agrees.
fn is_sound(cluster: &Cluster, on: bool, stop: &AtomicBool) -> Result<(bool, String)> {
    let version = protection_version(cluster)?;
    if version != u32::from(on) {
        return Ok((false, format!("the control file says {version}")));
    }
    if !on {
        return Ok((true, "off".to_owned()));
    }
    let output = check(cluster, stop)?;
    let sound = output.status == Some(0);
    Ok((sound, if sound { "on, every page verified" } else { "on, pages fail" }.to_owned()))
}

fn check(cluster: &Cluster, stop: &AtomicBool) -> Result<program::Output> {
    let mut command = cluster.tool("pg_checksums");
    command.arg("--check").arg("-D").arg(cluster.data_dir());
    program::run(&mut command, "", stop)
}

/// Bytes of relation files, which are what the switch goes through.
fn bytes_of_pages(cluster: &Cluster, stop: &AtomicBool) -> Result<f64> {
    program::go_on(stop)?;
    let mut bytes = 0;
    let mut folders = vec![cluster.data_dir().join("base"), cluster.data_dir().join("global")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                bytes += entry.metadata()?.len();
            }
        }
    }
    Ok(bytes as f64)
}
