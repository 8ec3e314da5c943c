//! What a page that fails its test proves in a backup, where the log is not
//! available.
//!
//! A backup is taken while the server writes, so that a page may have been read
//! half written. Replay of the log overwrites such a page with a full image,
//! which every page has that was changed since the backup's start.
//!
//! | how the backup was taken | a failing page |
//! | --- | --- |
//! | of a cluster that was shut down | is damage |
//! | by the server (`pg_basebackup`) | is damage if its LSN is before the start of the backup or after its end, else suspect |
//! | by copying files, or in a way that is not known | is suspect |
//!
//! Why the LSN counts for the server's own backups: a torn page may have the
//! header of its old version, and so an old LSN. The server tests every page
//! with an LSN before the start while it sends it (11 and later, unless told
//! `--no-verify-checksums`), and reads one that fails again, which a write that
//! was under way does not survive. A copy made by other programs had no such
//! second look; there an old LSN neither proves nor excludes damage. One torn
//! form passes the server untested: a page that was new, with a header of
//! zeroes before a tail of data. Such a page is never more than suspect.
//!
//! A file system's snapshot of a running server, packed into an archive, has no
//! label: it is as after a crash, and all in it is suspect.

use pagewarden_core::page::Unsettled;
use pagewarden_core::verdict::Severity;

/// How a backup was taken, as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ground {
    /// The cluster was shut down cleanly.
    AtRest,
    /// The server sent it, beginning at this redo position, up to this end.
    SentByServer { start_lsn: u64, end_lsn: Option<u64> },
    /// Files were copied while a server ran, or the way is not known.
    Copied,
}

impl Ground {
    /// What a failing page proves.
    pub(super) fn severity(self, page: &Unsettled) -> Severity {
        match self {
            // What is thrown away at the next start stays a notice.
            Self::AtRest if page.at_most == Severity::Notice => Severity::Notice,
            Self::AtRest => Severity::Damage,
            Self::SentByServer { start_lsn, end_lsn } => {
                let outside =
                    page.lsn < start_lsn || end_lsn.is_some_and(|end_lsn| page.lsn > end_lsn);
                let certain = outside && !page.blank_header;
                page.at_most.min(if certain { Severity::Damage } else { Severity::Suspect })
            }
            Self::Copied => page.at_most.min(Severity::Suspect),
        }
    }

    /// What a file that ends inside a page proves: a server extends files page
    /// by page, but not in one stroke.
    pub(super) fn partial_page(self, at_most: Severity) -> Severity {
        let page = Unsettled { by_sum_alone: false, lsn: 0, blank_header: true, at_most };
        self.severity(&page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severity_follows_the_table() {
        let page = |lsn, blank_header, at_most| Unsettled {
            by_sum_alone: true,
            lsn,
            blank_header,
            at_most,
        };
        let sent = Ground::SentByServer { start_lsn: 100, end_lsn: Some(200) };
        let open = Ground::SentByServer { start_lsn: 100, end_lsn: None };
        for (ground, lsn, expected) in [
            (sent, 99, Severity::Damage),
            (sent, 100, Severity::Suspect),
            (sent, 200, Severity::Suspect),
            (sent, 201, Severity::Damage),
            (open, 201, Severity::Suspect),
            (Ground::Copied, 1, Severity::Suspect),
            (Ground::AtRest, 150, Severity::Damage),
        ] {
            assert_eq!(ground.severity(&page(lsn, false, Severity::Damage)), expected, "{lsn}");
            let discarded = ground.severity(&page(lsn, false, Severity::Notice));
            assert_eq!(discarded, Severity::Notice);
        }
        assert_eq!(sent.severity(&page(0, true, Severity::Damage)), Severity::Suspect);
        assert_eq!(sent.severity(&page(0, false, Severity::Suspect)), Severity::Suspect);
        assert_eq!(Ground::AtRest.severity(&page(0, false, Severity::Suspect)), Severity::Damage);
        assert_eq!(sent.partial_page(Severity::Damage), Severity::Suspect);
        assert_eq!(Ground::AtRest.partial_page(Severity::Damage), Severity::Damage);
    }
}
