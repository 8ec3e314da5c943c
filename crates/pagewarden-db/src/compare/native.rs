//! Sums by servers of one kind and version with functions of their own: PostgreSQL's hashes of
//! its types, guarded against what they do not see (`engine/postgres/sums.rs`).
//!
//! PostgreSQL does not promise that these functions stay what they are from one version to the
//! next, or between machines of another byte order. Where they differ nothing is called equal:
//! the part is read.

use super::plan::Plan;
use crate::table::Table;

/// Why the columns cannot be hashed alike.
pub fn obstacle(source: &Table, target: &Table, plan: &Plan) -> Option<String> {
    plan.columns.iter().zip(plan.source.iter().zip(&plan.target)).find_map(
        |(name, ((place, _), (other_place, _)))| {
            let (one, other) = (source.columns.get(*place)?, target.columns.get(*other_place)?);
            (one.wire != other.wire || one.form != other.form)
                .then(|| format!("column {name} is {} and {}", one.declared, other.declared))
        },
    )
}
