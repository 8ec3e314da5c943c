//! The Microsoft Tape Format, as SQL Server writes its backups.
