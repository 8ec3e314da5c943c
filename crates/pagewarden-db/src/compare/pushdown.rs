//! Sums of MD5 that every engine makes by a statement (`row/portable.rs`), for networks on
//! which rows are dear. A part that differs is cut into smaller ones before it is read.

use super::look::{Scope, Side};
use super::plan::Plan;
use super::report::TableReport;
use super::table::{Comparison, nearer};
use crate::error::Result;
use crate::row::Value;
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
    /// Finds what differs in a part of so many rows by smaller ones.
    ///
    /// # Errors
    /// A side could not be read.
    pub fn narrow(&mut self, scope: Scope, rows: u64, report: &mut TableReport) -> Result<()> {
        let (Scope::Range { after, upto }, true) = (&scope, rows > READ_ROWS) else {
            return self.suspect(scope, report);
        };
        let mut after = after.clone();
        loop {
            let cut = self.bound(after.as_ref(), (rows / CUTS).max(READ_ROWS / CUTS))?;
            let is_last = !is_before(cut.as_ref(), upto.as_ref());
            let part_upto = if is_last { upto.clone() } else { cut };
            let part = Scope::Range { after, upto: part_upto.clone() };
            let look = self.look(&part)?;
            if !look.alike {
                let here = look.rows_source.max(look.rows_target);
                // A part that does not become smaller is not cut for ever.
                if here < rows {
                    self.narrow(part, here, report)?;
                } else {
                    self.suspect(part, report)?;
                }
            }
            if is_last {
                return Ok(());
            }
            after = part_upto;
        }
    }
}

/// True if the first bound comes before the other; none is behind all rows.
fn is_before(one: Option<&Vec<Value>>, other: Option<&Vec<Value>>) -> bool {
    match (one, other) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(one), Some(other)) => {
            one != other && nearer(Some(one.clone()), Some(other.clone())).as_ref() == Some(one)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Tag;

    #[test]
    fn bounds_have_an_order() {
        let key =
            |text: &str| Some(vec![Value { tag: Tag::Number, payload: text.as_bytes().to_vec() }]);
        let (five, seven) = (key("5"), key("7"));
        assert!(is_before(five.as_ref(), seven.as_ref()));
        assert!(!is_before(seven.as_ref(), five.as_ref()));
        assert!(!is_before(five.as_ref(), five.as_ref()));
        assert!(is_before(five.as_ref(), None));
        assert!(!is_before(None, five.as_ref()));
    }
}
