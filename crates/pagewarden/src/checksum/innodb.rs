//! The checksums of InnoDB pages.
