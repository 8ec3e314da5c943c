//! How two parts are compared: by their rows, or by sums that the servers make; and how that
//! is chosen.
//!
//! | mode | who hashes | what crosses the network |
//! |---|---|---|
//! | `stream` | we do, every type exactly | all rows |
//! | `native` | servers of one kind and version, by functions of their own (`native.rs`) | sums |
//! | `pushdown` | servers of any kind, by MD5 of text (`pushdown.rs`) | sums |
//!
//! Sums that are not alike are no verdict: such a part is read.
//!
//! `auto` looks at a small part in each way that there is, and at a larger one in those that
//! were not hopeless, and takes the fastest. Reading them names what differs in one go, and sees
//! every type exactly, so another way must be twice as fast: on a slow network it is.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::look::{Scope, Side, both};
use super::plan::Plan;
use super::table::Comparison;
use super::{native, pushdown};
use crate::engine::{Ability, Hashing};
use crate::error::{Error, Result};

/// A way to hold parts against each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Whichever is fastest.
    Auto,
    /// Sums by the servers' own functions.
    Native,
    /// Rows.
    #[default]
    Stream,
    /// Sums of MD5 by statements that all engines have.
    Pushdown,
}

impl Mode {
    /// All of them, by their names.
    pub const ALL: &[(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("native", Self::Native),
        ("stream", Self::Stream),
        ("pushdown", Self::Pushdown),
    ];

    /// What it is called.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// The mode of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, mode)| *mode)
    }

    fn hashing(self) -> Option<Hashing> {
        match self {
            Self::Native => Some(Hashing::Native),
            Self::Pushdown => Some(Hashing::Portable),
            Self::Auto | Self::Stream => None,
        }
    }
}

/// Parts by which ways are measured.
const PROBE_PARTS: u32 = 2;
/// Rows of a part that is worth measuring, and of the first: the slowest way goes through it, too.
pub(super) const PROBE_ROWS: u64 = 1_000;
/// How much faster than reading another way must be.
const WORTH: f64 = 2.0;
/// How much slower it is on the first part if it is not to be tried on another.
const HOPELESS: u32 = 2;

/// How a table is compared, and why.
#[derive(Debug, Default)]
pub(super) struct Choice {
    /// The way that is taken.
    pub mode: Mode,
    /// Why; nothing where it was asked for.
    pub because: String,
    probe: Option<Probe>,
}

/// What was measured of each way.
#[derive(Debug)]
struct Probe {
    ways: Vec<Way>,
    /// Those that were too slow on the first part.
    hopeless: Vec<Way>,
    parts: u32,
}

#[derive(Debug, Clone, Copy)]
struct Way {
    mode: Mode,
    rows: u64,
    bytes: u64,
    elapsed: Duration,
}

/// What was seen of a part.
#[derive(Debug)]
pub(super) struct Look {
    /// By whom it was summed.
    pub mode: Mode,
    /// The source's rows.
    pub rows_source: u64,
    /// The target's rows.
    pub rows_target: u64,
    /// Bytes of rows that were read.
    pub bytes: u64,
    /// The source's sums or hashes and the target's.
    pub sums: [String; 2],
    /// True if these are equal, and all rows went into them.
    pub alike: bool,
}

impl Look {
    /// The rows of the side that has more.
    pub fn rows(&self) -> u64 {
        self.rows_source.max(self.rows_target)
    }
}

impl Choice {
    /// A choice that was made.
    pub fn of(mode: Mode, because: String) -> Self {
        Self { mode, because, probe: None }
    }

