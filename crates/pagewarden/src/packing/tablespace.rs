//! `pack --tablespace`: one tablespace of a PostgreSQL cluster, to be mounted in its
//! place. Only what is frozen may be: a page that is not will be changed one day, and
//! the transaction logs that it needs until then are removed.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::{Failure, Packed, Place, Request, Result, Watch, Whole, make as make_pack};
use crate::database;
use crate::error::ErrorKind;
use crate::formats::postgres::files::frozen::{Tablespace, Unfrozen};
use crate::pack::PackedTablespace;
use crate::source::store::Stores;

/// Tables that are named; more are counted.
const SHOWN_MAX: usize = 20;

pub(super) fn make(
    request: &Request,
    name: &str,
    output: &Path,
    stores: &dyn Stores,
    stop: &Arc<AtomicBool>,
    watch: &dyn Watch,
) -> Result<Packed> {
    let tablespace = Tablespace::find(&request.source, name)?;
    let place = Place::prepare_in(stores, output, [request.source.as_path(), &tablespace.folder])?;
    let unfrozen = tablespace.unfrozen()?;
    if !unfrozen.is_empty() {
        return Err(Failure::refused(&tablespace.folder, refusal(&tablespace, &unfrozen)));
    }
    let target = database::open(&tablespace.version_folder, None)?;
    if target.description.live {
        let text = format!(
            "cannot pack {}: a server has started on it\nhint: shut it down first",
            request.source.display()
        );
        return Err(Failure::new(ErrorKind::InUse, &request.source, text));
    }
    // So that it is never mounted where what the server writes would vanish.
    let packed = PackedTablespace {
        name: tablespace.name.clone(),
        folder: tablespace.version_folder.file_name().map(PathBuf::from).unwrap_or_default(),
    };
    let source = tablespace.folder.as_path();
    let whole = Whole { source, target, tablespace: Some(packed), mounted: None };
    make_pack(request, whole, place, stop, watch)
}

/// Which tables are not frozen, and what to run.
fn refusal(tablespace: &Tablespace, unfrozen: &[Unfrozen]) -> String {
    let mut text = format!("cannot pack tablespace {}: not all of it is frozen", tablespace.name);
    for one in unfrozen.iter().take(SHOWN_MAX) {
        let Unfrozen { database, table, reason, .. } = one;
        let _ = write!(text, "\n  {table} in database {database}: {reason}");
    }
    if unfrozen.len() > SHOWN_MAX {
        let _ = write!(text, "\n  and {} more", unfrozen.len() - SHOWN_MAX);
    }
    let _ = write!(text, "\nhint: start the server, run this, and shut it down again:");
    let statements: BTreeSet<_> =
        unfrozen.iter().map(|one| (one.database.as_str(), one.statement.as_str())).collect();
    for (database, statement) in statements {
        let _ = write!(text, "\n  in database {database}: {statement}");
    }
    text
}
