//! The checksum and the torn-page marks of SQL Server pages.
