//! Where bytes come from. A source never sees a page format.

pub mod buffer;
pub mod file;
pub mod queue;
