//! The write-ahead log, as far as it tells what crash recovery will do to a
//! page that fails its test.
//!
//! A page may be torn by a crash, or read half written by a backup. For that
//! the log holds, for every page that is changed after a checkpoint began, an
//! image of the whole page (or a record that builds it from nothing) before
//! anything else about it. Replay starts where the checkpoint began, the redo
//! position, and never reads such a page: it overwrites it.
//!
//! [`segment`] finds and reads the files and their pages, [`reader`] puts
//! records together, [`block`] reads which blocks a record touches, [`replay`]
//! keeps the blocks that are overwritten, [`span`] says which stretch of the log
//! has to be replayed.
//!
//! # When a page that is not overwritten is damaged
//!
//! A healthy history may leave a failing page that no image mends. What tells
//! those from damage, each on the side of doubt:
//!
//! | history | what is done about it |
//! | --- | --- |
//! | the log has a gap, or its end is not the true one | it must reach from the redo position past the checkpoint record to an invalid record in a file that is there, behind which no record can be read, past minRecoveryPoint; in a backup to the backup's own end |
//! | a page newer than that end | doubt |
//! | a promotion: the log goes on in another timeline | doubt, where newer timelines have segments |
//! | the server runs unseen (in a container) and writes just now | the end of the log is probed again after the page was read |
//! | a relation being built when the lights went out: index builds, rewrites, and with wal_level minimal all bulk loads write pages that no image after the redo position covers, and sync them before they commit | its row in pg_class must be committed and current; an index must have relpages, which is set when its build has ended (CREATE INDEX CONCURRENTLY commits the row before) |
//! | a relation of an aborted one of these: an orphan, for ever | the same |
//! | a database being copied or moved to another tablespace | its row in pg_database must be committed, current, and name that tablespace |
//! | CREATE DATABASE is replayed by copying its files again | a record about the database makes doubt |
//! | a relation created or cut by the log to be replayed | doubt |
//! | an unlogged relation whose init fork was lost | pg_class must call it permanent |
//! | hash indexes of 9.6 are not logged | doubt |
//! | access methods of extensions have rules of their own | doubt |
//! | maps of free space and visibility change without the log | never asked about; the server rebuilds them |
//!
//! With full_page_writes off a torn page is not mended by replay, which fails
//! on it: that is damage, and is said.
//!
//! Sources: `src/include/access/{xlogrecord,xlog_internal,rmgrlist}.h`,
//! `src/backend/access/transam/{xlogreader,xlogutils,xlogrecovery}.c`,
//! `src/backend/storage/smgr/bulk_write.c`, `src/backend/catalog/storage.c`;
//! records and images were compared with `pg_waldump` of 14 to 18.

pub mod block;
pub mod image;
pub mod reader;
pub mod replay;
pub mod segment;
pub mod span;
