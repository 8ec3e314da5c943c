//! Page verification turned on or off: the engines of [`FORMATS`](crate::formats::FORMATS). What is
//! common to engines is in the core.

pub use pagewarden_core::protect::*;

use crate::error::Error;
use crate::formats;
use crate::verify::Progress;

/// Changes how the pages of a database are protected.
///
/// # Errors
/// It cannot be done, or not safely: the database runs, is not sound, or is of
/// no kind that can be changed; a file cannot be read or written. The database is
/// then under its old setting, and sound under it.
pub fn protect(
    request: &Request,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Outcome, Error> {
    protect_among(&formats::protecting().collect::<Vec<_>>(), request, options, progress)
}
