//! SQL Server data files and backups.
