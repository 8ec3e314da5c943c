//! One check in many processes.
//!
//! ```text
//! paths ---> subjects ---> plan ---> part 1 of N ---> result --+
//!                            |                                 +--> merge ---> report
//!                            +-----> part N of N ---> result --+
//! ```
//!
//! A plan lists everything that `check` would look at, in its order, cut into units. A part
//! checks some units, and writes a result: for each unit the rows that a report would be given.
//! Merging gives the rows of all units, in the order of the plan, to a report like any other, so
//! that what it says is what one `check` of everything would have said.
//!
//! The rule that all of this serves: each unit has exactly one result. What is missing, altered,
//! of another plan or contradicted by another result is never good.
//!
//! Plans and results are lines of JSON; `docs/scale.md` says which.

mod error;
mod line;
pub mod merge;
pub mod part;
mod path;
pub mod plan;
pub mod result;
pub mod row;
pub mod subject;

pub use error::Error;
