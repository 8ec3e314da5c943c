//! Tables that are made here, and damaged.
