//! The pages of an Aria table.
