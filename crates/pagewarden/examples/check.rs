//! Checks the databases that are named, and says of each what is wrong.
//!
//! ```sh
//! cargo run --example check -- /var/lib/postgresql/18/main app.db
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example is a program")]

use std::process::ExitCode;

use pagewarden::{ErrorKind, Verdict};

fn main() -> ExitCode {
    let mut exit = ExitCode::SUCCESS;
    for path in std::env::args_os().skip(1) {
        match pagewarden::check(&path) {
            Ok(checked) => {
                let (description, summary) =
                    (&checked.verified.description, &checked.verified.summary);
                println!(
                    "{}: {}, {} pages of {}",
                    path.display(),
                    checked.verdict().name(),
                    summary.pages.total(),
                    description.engine
                );
                for finding in &checked.findings {
                    println!("  {:?}: {}", finding.place, finding.kind.name());
                }
                if checked.verdict() == Verdict::Damaged {
                    exit = ExitCode::FAILURE;
                }
            }
            Err(error) => {
                eprintln!("{error}");
                exit = match error.kind() {
                    ErrorKind::NotFound | ErrorKind::PermissionDenied => ExitCode::from(3),
                    _ => ExitCode::from(2),
                };
            }
        }
    }
    exit
}
