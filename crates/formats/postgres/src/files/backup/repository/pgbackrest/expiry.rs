//! Sets that the tool deletes while they are read.
//!
//! `expire` removes the manifests of sets first, then writes the list without them, then removes their
//! files. So a file that is not there is missing only if the list, as it is by then, has its set; and
//! for a manifest, if it has it still some seconds later.
//!
//! Source: `command/expire/expire.c` of pgBackRest; 2.45 and 2.58 while sets were read.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::files::backup::repository::pgbackrest::cipher::Passphrase;
use crate::files::backup::repository::pgbackrest::info;
use crate::files::backup::repository::pgbackrest::stanza::INFO;
use pagewarden_core::source::store::StorePath;

/// What is said of a set that was deleted.
pub(super) const EXPIRED: &str = "the set was expired while it was read";
/// A list that was read is believed for so long.
const FRESH: Duration = Duration::from_secs(1);
/// The tool removes the manifests of many sets in this time.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(500);

/// The list of a stanza's sets, as it is by now.
#[derive(Debug)]
pub(super) struct Expiry {
    folder: StorePath,
    passphrase: Option<Passphrase>,
    /// The list could not be read when the stanza was opened: it says nothing now either.
    is_silent: bool,
    last: Mutex<Option<(Instant, BTreeSet<String>)>>,
    /// Until when a list is waited for, once for all sets.
    until: Mutex<Option<Instant>>,
}

impl Expiry {
    /// Of the stanza in `folder`.
    pub(super) fn new(folder: &StorePath, passphrase: Option<&Passphrase>) -> Self {
        Self {
            folder: folder.clone(),
            passphrase: passphrase.cloned(),
            is_silent: false,
            last: Mutex::new(None),
            until: Mutex::new(None),
        }
    }

    /// Of a stanza whose list cannot be read.
    pub(super) fn silent(folder: &StorePath) -> Self {
        Self { is_silent: true, ..Self::new(folder, None) }
    }

    /// True if a set is not listed by now, or the list cannot be read any more.
    pub(super) fn has_expired(&self, label: &str) -> bool {
        if self.is_silent {
            return false;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, labels)) = &*last
            && (at.elapsed() < FRESH || !labels.contains(label))
        {
            return !labels.contains(label);
        }
        let mut labels = BTreeSet::new();
        let read = info::read_again(
            &self.folder,
            INFO,
            self.passphrase.as_ref(),
            &mut |section, key, _| {
                if section == "backup:current" {
                    labels.insert(key.to_owned());
                }
            },
        );
        let is_listed = read.is_ok() && labels.contains(label);
        *last = read.is_ok().then(|| (Instant::now(), labels));
        !is_listed
    }

    /// The same of a set whose manifest is gone, which may still be listed for some seconds.
    pub(super) fn expires(&self, label: &str) -> bool {
        let until = *self
            .until
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert_with(|| Instant::now() + PATIENCE);
        loop {
            if self.has_expired(label) {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            thread::sleep(PAUSE);
        }
    }
}
