//! Sums of MD5 that every engine makes by a statement (`row/portable.rs`), for networks on
//! which rows are dear. A part that differs is cut into smaller ones before it is read.

use super::look::{Scope, Side};
use super::plan::Plan;
use super::report::TableReport;
use super::table::Comparison;
use crate::error::Result;
use crate::table::Form;

/// Parts into which one that differs is cut.
const CUTS: u64 = 8;
/// Rows of a part that is rather read than cut.
const READ_ROWS: u64 = 1_000;

/// Why the columns have no text that both servers write.
pub fn obstacle(source: &Side<'_>, target: &Side<'_>, plan: &Plan) -> Option<String> {
    let same_engine = source.connection.title() == target.connection.title();
    plan.columns.iter().zip(plan.source.iter().zip(&plan.target)).find_map(
        |(name, ((place, form), (other_place, _)))| {
            let columns =
                [source.table.columns.get(*place)?, target.table.columns.get(*other_place)?];
            let reason = match form {
                Form::Any => "has values of any type",
                Form::Json if !same_engine => "is JSON, which engines write in different words",
                Form::Uuid if columns.iter().any(|column| column.form == Form::Bytes) => {
                    "is a UUID on one side and bytes on the other"
                }
                _ => return None,
            };
            Some(format!("column {name} {reason}"))
        },
    )
}

impl Comparison<'_, '_> {
    /// Finds in a part of `rows` rows the smaller ones that are not alike.
    ///
    /// # Errors
    /// A side could not be read.
    pub fn narrow(
        &mut self,
        scope: Scope,
        rows: u64,
        report: &mut TableReport,
    ) -> Result<Vec<Scope>> {
        let (Scope::Range { after, upto }, true) = (&scope, rows > READ_ROWS) else {
            return Ok(vec![scope]);
        };
        let (mut after, mut found) = (after.clone(), Vec::new());
        loop {
            self.wait_for_servers(report)?;
            let rest = Scope::Range { after, upto: upto.clone() };
            let cut = self.bound(&rest, (rows / CUTS).max(READ_ROWS / CUTS))?;
            let next = cut.filter(|cut| Some(cut) != upto.as_ref());
            let part = match (rest, &next) {
                (Scope::Range { after, .. }, Some(_)) => Scope::Range { after, upto: next.clone() },
                (rest, _) => rest,
            };
            let look = self.look(&part)?;
            // A part that does not become smaller is not cut for ever.
            match look.rows() {
                _ if look.alike => {}
                here if here < rows => found.extend(self.narrow(part, here, report)?),
                _ => found.push(part),
            }
            if next.is_none() {
                return Ok(found);
            }
            after = next;
        }
    }
}
