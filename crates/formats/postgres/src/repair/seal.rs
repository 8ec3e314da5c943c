//! Seals as proof: that a page of a copy is what the page was when the cluster was shut down and sealed,
//! whatever the copy's own age, and whether or not it has checksums.
//!
//! A seal counts if it was made of this cluster, shut down, and the log has a checkpoint exactly where that
//! shutdown ended, no later than the seal was made: so its history is the cluster's. From there on the
//! rules of [`proof`] hold as for a copy of that moment. A seal of a running cluster says of no
//! page as of when it is.

use std::sync::Arc;

use super::Wound;
use super::log::Log;
use super::proof::{self, Copy, Worth};
use crate::files::control::Control;
use crate::page::PostgresPages;
use crate::protect::Cluster;
use pagewarden_core::error::Error;
use pagewarden_core::page::PageFormat as _;
use pagewarden_core::repair::{Request, SealedPages};
use pagewarden_core::words::LsnText;

/// A seal whose history is the cluster's.
pub(super) struct Seal {
    pages: Arc<dyn SealedPages>,
    position: u64,
}

/// The seals of a request that can prove something.
///
/// # Errors
/// One is of another database, or of one that ran.
pub(super) fn all(
    request: &Request,
    cluster: &Cluster,
    log: Option<&Log>,
) -> Result<Vec<Seal>, Error> {
    let mut seals = Vec::new();
    for pages in &request.seals {
        let name = pages.name();
        let refuse = |reason: String, hint: &str| Err(Error::refused(name.as_ref(), reason, hint));
        let database = format!("{:016x}", cluster.control.system_identifier);
        let Some(epoch) = pages.epoch().filter(|epoch| epoch.database == database) else {
            let reason = "a seal of another database".to_owned();
            return refuse(reason, "name a seal of the cluster that is to be repaired");
        };
        if !epoch.is_at_rest {
            let reason =
                "a seal of a running database, which does not say of what moment its pages are";
            return refuse(reason.to_owned(), "a seal of a database that was shut down is proof");
        }
        let position = epoch.position;
        let Some(log) = log.filter(|log| log.begin <= position) else { continue };
        let time = log.checkpoint_at(position).and_then(Control::time_of_checkpoint);
        if time.is_none_or(|time| time > pages.made()) {
            let reason = format!(
                "at {}, where this seal was made, the log has no such checkpoint: its history is another",
                LsnText(position)
            );
            return refuse(reason, "name a seal of the cluster that is to be repaired");
        }
        seals.push(Seal { pages: Arc::clone(pages), position });
    }
    Ok(seals)
}

/// Why a page of a copy is exact, if a seal proves it.
pub(super) fn proved<'a>(
    seals: impl Iterator<Item = &'a Seal>,
    wound: &Wound<'_>,
    page: &[u8],
    layout: &PostgresPages,
    log: &Log,
) -> Option<String> {
    let fingerprint = layout.fingerprint(page);
    for seal in seals {
        let number = u64::from(wound.block.number);
        // A seal that cannot be read proves nothing.
        let sealed = seal.pages.fingerprint(&wound.finding.place.file, number).ok().flatten();
        if sealed != Some(fingerprint) {
            continue;
        }
        let copy = Copy { since: seal.position, is_same_state: false, doubt: None };
        if let Worth::Exact(why) | Worth::ExactOfKin(why) =
            proof::worth(page, wound.block, &copy, Ok(log))
        {
            return Some(format!("{} has this very page; {why}", seal.pages.name()));
        }
    }
    None
}
