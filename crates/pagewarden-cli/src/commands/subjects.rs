//! Which databases `scrub` and its relatives are about: those of the configuration, and paths.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use pagewarden::database::OpenOptions;
use pagewarden_guard::config::{self, Configuration, Readers, Subject};
use pagewarden_guard::state;
use pagewarden_plan::subject::groups;

use crate::args::scrub::Place;
use crate::args::{parse_rate, parse_time};

/// As flags are read.
const READERS: Readers = Readers { time: parse_time, rate: parse_rate };

/// The state folder.
pub fn state_folder(place: &Place) -> PathBuf {
    place.state.clone().unwrap_or_else(state::default_folder)
}

/// The configuration; an empty one if there is none.
pub fn configured(place: &Place) -> Result<Configuration> {
    match place.config.clone().or_else(config::default_path) {
        Some(path) => config::read(&path, READERS),
        None => Ok(Configuration::default()),
    }
}

/// A database, and whether it was named on the command line.
pub struct Wanted {
    /// The database.
    pub subject: Subject,
    /// It is read whatever its window says.
    pub is_named: bool,
}

/// The databases of these names and paths, or all of the configuration.
pub fn wanted(configured: Vec<Subject>, operands: &[PathBuf]) -> Result<Vec<Wanted>> {
    if operands.is_empty() {
        if configured.is_empty() {
            bail!(
                "there is no database to verify\n\
                 hint: name a PATH, or a configuration with --config FILE"
            );
        }
        let all = configured.into_iter();
        return Ok(all.map(|subject| Wanted { subject, is_named: false }).collect());
    }
    let mut wanted: Vec<Wanted> = Vec::new();
    let mut paths = Vec::new();
    for operand in operands {
        match configured.iter().find(|subject| Path::new(&subject.name) == operand) {
            Some(subject) => wanted.push(Wanted { subject: subject.clone(), is_named: true }),
            None if !operand.exists() && !configured.is_empty() && is_name(operand) => bail!(
                "there is no database of the name {} in the configuration, and no such file\n\
                 hint: the names are {}",
                operand.display(),
                configured.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(", ")
            ),
            None => paths.push(operand.clone()),
        }
    }
    for group in groups(&paths, None)? {
        wanted.push(Wanted { subject: Subject::of_parts(group), is_named: true });
    }
    let mut names: Vec<&str> = wanted.iter().map(|one| one.subject.name.as_str()).collect();
    names.sort_unstable();
    let twice = names.windows(2).find(|pair| pair.first() == pair.last());
    if let Some(twice) = twice.and_then(<[_]>::first) {
        bail!("{twice} is named twice\nhint: name each database once");
    }
    Ok(wanted)
}

fn is_name(operand: &Path) -> bool {
    operand.components().count() == 1
}

/// How the databases are opened.
pub fn open_options(
    keyring: Option<&PathBuf>,
    cipher_pass_file: Option<&PathBuf>,
    jobs: NonZero<usize>,
) -> OpenOptions {
    let mut options =
        OpenOptions { keyring: keyring.cloned(), jobs: Some(jobs), ..OpenOptions::default() };
    options.repository.cipher_pass_file = cipher_pass_file.cloned();
    options
}
