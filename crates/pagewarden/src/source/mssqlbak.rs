//! The container of a compressed SQL Server backup.
