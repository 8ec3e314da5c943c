//! `pagewarden mount`: its part of the command line.

use std::num::NonZero;
use std::path::PathBuf;

use clap::Args;

/// Serve a pack as files, so that programs and servers run on it
///
/// Stays in the foreground until Ctrl-C, SIGTERM or an unmount of DIR. Blocks are decompressed
/// and verified as they are read, ahead of sequential readers. Files can be written: changes are
/// kept in memory, or in the folder that --scratch names, and are discarded after the unmount,
/// unless --durable keeps them. The pack is never written. Reading a damaged block fails with EIO,
/// and the block is reported here.
///
/// Run as root, it lets other users in, and files have the owners that they were packed with.
/// Otherwise only the user who runs it has access, and owns all files.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    pagewarden mount old.pwk /mnt/old                      files, to be read or run on\n  \
    pg_ctl -D /mnt/old start                               a server on it, as postgres\n  \
    pagewarden mount --scratch /var/tmp old.pwk /mnt/old   for many changes\n  \
    pagewarden mount --owner mysql shop.pwk /mnt/shop      user ids differ here\n  \
    umount /mnt/old                                        or Ctrl-C\n  \
    pagewarden mount --durable old.delta --repack new.pwk old.pwk   both as one new pack\n  \
    pagewarden mount --cleanup /mnt/old                    after a killed process\n\n\
    Exit status: 0 unmounted, 1 unmounted, and damaged blocks were read, 2 it could not be\n\
    mounted, 3 ended by a second signal while programs were still using it.")]
pub struct Mount {
    /// The pack
    #[arg(value_name = "FILE.pwk", required_unless_present = "cleanup")]
    pub pack: Option<PathBuf>,

    /// Where to mount it: an empty folder; one that does not exist is made, and
    /// removed after the unmount
    #[arg(value_name = "DIR", required_unless_present_any = ["cleanup", "repack"])]
    pub folder: Option<PathBuf>,

    /// A pack that a delta builds on, if it does not lie beside it; may be given several times
    #[arg(long, value_name = "FILE.pwk", conflicts_with = "cleanup")]
    pub base: Vec<PathBuf>,

    /// Owner of all files: USER or USER:GROUP, names or numbers
    #[arg(long, value_name = "USER", conflicts_with = "cleanup")]
    pub owner: Option<String>,

    /// Keep changes in an unnamed file in this folder instead of in memory
    #[arg(long, value_name = "DIR", conflicts_with = "cleanup")]
    pub scratch: Option<PathBuf>,

    /// Keep changes in this folder for good, and continue with those already there
    ///
    /// As on any file system: what was synced survives a killed process and a
    /// loss of power. The folder belongs to this pack, and to one mount at a time.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["cleanup", "scratch", "read_only"])]
    pub durable: Option<PathBuf>,

    /// Write a new pack of FILE.pwk and all changes since, and empty the folder
    ///
    /// The server must be shut down, and the pack unmounted. Pages are verified on the
    /// way, and the new pack is read back; then the folder of --durable is empty again,
    /// and belongs to the new pack. If it is interrupted at any point, either the
    /// old pack with its folder or the new pack is complete.
    #[arg(long, value_name = "NEW.pwk", requires = "durable", conflicts_with = "cleanup")]
    pub repack: Option<PathBuf>,

    /// The cluster, shut down, whose packed tablespace --repack packs again; DIR is then
    /// the folder that its link in pg_tblspc leads to
    #[arg(long, value_name = "DATADIR", requires_all = ["repack", "folder"])]
    pub cluster: Option<PathBuf>,

    /// Where another pagewarden process has mounted what --repack packs
    #[arg(long, value_name = "DIR", requires = "repack", hide = true)]
    pub mounted: Option<PathBuf>,

    /// Limit for changes; beyond it, writes fail with ENOSPC
    #[arg(long, value_name = "SIZE", default_value = "1GiB", conflicts_with = "cleanup",
        value_parser = super::parse_size)]
    pub delta_max: u64,

    /// Refuse writes
    #[arg(long, conflicts_with_all = ["cleanup", "scratch"])]
    pub read_only: bool,

    /// Memory for decompressed blocks, in addition to the system's page cache
    #[arg(long, value_name = "SIZE", default_value = "64MiB", conflicts_with = "cleanup",
        value_parser = super::parse_size)]
    pub cache: u64,

    /// Threads that decompress blocks ahead of readers [default: the available cores]
    #[arg(short, long, value_name = "N", conflicts_with = "cleanup")]
    pub jobs: Option<NonZero<usize>>,

    /// Unmount this folder after its process was killed
    #[arg(long, value_name = "DIR", conflicts_with_all = ["pack", "folder"])]
    pub cleanup: Option<PathBuf>,

    /// Print one JSON object on standard output at the end
    #[arg(long)]
    pub json: bool,

    /// Print only errors
    #[arg(short, long)]
    pub quiet: bool,
}
