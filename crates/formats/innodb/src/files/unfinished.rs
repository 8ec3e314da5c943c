//! A tablespace by itself: its extent map may have pages in use that were never written, those of an
//! index that a killed server was making. See `links`; in a directory `evidence` asks the same.

use std::path::Path;
use std::sync::Arc;

use crate::files::evidence::judge_and_weigh;
use crate::files::links::{Links, Owner};
use crate::files::tablespace::Tablespace;
use pagewarden_core::page::{
    Fingerprint, Neighbours, PageFinding, PageFormat, PageRun, RunVerdict,
};
use pagewarden_core::verdict::Kind;

/// The pages of a file of which nothing else is known.
#[derive(Debug)]
struct Alone {
    pages: Arc<dyn PageFormat>,
    links: Links,
}

/// Lets a page of zeroes be empty where it may belong to an index that was never finished.
pub(crate) fn allow_for(tablespace: &mut Tablespace, path: &Path) {
    let geometry = &tablespace.geometry;
    // A further file's pages are not numbered from its beginning on.
    if geometry.first_page != 0 {
        return;
    }
    let allocated = Arc::clone(&tablespace.allocated);
    let links = Links::new(path.to_owned(), geometry.layout, Owner::Tables, allocated);
    let pages = Arc::clone(&tablespace.file.format);
    tablespace.file.format = Arc::new(Alone { pages, links });
}

impl Alone {
    fn is_nothing(&self, finding: &PageFinding) -> bool {
        finding.kind == Kind::Zeroed
            && self.links.has_unfinished_index()
            && self.links.lead_to(finding.page).is_none()
    }
}

impl PageFormat for Alone {
    fn page_size(&self) -> usize {
        self.pages.page_size()
    }

    fn judge(&self, run: PageRun<'_>, verdict: &mut RunVerdict) {
        judge_and_weigh(&*self.pages, run, verdict, |finding| !self.is_nothing(finding));
    }

    fn explain(&self, page: &[u8], finding: &mut PageFinding, neighbours: &dyn Neighbours) {
        self.pages.explain(page, finding, neighbours);
    }

    fn fingerprint(&self, page: &[u8]) -> Fingerprint {
        self.pages.fingerprint(page)
    }
}
