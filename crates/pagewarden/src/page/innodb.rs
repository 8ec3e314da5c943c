//! The pages of an InnoDB tablespace.
