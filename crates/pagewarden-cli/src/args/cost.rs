//! The command line of `pagewarden cost`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};

/// Measure what page protection costs on this machine, with statistics
///
/// Each experiment starts real database servers in temporary folders, runs the
/// same work with and without protection in random order, and ends in a
/// verdict with its interval. Nothing of yours is touched.
#[derive(Debug, Args)]
#[command(
    subcommand_help_heading = "Instead of measuring",
    subcommand_value_name = "analyse",
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    override_usage = "pagewarden cost [OPTIONS] NAME...\n       \
                      pagewarden cost [OPTIONS] analyse FILE"
)]
#[command(after_help = "Examples:\n  \
    pagewarden cost --list                         the experiments, one a line\n  \
    pagewarden cost --short e2b                    one of them, as a first look\n  \
    pagewarden cost --seeds --html cost.html       all of them, with a page to show\n  \
    pagewarden cost e2a --blocks 60 --margin 1%    more blocks for a finer question\n  \
    pagewarden cost e2a e4a --budget 2h            until it is decided, two hours at most\n  \
    pagewarden cost --continue cost-20260131-1705.jsonl\n  \
    pagewarden cost analyse runs.csv               runs made elsewhere: run,OFF,ON\n\n\
    Exit status: 0 measured, whatever the price (with --strict 1 if a verdict is 'worse'),\n\
    2 not everything could be measured, 3 stopped early; says how to go on.")]
pub struct Cost {
    /// Something other than measuring
    #[command(subcommand)]
    pub command: Option<CostCommand>,

    /// Experiments, as --list names them
    #[arg(value_name = "NAME", required_unless_present_any = ["list", "seeds", "resume"])]
    pub names: Vec<String>,

    /// Name the experiments, one a line
    #[arg(long, conflicts_with_all = ["names", "seeds", "resume"])]
    pub list: bool,

    /// Run all experiments, in their short form
    #[arg(long, conflicts_with_all = ["names", "resume"])]
    pub seeds: bool,

    /// Run the short form: a first look
    #[arg(long)]
    pub short: bool,

    /// Go on with a run that was stopped
    #[arg(long = "continue", value_name = "RUN", conflicts_with_all =
        ["names", "short", "blocks", "seed", "order", "no_control", "sequential", "budget", "out"])]
    pub resume: Option<PathBuf>,

    /// Blocks in which every arm runs once [default: each experiment's own number]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub blocks: Option<u32>,

    /// The seed of the random order [default: from the clock]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// How the arms of a block follow each other: duet runs them at once
    #[arg(long, value_name = "ORDER", default_value = "random",
        value_parser = PossibleValuesParser::new(["random", "abba", "duet"]))]
    pub order: String,

    /// Leave out the second, identical baseline that shows what noise alone does
    #[arg(long)]
    pub no_control: bool,

    /// End early when the verdict stands, by a rule that allows for looking thrice
    #[arg(long)]
    pub sequential: bool,

    /// End after this time, or earlier when the verdicts stand [e.g. 30m, 2h]
    ///
    /// Measures up to four times the usual number of blocks, with the looks of --sequential.
    #[arg(long, value_name = "TIME", value_parser = super::parse_time)]
    pub budget: Option<Duration>,

    /// Where every raw sample is kept [default: ~/.local/state/pagewarden]
    #[arg(long, visible_alias = "keep", value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Where the temporary databases are made [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,

    /// The smallest difference that matters [default: 2%]
    #[arg(long, value_name = "PERCENT", value_parser = parse_margin, global = true)]
    pub margin: Option<f64>,

    /// Write the report as a web page that needs nothing else
    #[arg(long, value_name = "FILE", global = true)]
    pub html: Option<PathBuf>,

    /// Exit with 1 when a verdict is 'worse'
    #[arg(long, global = true)]
    pub strict: bool,

    #[command(flatten)]
    pub shown: super::Shown,
}

/// What `cost` does beside measuring.
#[derive(Debug, Subcommand)]
pub enum CostCommand {
    Analyse(Analyse),
}

/// Analyse runs made elsewhere, or a run of cost once more
///
/// A table has a header that names the arms and a row for each block:
/// run,OFF,ON. The first arm is what the others are compared with. Separators,
/// line ends and decimal commas of most spreadsheets are understood; a cell may
/// be missing.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    pagewarden cost analyse runs.csv --margin 5%\n  \
    pagewarden cost analyse tps.csv --better higher --html runs.html\n  \
    pagewarden cost analyse ~/.local/state/pagewarden/cost-20260131-1705.jsonl")]
pub struct Analyse {
    /// A table of runs, or the samples of a run; - reads a table from standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Which way is good: lower for seconds, higher for transactions a second
    #[arg(long, value_name = "WAY", default_value = "lower",
        value_parser = PossibleValuesParser::new(["lower", "higher"]))]
    pub better: String,
}

/// A margin as a part of one.
fn parse_margin(text: &str) -> Result<f64, String> {
    let percent = super::parse_percent(text)?;
    if percent > 0.0 && percent <= 50.0 {
        Ok(percent / 100.0)
    } else {
        Err("a margin lies above 0 % and up to 50 %".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margins_are_parts_of_one() {
        assert_eq!(parse_margin("2%"), Ok(0.02));
        assert_eq!(parse_margin("0.5"), Ok(0.005));
        for text in ["0", "51%", "-2%", "two", "NaN"] {
            assert!(parse_margin(text).is_err(), "{text}");
        }
    }
}