    /// Chooses as far as it can be without looking at rows.
    ///
    /// # Errors
    /// A server is gone.
    pub fn make(
        wanted: Mode,
        source: &mut Side<'_>,
        target: &mut Side<'_>,
        plan: &Plan,
    ) -> Result<Self> {
        let mut obstacle = |mode: Mode| -> Result<Option<String>> {
            let Some(hashing) = mode.hashing() else { return Ok(None) };
            let abilities =
                [source.connection.sums_of(hashing)?, target.connection.sums_of(hashing)?];
            Ok(apart(&abilities).or_else(|| match hashing {
                Hashing::Native => native::obstacle(&source.table, &target.table, plan),
                Hashing::Portable => pushdown::obstacle(source, target, plan),
            }))
        };
        if wanted != Mode::Auto {
            return Ok(match obstacle(wanted)? {
                Some(reason) => Self::of(Mode::Stream, format!("no {}: {reason}", wanted.name())),
                None => Self::of(wanted, String::new()),
            });
        }
        let mut ways = vec![Mode::Stream];
        let mut reasons = Vec::new();
        for mode in [Mode::Native, Mode::Pushdown] {
            match obstacle(mode)? {
                Some(reason) => reasons.push(format!("no {}: {reason}", mode.name())),
                None => ways.push(mode),
            }
        }
        if ways.len() == 1 {
            return Ok(Self::of(Mode::Stream, reasons.join("; ")));
        }
        if !plan.has_ranges {
            let reason = "the key gives no parts by which other ways could be measured";
            return Ok(Self::of(Mode::Stream, reason.to_owned()));
        }
        let ways = ways.into_iter().map(Way::of);
        Ok(Self {
            mode: Mode::Stream,
            because: "too small a table, or parts of it, for other ways to be measured".to_owned(),
            probe: Some(Probe { ways: ways.collect(), hopeless: Vec::new(), parts: 0 }),
        })
    }

    /// True while ways are being measured: then parts take longer than they will.
    pub fn is_probing(&self) -> bool {
        self.probe.is_some()
    }
}

/// Why two servers' sums cannot be compared.
fn apart(abilities: &[Ability; 2]) -> Option<String> {
    match abilities {
        [Ability::No(reason), _] | [_, Ability::No(reason)] => Some(reason.clone()),
        [Ability::As(one), Ability::As(other)] if one != other => {
            Some(format!("{one} and {other} do not hash alike"))
        }
        _ => None,
    }
}

impl Way {
    fn of(mode: Mode) -> Self {
        Self { mode, rows: 0, bytes: 0, elapsed: Duration::ZERO }
    }

    /// Rows a second.
    fn speed(&self) -> f64 {
        self.rows as f64 / self.elapsed.as_secs_f64().max(1e-6)
    }

    fn figures(&self) -> String {
        let mib = self.bytes as f64 / self.elapsed.as_secs_f64().max(1e-6) / 1_048_576.0;
        let read = if self.bytes > 0 { format!(" ({mib:.1} MiB/s)") } else { String::new() };
        format!("{} {:.0} rows/s{read}", self.mode.name(), self.speed())
    }
}

impl Probe {
    /// Leaves out what is far slower than reading.
    fn leave_hopeless_out(&mut self) {
        let Some(stream) = self.ways.first().copied() else { return };
        let most = stream.elapsed.saturating_mul(HOPELESS);
        self.hopeless.extend(self.ways.extract_if(.., |way| way.elapsed > most));
    }

    /// The way to take, and why.
    fn decide(&self) -> Choice {
        let stream = self.ways.first().map_or(0.0, Way::speed);
        let fastest = self.ways.iter().max_by(|one, other| one.speed().total_cmp(&other.speed()));
        let taken = fastest.filter(|way| way.speed() >= stream * WORTH);
        let ways = self.ways.iter().chain(&self.hopeless);
        let figures: Vec<String> = ways.map(Way::figures).collect();
        let mode = taken.map_or(Mode::Stream, |way| way.mode);
        Choice::of(mode, format!("measured: {}", figures.join(", ")))
    }
}

