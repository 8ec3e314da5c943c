//! Why a verdict is what it is, in words.

use crate::verdict::Verdict;
use crate::verify::Summary;
use crate::words::{counted, grouped};

/// A verdict on a target in words.
#[must_use]
pub fn why(verdict: Verdict, summary: &Summary) -> String {
    match verdict {
        Verdict::Damaged if summary.pages.damaged == 0 => "files are damaged or missing".to_owned(),
        Verdict::Damaged => format!(
            "{} of {} pages{}",
            grouped(summary.pages.damaged),
            grouped(summary.pages.total()),
            besides(summary).map_or(String::new(), |besides| format!(", and {besides}"))
        ),
        Verdict::Incomplete if summary.stopped => "stopped before all was read".to_owned(),
        Verdict::Incomplete if summary.unread > 0 => "not everything could be read".to_owned(),
        Verdict::Incomplete if summary.pages.undecided > 0 => {
            "some pages kept changing to the end".to_owned()
        }
        Verdict::Incomplete => untested_words(summary),
        Verdict::Suspect => "recovery or a rare history could explain what was found".to_owned(),
        Verdict::Unprotected => "nothing wrong seen, but the pages carry no checksums".to_owned(),
        Verdict::Intact if summary.pages.unverifiable > 0 || summary.untested_files > 0 => {
            format!("nothing wrong seen, but {}", untested_words(summary))
        }
        Verdict::Intact if summary.pages.unprotected > 0 => format!(
            "every page that carries a checksum was tested; {} without one",
            match summary.pages.unprotected {
                1 => "1 page is".to_owned(),
                count => format!("{} pages are", grouped(count)),
            }
        ),
        Verdict::Intact if summary.pages.total() == 0 => {
            "nothing wrong seen, and there is no page in it".to_owned()
        }
        Verdict::Intact => "every page that is in use was tested".to_owned(),
    }
}

/// Damage that is not of a page by itself: a file that is gone, pages that contradict each other.
#[must_use]
pub(super) fn besides(summary: &Summary) -> Option<String> {
    let more = summary.severities.damage.saturating_sub(summary.pages.damaged);
    (more > 0).then(|| format!("{} between pages and files", counted(more, "other finding")))
}

/// How much could not be tested for want of a key or a reader of their format.
fn untested_words(summary: &Summary) -> String {
    let (pages, files) = (summary.pages.unverifiable, summary.untested_files);
    let what = match (pages, files) {
        (_, 0) => counted(pages, "page"),
        (0, _) => counted(files, "file"),
        _ => format!("{} and {}", counted(pages, "page"), counted(files, "file")),
    };
    format!("{what} could not be tested without a key or a reader of their format")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_was_tested_is_said_only_where_it_is_so() {
        let tested = "every page that is in use was tested";
        let mut summary = Summary::default();
        assert!(!why(Verdict::Intact, &summary).contains(tested));
        summary.pages.ok = 3000;
        assert_eq!(why(Verdict::Intact, &summary), tested);
        summary.pages.unprotected = 2;
        assert_eq!(
            why(Verdict::Intact, &summary),
            "every page that carries a checksum was tested; 2 pages are without one"
        );
        summary.pages.unverifiable = 1200;
        for verdict in [Verdict::Intact, Verdict::Incomplete] {
            let words = why(verdict, &summary);
            assert!(words.contains("1,200 pages could not be tested"), "{words}");
            assert!(!words.contains(tested), "{words}");
        }
    }
    #[test]
    fn files_that_are_gone_are_named_beside_damaged_pages() {
        let mut summary = Summary::default();
        (summary.pages.ok, summary.pages.damaged, summary.severities.damage) = (8, 2, 2);
        assert_eq!(why(Verdict::Damaged, &summary), "2 of 10 pages");
        summary.severities.damage = 5;
        let words = "2 of 10 pages, and 3 other findings between pages and files";
        assert_eq!(why(Verdict::Damaged, &summary), words);
    }
}
