//! Which command plans the repair of what is found: by the options, else by the configuration.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use pagewarden::repair::advice::{Advice, Sources};
use pagewarden_guard::config::Subject;

use crate::args::Check;
use crate::args::scrub::Place;
use crate::commands::subjects::configured;

/// What is known of sources of sound pages.
#[derive(Debug, Default)]
pub struct Advisor {
    /// Those of the command line win.
    named: Sources,
    configured: Vec<Subject>,
}

impl Advisor {
    pub fn new(arguments: &Check) -> anyhow::Result<Self> {
        let from = arguments.repair_from.clone();
        let keyring = arguments.keyring.clone();
        let named = Sources { from, log: arguments.repair_log.clone(), keyring };
        let place = Place { config: arguments.config.clone(), state: None };
        // What is not asked for is not read: a fault in it is no matter of this check.
        let configured = match (&place.config, named.from.is_empty()) {
            (Some(_), true) => configured(&place)?.databases,
            _ => Vec::new(),
        };
        Ok(Self { named, configured })
    }

    /// Of a database, or of a file in one of the configuration.
    pub fn of(&self, path: &Path) -> Option<Advice> {
        if !self.named.from.is_empty() {
            return Advice::of(path, &self.named);
        }
        let place = fs::canonicalize(path).ok()?;
        let holds = |of: &PathBuf| fs::canonicalize(of).is_ok_and(|root| place.starts_with(root));
        let mut subjects = self.configured.iter().filter(|one| one.paths.iter().any(holds));
        subjects.find_map(Subject::advice)
    }
}

/// The pages that repairs are to write their plans to: beside the report, one for each database.
#[derive(Debug, Default)]
pub struct PlanPages {
    report: Option<PathBuf>,
    given: AtomicU64,
}

impl PlanPages {
    pub fn beside(report: Option<&Path>) -> Self {
        Self { report: report.map(Path::to_owned), given: AtomicU64::new(0) }
    }

    /// `night.html` has `night.plan.html`, then `night.plan-2.html`; none where no report is written.
    pub fn next(&self) -> Option<PathBuf> {
        let report = self.report.as_ref()?;
        let number = self.given.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        Some(report.with_extension(match number {
            1 => "plan.html".to_owned(),
            _ => format!("plan-{number}.html"),
        }))
    }
}
