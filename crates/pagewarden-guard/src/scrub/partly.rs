//! The steps of a target without the files, and the beginnings of files, that need not be read.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use pagewarden::database::{PageFile, Reading, Step};
use pagewarden::verdict::{ByteOffset, Note};

use crate::record::HandedOut;

/// The steps, with a note of each file that they hand out, and of what is learned of it.
pub(super) fn noted(steps: Steps, handed_out: HandedOut) -> Steps {
    Box::new(steps.map(move |mut step| {
        if let Step::File(file) = &mut step {
            let reading = Arc::<Reading>::default();
            file.reading = Some(Arc::clone(&reading));
            let mut files = handed_out.lock().unwrap_or_else(PoisonError::into_inner);
            files.insert(file.name.clone(), reading);
        }
        step
    }))
}

type Steps = Box<dyn Iterator<Item = Step> + Send>;

/// The steps, with only these files, from where on each of them is to be read.
pub(super) fn only(steps: Steps, begins: HashMap<String, u64>) -> Steps {
    let note = Note {
        file: String::new(),
        text: "this run read only a part of the files: what they say of one another was not asked \
               (a pass that reads everything in one run does that)"
            .to_owned(),
    };
    let partly = steps.filter_map(move |step| match step {
        Step::File(file) => {
            let begin = begins.get(&file.name)?;
            Some(Step::File(from(file, *begin)))
        }
        other => Some(other),
    });
    Box::new(std::iter::once(Step::Note(note)).chain(partly))
}

/// The steps, with the reason why all of them are taken before they are due.
pub(super) fn after_a_loss(steps: Steps) -> Steps {
    let note = Note {
        file: String::new(),
        text:
            "files that were here are gone, shorter or cannot be looked into: all is read again, \
               whatever was due"
                .to_owned(),
    };
    Box::new(std::iter::once(Step::Note(note)).chain(steps))
}

/// A file as if it began there.
fn from(mut file: PageFile, begin: u64) -> PageFile {
    let page_size = file.format.page_size().max(1) as u64;
    // Of a file that holds a selection of pages, the selection is counted from its beginning.
    let Some(skipped) = begin.checked_sub(file.first_offset.0).filter(|_| file.selection.is_none())
    else {
        return file;
    };
    if skipped % page_size == 0 {
        file.first_page = file.first_page.plus(skipped / page_size);
        file.first_offset = ByteOffset(begin);
    }
    file
}

#[cfg(test)]
mod tests {
    use pagewarden::page::{PageFormat, PageRun, RunVerdict};
    use pagewarden::verdict::PageNo;

    use super::*;

    #[derive(Debug)]
    struct Sectors;

    impl PageFormat for Sectors {
        fn page_size(&self) -> usize {
            512
        }

        fn judge(&self, _: PageRun<'_>, _: &mut RunVerdict) {}
    }

    #[test]
    fn files_are_left_out_or_begin_later_with_the_same_page_numbers() {
        let file = |name: &str| {
            let mut file = PageFile::of(name, name, 5120, Arc::new(Sectors));
            file.first_offset = ByteOffset(1024);
            file.first_page = PageNo(7);
            Step::File(file)
        };
        let steps = Box::new(["a", "b", "c"].map(file).into_iter());
        let begins = HashMap::from([("a".to_owned(), 2048), ("c".to_owned(), 1024)]);
        let files: Vec<_> = only(steps, begins)
            .filter_map(|step| match step {
                Step::File(file) => Some((file.name, file.first_offset.0, file.first_page.0)),
                _ => None,
            })
            .collect();
        assert_eq!(files, [("a".to_owned(), 2048, 9), ("c".to_owned(), 1024, 7)]);
    }
}