impl Comparison<'_, '_> {
    /// Looks at a part in the way that was chosen, or measures.
    ///
    /// # Errors
    /// A side could not be read.
    pub fn look(&mut self, scope: &Scope) -> Result<Look> {
        let Some(mut probe) = self.choice.probe.take() else { return self.look_as_chosen(scope) };
        // Who comes first finds the pages cold: each way does once.
        let count = probe.ways.len();
        let mut seen = None;
        for turn in 0..count {
            let place = if probe.parts.is_multiple_of(2) { turn } else { count - 1 - turn };
            let Some(way) = probe.ways.get_mut(place) else { continue };
            let begin = Instant::now();
            let look = match self.look_by(way.mode, scope) {
                // What a server refuses is no way.
                Err(Error::Refused { reason, .. }) if way.mode != Mode::Stream => {
                    self.choice.because = format!("no {}: {reason}", way.mode.name());
                    way.elapsed = Duration::MAX;
                    continue;
                }
                other => other?,
            };
            way.elapsed = way.elapsed.saturating_add(begin.elapsed());
            way.rows += look.rows();
            way.bytes += look.bytes;
            if way.mode == Mode::Stream {
                seen = Some(look);
            }
        }
        let look = seen.ok_or(Error::Stopped)?;
        probe.parts += 1;
        if probe.parts == 1 {
            probe.leave_hopeless_out();
        }
        if look.rows() < PROBE_ROWS {
            // Too little to tell anything: it stays with what it is.
            let because = std::mem::take(&mut self.choice.because);
            self.choose(Choice::of(self.choice.mode, because))?;
        } else if probe.parts < PROBE_PARTS && probe.ways.len() > 1 {
            self.choice.probe = Some(probe);
        } else {
            self.choose(probe.decide())?;
        }
        Ok(look)
    }

    /// Goes on in another way, and so does a run that is resumed.
    fn choose(&mut self, choice: Choice) -> Result<()> {
        self.choice = choice;
        let Choice { mode, because, .. } = &self.choice;
        self.state.map_or(Ok(()), |state| state.mode(*mode, because))
    }

    fn look_as_chosen(&mut self, scope: &Scope) -> Result<Look> {
        let mode = self.choice.mode;
        match self.look_by(mode, scope) {
            Err(Error::Refused { reason, .. }) if mode != Mode::Stream => {
                let because = format!("no {}: {reason}", mode.name());
                self.choose(Choice::of(Mode::Stream, because))?;
                self.look_by(Mode::Stream, scope)
            }
            other => other,
        }
    }

    fn look_by(&mut self, mode: Mode, scope: &Scope) -> Result<Look> {
        let Some(hashing) = mode.hashing() else { return self.look_at_rows(scope) };
        let (one, other) =
            both(&mut self.source, &mut self.target, |side| side.sum_there(scope, hashing))?;
        Ok(Look {
            mode,
            rows_source: one.rows,
            rows_target: other.rows,
            bytes: 0,
            sums: [one.text(), other.text()],
            alike: one == other && one.is_whole(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(stream: u64, pushdown: u64) -> Choice {
        let way = |mode, bytes, millis| Way {
            mode,
            rows: 10_000,
            bytes,
            elapsed: Duration::from_millis(millis),
        };
        let ways = vec![way(Mode::Stream, 10 << 20, stream), way(Mode::Pushdown, 0, pushdown)];
        let mut probe = Probe { ways, hopeless: Vec::new(), parts: 1 };
        probe.leave_hopeless_out();
        assert_eq!(probe.ways.len(), if pushdown > 2 * stream { 1 } else { 2 });
        probe.decide()
    }

    #[test]
    fn rows_are_read_unless_another_way_is_much_faster() {
        assert_eq!(decided(100, 60).mode, Mode::Stream);
        assert_eq!(decided(100, 400).mode, Mode::Stream);
        let slow = decided(1000, 200);
        assert_eq!(slow.mode, Mode::Pushdown);
        assert_eq!(
            slow.because,
            "measured: stream 10000 rows/s (10.0 MiB/s), pushdown 50000 rows/s"
        );
    }

    #[test]
    fn servers_that_hash_in_different_ways_are_not_compared_by_it() {
        let of = |text: &str| Ability::As(text.to_owned());
        assert_eq!(apart(&[of("PostgreSQL 15"), of("PostgreSQL 15")]), None);
        assert!(apart(&[of("PostgreSQL 15"), of("PostgreSQL 18")]).is_some());
        assert!(apart(&[of(""), Ability::No("none".to_owned())]).is_some());
    }
}
