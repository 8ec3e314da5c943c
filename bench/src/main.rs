//! Paired measurements: what checking costs beside `cat`, `fio` and the
//! engines' own tools. `cargo run --release -p pagewarden-bench -- --help`.

use clap::{Parser, Subcommand};

mod kernel;

/// Measures pagewarden beside its peers, in pairs, and prints medians and ratios
#[derive(Debug, Parser)]
#[command(name = "pagewarden-bench")]
struct Arguments {
    #[command(subcommand)]
    command: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// The checksum kernels against the plain one
    Kernel,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Benchmark::Kernel => kernel::run(),
    }
}
