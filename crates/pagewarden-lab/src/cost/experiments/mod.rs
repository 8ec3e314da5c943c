//! The experiments. To add one: one file here, one line in [`EXPERIMENTS`].

mod blind_spots;
mod clients;
mod initialisation;
mod io_patterns;
mod kernel_dispatch;
mod matrix;
mod null_run;
mod null_speed;
mod packed_scan;
mod point_loop_mariadb;
mod point_loop_postgres;
mod point_loop_sqlite;
mod select_only;
mod seqscan;
mod seqscan_sqlite;
mod switching;
mod table_checksums;
mod wal_mechanism;
mod worth;

use crate::cost::experiment::Experiment;

/// Every experiment there is, in the order in which they are listed.
pub static EXPERIMENTS: &[&dyn Experiment] = &[
    &point_loop_postgres::PointLoop,
    &point_loop_mariadb::PointLoop,
    &point_loop_sqlite::PointLoop,
    &packed_scan::PackedScan,
    &select_only::SelectOnly,
    &seqscan::SequentialScan,
    &seqscan_sqlite::SequentialScan,
    &clients::Clients,
    &kernel_dispatch::KernelDispatch,
    &initialisation::Initialisation,
    &matrix::Matrix,
    &wal_mechanism::WalMechanism,
    &blind_spots::BlindSpots,
    &switching::Switching,
    &table_checksums::TableChecksums,
    &null_speed::NullSpeed,
    &io_patterns::IoPatterns,
    &null_run::NullRun,
    &worth::Worth,
];
