//! `pagewarden status`.

use std::path::PathBuf;

use clap::Args;

use super::scrub::Place;

/// How the databases stand that `scrub` verifies: verdict, coverage, findings, next run
///
/// Answers from the ledger alone: no database is read.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    pagewarden status\n  \
    pagewarden status --nagios main                    for a monitoring system\n  \
    pagewarden status --metrics /var/lib/node_exporter/pagewarden.prom\n\n\
    Exit status: 0 nothing wrong, 1 damage is open, 2 something was not looked at; with --nagios\n\
    as monitoring plugins do (overdue is a warning).")]
pub struct Status {
    /// Only the databases of these names
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,

    #[command(flatten)]
    pub place: Place,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,

    /// Print one line for a monitoring system, and exit as its plugins do
    #[arg(long, conflicts_with = "json")]
    pub nagios: bool,

    /// Write figures for Prometheus (node_exporter's textfile collector)
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,

    /// Print nothing but what was asked for
    #[arg(short, long)]
    pub quiet: bool,
}
