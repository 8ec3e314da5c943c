//! Pauses for servers that have enough to do, or a replica that falls behind.
//!
//! Servers are asked between the parts of a table, before each. A table without ranges is
//! one part. Under a snapshot lag does not matter: what is read there holds no replica up, and
//! a pause would only make the snapshot older.

use std::fmt;
use std::time::{Duration, Instant};

use super::look::Side;
use super::settle::pause;
use super::{Course, Watch};
use crate::error::{Error, Result};

/// How soon a server that was busy is asked again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a thread that has answered may be counted still: ours, if both sides are on one
/// server.
const ANSWERED: Duration = Duration::from_millis(50);

/// How much of servers is too much.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// The most statements that either works on, but for the one that asks.
    pub load: Option<u64>,
    /// How far the target may be behind the server that it follows.
    pub lag: Option<Duration>,
}

/// Why it is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Busy {
    Load { side: &'static str, running: u64, most: u64 },
    Lag { lag: Duration, most: Duration },
    NotFollowing,
}

impl fmt::Display for Busy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load { side, running, most } => {
                write!(out, "{running} statements run on the {side}, {most} may (--max-load)")
            }
            Self::Lag { lag, most } => {
                let (lag, most) = (lag.as_secs_f64(), most.as_secs_f64());
                write!(out, "the target is {lag:.1} s behind, {most} s it may be (--max-lag)")
            }
            Self::NotFollowing => out.write_str("the target's replication has stopped (--max-lag)"),
        }
    }
}

/// Waits until both servers have room, and says how long.
///
/// # Errors
/// A server does not tell what is to be kept to, or the caller asked to end.
pub(super) fn wait(
    source: &mut Side<'_>,
    target: &mut Side<'_>,
    is_frozen: bool,
    course: &Course<'_>,
    watch: &Watch<'_>,
) -> Result<Duration> {
    let begin = Instant::now();
    let mut paused = false;
    while let Some(busy) = busy(source, target, is_frozen, course.limits, watch)? {
        if !paused {
            course.tell(&format!("paused: {busy}"));
        }
        paused = true;
        pause(AGAIN, watch)?;
    }
    if !paused {
        return Ok(Duration::ZERO);
    }
    let elapsed = begin.elapsed();
    course.tell(&format!("going on after a pause of {:.0} s", elapsed.as_secs_f64()));
    Ok(elapsed)
}

fn busy(
    source: &mut Side<'_>,
    target: &mut Side<'_>,
    is_frozen: bool,
    limits: Limits,
    watch: &Watch<'_>,
) -> Result<Option<Busy>> {
    if let Some(most) = limits.load {
        let loads =
            [("source", load(source, most, watch)?), ("target", load(target, most, watch)?)];
        let mut told = loads.iter().filter_map(|(side, load)| Some((*side, (*load)?))).peekable();
        if told.peek().is_none() {
            let reason = "neither side has a load that --max-load could limit\nhint: leave it out";
            return Err(Error::Unsupported(reason.to_owned()));
        }
        if let Some((side, running)) = told.find(|(_, running)| *running > most) {
            return Ok(Some(Busy::Load { side, running, most }));
        }
    }
    let Some(most) = limits.lag.filter(|_| !is_frozen) else { return Ok(None) };
    let Some(lag) = target.connection.lag()? else {
        let reason = "the target follows no server, or does not tell how late it is\n\
                      hint: leave --max-lag out";
        return Err(Error::Unsupported(reason.to_owned()));
    };
    // On a server where nothing happens, the last change is old and has arrived all the same.
    if lag <= most || has_all(source, target)? {
        return Ok(None);
    }
    Ok(Some(if lag == Duration::MAX { Busy::NotFollowing } else { Busy::Lag { lag, most } }))
}

fn load(side: &mut Side<'_>, most: u64, watch: &Watch<'_>) -> Result<Option<u64>> {
    let load = side.connection.load()?;
    if load.is_none_or(|running| running <= most) {
        return Ok(load);
    }
    pause(ANSWERED, watch)?;
    side.connection.load()
}

fn has_all(source: &mut Side<'_>, target: &mut Side<'_>) -> Result<bool> {
    let Some(position) = source.connection.position()? else { return Ok(false) };
    Ok(target.connection.has_reached(&position)? == Some(true))
}
