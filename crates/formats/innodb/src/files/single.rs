//! One tablespace file that was named by itself.

#![deny(clippy::arithmetic_side_effects)]

use std::fs::Metadata;
use std::path::Path;
use std::sync::Arc;

use super::directory::Role;
use super::open_files::any_is_open;
use super::siblings::{Comparing, Siblings};
use super::structure::{Definitions, Depth, Structure};
use super::system::member_beside;
use super::tablespace::{
    Context, FileSeverities, SYSTEM_SPACE, Tablespace, always_has_sums, is_tablespace_name,
    open_file, read_head, read_keyring, state_in_words,
};
use super::unfinished;
use super::untested::{Telling, Untested};
use crate::FORMAT;
use crate::page::layout::Form;
use pagewarden_core::database::{Description, Evidence, OpenOptions, Probe, Step, Target};
use pagewarden_core::error::Error;
use pagewarden_core::source::file::open_regular;
use pagewarden_core::source::hold::is_locked;
use pagewarden_core::verdict::{Protection, Severity};

/// Looks at the first pages of a file.
#[must_use]
pub fn probe(path: &Path, metadata: &Metadata) -> Probe {
    if !metadata.is_file() {
        return Probe::No;
    }
    let by_name = if is_tablespace_name(&file_name(path)) { Probe::Maybe } else { Probe::No };
    let Ok(file) = std::fs::canonicalize(path).and_then(|path| open_regular(&path)) else {
        return by_name;
    };
    match read_head(&file).map_or(None, |(_, geometry)| geometry) {
        Some(geometry) if geometry.is_mixture => by_name,
        Some(geometry) if geometry.first_is_sound || geometry.by_vote => Probe::Yes,
        Some(_) => Probe::Maybe,
        None => by_name,
    }
}

/// Opens it.
///
/// # Errors
/// It cannot be read, or is no tablespace; or the keys cannot be read.
pub fn open(path: &Path, metadata: &Metadata, options: &OpenOptions) -> Result<Target, Error> {
    if !metadata.is_file() {
        return Err(Error::unrecognised(
            path,
            "not a file",
            "name a tablespace file, such as t.ibd",
        ));
    }
    // The user may name a link; the servers themselves follow them.
    let real = std::fs::canonicalize(path).map_err(|source| Error::io("open", path, source))?;
    let file = open_regular(&real).map_err(|source| Error::io("open", path, source))?;
    let is_live = is_locked(&file);
    let mut context = Context::alone(file_name(path));
    if is_live {
        context.severities = FileSeverities::live();
    }
    if let Role::System(number @ 2..) = Role::of(&file_name(&real)) {
        context.is_further = true;
        context.member = member_beside(&real, number);
    }
    context.keyring = options.keyring.as_deref().map(read_keyring).transpose()?;
    let mut tablespace = open_file(&real, context)?;
    let description = description(path, &tablespace, is_live);
    if !is_live && tablespace.geometry.space_id != Some(SYSTEM_SPACE) {
        unfinished::allow_for(&mut tablespace, &real);
    }
    let untested = Arc::<Untested>::default();
    if let Some(lock) = tablespace.lock.take() {
        untested.watch(&mut tablespace.file, lock);
    }
    let siblings = Arc::<Siblings>::default();
    if !is_live && tablespace.geometry.space_id != Some(SYSTEM_SPACE) {
        // It may have been copied while its server wrote to it.
        siblings.watch(&mut tablespace.file, &tablespace.allocated, Severity::Suspect);
    }
    if tablespace.geometry.space_id != Some(SYSTEM_SPACE) {
        let depth = Depth {
            has_records: options.structure,
            alone: Severity::Damage,
            together: (!is_live).then_some(Severity::Suspect),
        };
        let folder = super::state::directory_above(&real).unwrap_or_default();
        siblings.add(Structure::watch(
            &mut tablespace.file,
            tablespace.geometry.layout,
            &tablespace.allocated,
            depth,
            &Definitions::of_directory(folder),
        ));
    }
    let mut steps = std::mem::take(&mut tablespace.steps);
    steps.push(Step::File(tablespace.file));
    let (bytes, modified) = (metadata.len(), metadata.modified().ok());
    let woken = Box::new(move || {
        is_locked(&file)
            || any_is_open([real.as_path()])
            || file
                .metadata()
                .map_or(true, |now| now.len() != bytes || now.modified().ok() != modified)
    });
    let steps = Telling::new(Comparing::new(steps.into_iter(), siblings), untested);
    Ok(Target { description, steps: Box::new(steps), woken: Some(woken) })
}

fn description(path: &Path, tablespace: &Tablespace, is_live: bool) -> Description {
    let layout = &tablespace.geometry.layout;
    let mut state = state_in_words(tablespace);
    if is_live {
        state.push_str(", open in a server");
    }
    Description {
        part: None,
        path: path.to_owned(),
        format: FORMAT.name,
        engine: tablespace.engine().to_owned(),
        page_size: u32::try_from(layout.page_size).unwrap_or(u32::MAX),
        setting: always_has_sums(layout).then_some(Protection::Checksum),
        state,
        evidence: evidence(layout.form),
        live: is_live,
        epoch: None,
    }
}

/// What an "ok" is worth in a form of page.
#[must_use]
pub fn evidence(form: Form) -> Evidence {
    match form {
        Form::Old => Evidence {
            tested_by: "32-bit checksums, page number, space id, the LSN at both ends, the extent \
                        map and the length",
            unseen: "older versions of a page; bytes 26 to 33 of a page",
        },
        Form::Zip => Evidence {
            tested_by: "32-bit checksums, page number, space id, the extent map and the length",
            unseen: "older versions of a page; its LSN and bytes 26 to 33",
        },
        Form::FullCrc32 => Evidence {
            tested_by: "CRC-32C of whole pages, page number, space id, the extent map and the length",
            unseen: "older versions of a page",
        },
    }
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map_or_else(|| path.to_string_lossy(), |name| name.to_string_lossy())
        .into_owned()
}
