//! Databases that are verified again and again, unattended: what was verified when, what is due,
//! how things stand, and evidence of it for others.
//!
//! ```text
//! config --> scrub --> ledger --> status, serve
//!            list, plan,      \-> evidence
//!            verify, record    \-> notify
//! ```
//!
//! The unit is the page: a claim in the ledger says that a run of pages of a file was read and
//! judged, at a time. Claims are made from what the engine hands on as judged, and from nothing
//! else; a file that was replaced, changed or cut loses them. What an archive or a pack holds can only be
//! verified as a whole.

pub mod config;
pub mod evidence;
pub mod ledger;
pub mod listing;
pub mod moment;
pub mod notify;
pub mod record;
pub mod scrub;
#[cfg(unix)]
pub mod serve;
pub mod state;
pub mod status;
