//! Which command plans the repair of what is found: by the options, else by the configuration.

use std::fs;
use std::path::{Path, PathBuf};

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
