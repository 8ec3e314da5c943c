//! The pages of a SQL Server data file.
