//! Whether a file is still what it was when it was opened. Writers finish a file before they name it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use pagewarden_core::database::Step;
use pagewarden_core::source::store::StoredFile;
use pagewarden_core::verdict::Unread;

/// The length of a file, and when it was written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// The length.
    pub bytes: u64,
    modified: Option<SystemTime>,
}

impl State {
    /// As it is now.
    ///
    /// # Errors
    /// What the system says.
    pub fn of(file: &StoredFile) -> io::Result<Self> {
        Ok(Self { bytes: file.length()?, modified: file.modified() })
    }

    /// The file has not been written to since.
    #[must_use]
    pub fn is_that_of(self, file: &StoredFile) -> bool {
        Self::of(file).is_ok_and(|now| now == self)
    }
}

/// A file that several threads read, and that must not change meanwhile.
#[derive(Debug)]
pub struct Unchanged {
    as_opened: State,
    is_said: AtomicBool,
}

impl Unchanged {
    /// From now on.
    ///
    /// # Errors
    /// What the system says.
    pub fn since_now(file: &StoredFile) -> io::Result<Self> {
        Ok(Self { as_opened: State::of(file)?, is_said: AtomicBool::new(false) })
    }

    /// What is to be said if the file was changed. Of all threads one says it, once.
    pub fn look(&self, name: &str, file: &StoredFile) -> Option<Step> {
        let is_news =
            !self.as_opened.is_that_of(file) && !self.is_said.swap(true, Ordering::Relaxed);
        is_news.then(|| {
            let why = "it was written to while it was read: check it again when that is over";
            Step::Unread(Unread::of_file(name, why.to_owned()))
        })
    }
}
