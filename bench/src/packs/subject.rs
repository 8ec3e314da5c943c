//! A database with the table of stock, and the engine that answers from the files that a store
//! keeps.

use std::path::Path;

use crate::packs::making::Made;
use crate::packs::question::{Answer, Question};
use crate::packs::store::{Kept, Kind, Store};
use crate::packs::throttle::Throttle;

/// See the module.
pub trait Subject {
    /// What stores keep.
    fn kept(&self) -> &Kept;

    /// Whether it can be asked where files are kept in this way.
    fn answers_from(&self, kind: &Kind) -> bool;

    /// How packs of all of it are made and unpacked; what is unpacked besides goes below `folder`.
    fn made(&self, folder: &Path) -> Made;

    /// Gets ready to answer from a store that was set up, held back as `throttle` says.
    ///
    /// # Errors
    /// A server does not start.
    fn begin(&mut self, store: &Store, throttle: &Throttle) -> anyhow::Result<()>;

    /// Asks; `again` if the process that answers is to have answered the same before.
    ///
    /// # Errors
    /// There is no answer.
    fn ask(
        &mut self,
        store: &Store,
        throttle: &Throttle,
        question: Question,
        again: bool,
    ) -> anyhow::Result<Answer>;

    /// Lets go of the store.
    ///
    /// # Errors
    /// A server does not stop.
    fn end(&mut self) -> anyhow::Result<()>;
}
