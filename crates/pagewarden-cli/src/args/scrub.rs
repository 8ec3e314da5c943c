//! `pagewarden scrub`, and where it and its relatives find configuration and state.

use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::ReadLimits;

/// Verify databases again and again: what is due, oldest first, resuming where the last run stopped
///
/// What was verified when, and every finding, is in a ledger in the state folder. A run that is
/// stopped in any way, by its budget too, loses nothing: the next one resumes. Files that were
/// replaced, changed or cut are verified again. A finding stays open until its page is seen sound.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    pagewarden scrub                                   what is due of the configuration\n  \
    pagewarden scrub --budget 2h main                  one database of it, for two hours at most\n  \
    pagewarden scrub --every 1d /var/lib/mysql         a path, each page once a day\n  \
    pagewarden scrub --every 0s shop.sqlite            all of it, now\n\n\
    The configuration has a table for each database:\n  \
    [[database]]\n  \
    name = \"main\"\n  \
    path = \"/var/lib/postgresql/15/main\"\n  \
    every = \"7d\"\n  \
    window = \"01:00-05:00\"\n  \
    budget = \"2h\"\n  \
    rate = \"auto\"\n\n\
    Exit status: 0 nothing wrong, 1 damage is open (with --strict also suspect or overdue), 2 not\n\
    everything could be looked at, 3 stopped early, by --budget too.")]
pub struct Scrub {
    /// Names of the configuration, or paths as `check` takes them [default: all of the
    /// configuration]
    #[arg(value_name = "NAME|PATH")]
    pub operands: Vec<PathBuf>,

    #[command(flatten)]
    pub place: Place,

    /// Stop after this time, as in 2h; the next run resumes
    #[arg(long, value_name = "TIME", value_parser = super::parse_time)]
    pub budget: Option<Duration>,

    /// Verify each page at least so often, as in 7d; 0s begins again at once
    #[arg(long, value_name = "TIME", value_parser = super::parse_time)]
    pub every: Option<Duration>,

    /// Exit with 1 also when something is merely suspect, or a page was not verified in time
    #[arg(long)]
    pub strict: bool,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,

    /// A file with the keys of encrypted InnoDB pages
    #[arg(long, value_name = "FILE")]
    pub keyring: Option<PathBuf>,

    /// A file with the passphrase of an encrypted backup repository
    #[arg(long, value_name = "FILE")]
    pub cipher_pass_file: Option<PathBuf>,

    /// Threads that verify pages [default: the available cores]
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<NonZero<usize>>,

    #[command(flatten)]
    pub pace: ReadLimits,
}

/// Where configuration and state are
#[derive(Debug, Clone, Args)]
pub struct Place {
    /// The configuration [default: /etc/pagewarden/pagewarden.toml, then the user's]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// The folder of the ledger [default: /var/lib/pagewarden for root, else the user's]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}
