//! Statistics: pure functions over slices, each with its known answers.
//!
//! The answers in the tests were computed with SciPy 1.17.1; the call stands
//! beside each. What has no answer (too few figures, all alike) is `None`,
//! never a panic and never a made-up number.

pub mod association;
pub mod bootstrap;
pub mod distribution;
pub mod power;
pub mod random;
pub mod ranks;
pub mod several;
pub mod share;
pub mod signed_rank;
pub mod summary;
pub mod two_samples;
pub mod verdict;
