//! InnoDB tablespaces and data directories.
