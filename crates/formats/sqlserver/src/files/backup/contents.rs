//! The pages of a backup's data files for a caller that looks at them, and what its sets say of
//! themselves. Nothing is judged here: `backup` is for that.

use std::path::PathBuf;

use crate::checksum::{PAGE_BYTES, Page};
use crate::files::backup::chains::{SetHeader, page_restore};
use crate::files::backup::{Event, SetKind, extents, family::SetBegin};
use crate::mtf::details::{Configuration, Guid};
use crate::page::header::Header;
use pagewarden_core::database::Step;
use pagewarden_core::error::Error;
use pagewarden_core::source::store::StorePath;
use pagewarden_core::verdict::Severity;

/// A backup set, once all of it came.
#[derive(Debug, Clone)]
pub(crate) struct BackupSet {
    /// The files that it is in.
    pub(crate) files: Vec<PathBuf>,
    /// Something of its container or its log is damaged, so that RESTORE may refuse it.
    pub(crate) is_damaged: bool,
    header: SetHeader,
}

impl BackupSet {
    /// Which one it is in its files, from 1 on.
    pub(crate) fn number(&self) -> u32 {
        self.header.number
    }

    /// Its own id, which a differential base names.
    pub(crate) fn id(&self) -> Guid {
        self.header.id
    }

    pub(crate) fn kind(&self) -> SetKind {
        self.header.kind
    }

    /// As it was when the backup ended.
    pub(crate) fn configuration(&self) -> &Configuration {
        &self.header.configuration
    }

    /// All of it came.
    pub(crate) fn is_whole(&self) -> bool {
        self.header.is_whole && !self.is_damaged
    }
}

/// A page of a backup, by what its own header says that it is.
#[derive(Debug)]
pub(crate) struct BackedUp<'a> {
    /// The set, counted from 1 on.
    pub(crate) set: u32,
    /// The page.
    pub(crate) page: &'a Page,
    /// Some of the set's pages came before, and come again: this is the later version.
    pub(crate) is_again: bool,
}

/// Reads all files of one backup, and shows every page that has a page's header; then its sets.
///
/// # Errors
/// A file cannot be opened, or is no backup.
pub(crate) fn read(
    paths: &[PathBuf],
    mut see: impl FnMut(&BackedUp<'_>),
) -> Result<Vec<BackupSet>, Error> {
    let places: Vec<_> = paths.iter().map(StorePath::local).collect();
    let mut extents = extents(&places)?;
    let is_striped = paths.len() > 1;
    let mut sets = Vec::new();
    let mut begun: Option<Begun> = None;
    let mut number = 0;
    while let Some(event) = extents.next() {
        match event {
            Event::Set(set) => {
                number = set.set;
                begun = Some(Begun { begin: set.begin, configuration: None, is_damaged: false });
            }
            Event::Configuration(configuration) => {
                if let Some(begun) = begun.as_mut().filter(|begun| begun.configuration.is_none()) {
                    begun.configuration = Some(configuration);
                }
            }
            Event::Extent(placed) => {
                for (page, at) in placed.bytes.as_chunks::<PAGE_BYTES>().0.iter().zip(0_usize..) {
                    let begin = at.saturating_mul(PAGE_BYTES);
                    let is_there = placed.extent.is_there(begin..begin.saturating_add(PAGE_BYTES));
                    let header = Header::parse(page);
                    if is_there && header.is_formatted() && header.file != 0 {
                        see(&BackedUp { set: number, page, is_again: placed.is_again });
                    }
                }
            }
            Event::SetEnd(close) => {
                let Some(Begun { begin, configuration: Some(first), is_damaged }) = begun.take()
                else {
                    continue;
                };
                let is_broken = extents.families.iter().any(|family| family.is_broken);
                let is_log_damaged =
                    close.log.faults(is_striped).any(|(_, how, ..)| how == Severity::Damage);
                let last = close.configuration;
                let header = SetHeader {
                    id: begin.id,
                    number,
                    name: begin.name.clone(),
                    kind: SetKind::of(&begin, &first),
                    data_pages: first.files.iter().map(|file| (file.id, file.pages)).collect(),
                    is_whole: extents.is_complete() && !is_broken && last.is_some(),
                    configuration: last.unwrap_or(first),
                };
                let is_damaged = is_damaged || is_log_damaged;
                sets.push(BackupSet { files: paths.to_vec(), is_damaged, header });
            }
            Event::Say(step) => {
                let is_damage = matches!(&*step, Step::Unread(_))
                    || matches!(&*step, Step::Finding(one) if one.severity == Severity::Damage);
                if let Some(begun) = begun.as_mut().filter(|_| is_damage) {
                    begun.is_damaged = true;
                }
            }
        }
    }
    Ok(sets)
}

/// A set of which the end did not come yet.
struct Begun {
    begin: SetBegin,
    configuration: Option<Box<Configuration>>,
    is_damaged: bool,
}

/// The statements by which a server restores single pages of a database, in the order in which they are
/// run; none if no full backup among these sets can be used. `pages` are as RESTORE takes them: `1:57`.
pub(crate) fn restore_pages(sets: &[BackupSet], database: &str, pages: &[String]) -> Vec<String> {
    let headers = sets.iter().map(|set| {
        let unusable = (!set.is_whole()).then(|| "it is damaged, or not all of it came".to_owned());
        (set.files.as_slice(), &set.header, unusable)
    });
    page_restore(headers, database, pages)
}
