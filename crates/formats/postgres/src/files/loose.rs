//! A relation's file that lies alone, without its cluster: page size, segment
//! number and the use of checksums are taken from its pages, by vote.

use std::fs::Metadata;
use std::path::Path;
use std::sync::Arc;

use crate::FORMAT;
use crate::checksum::{checksum, hash_pages};
use crate::files::{SEGMENT_BYTES, relation_file};
use crate::page::{Checksums, Header, MAX_ALIGN, PAGE_SIZES, PostgresPages};
use pagewarden_core::database::{Description, PageFile, Relation, Segment, Step, Target};
use pagewarden_core::error::Error;
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::verdict::{Note, PageNo, Severity};

/// What the pages of a file show.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// The page size, if any page had a sound header.
    pub(crate) page_size: Option<usize>,
    /// The number of the file's first page by which the checksums fit.
    pub(crate) first_page: u64,
    /// True if checksums fit at all.
    pub(crate) checksums: bool,
    /// True if pages carry values in the checksum field that fit nowhere.
    pub(crate) strange_sums: bool,
}

/// How much is read from each of the places that are sampled.
const SAMPLE_BYTES: usize = 256 << 10;
/// Segments tried for a file whose name tells none.
const SEGMENTS_TRIED: u64 = 4096;

/// True if some page in the file has a header that PostgreSQL could have
/// written.
pub(crate) fn looks_like_pages(path: &Path) -> bool {
    let Ok(path) = std::fs::canonicalize(path) else { return false };
    sample(&path, 0).page_size.is_some()
}

/// Looks at pages from the beginning, the middle and the end of a file whose
/// first page ought to have the number of segment `segment`.
pub(crate) fn sample(path: &Path, segment: u32) -> Seen {
    let Ok(chunks) = read_samples(path) else { return Seen::default() };
    let bytes: Vec<_> = chunks.iter().map(|(_, bytes)| bytes.clone()).collect();
    let Some(page_size) = vote_on_page_size(&bytes) else { return Seen::default() };
    let mut pages = Vec::new();
    for (offset, bytes) in &chunks {
        for (index, page) in bytes.chunks_exact(page_size).enumerate() {
            let Some(header) = Header::read(page) else { continue };
            if header.upper == 0 || header.checksum == 0 {
                continue;
            }
            let mut hash = [0_u32];
            hash_pages(page, page_size, &mut hash);
            let [hash] = hash;
            pages.push(Sum {
                number: offset / page_size as u64 + index as u64,
                hash,
                stored: header.checksum,
            });
        }
    }
    let segment_pages = SEGMENT_BYTES / page_size as u64;
    let named = u64::from(segment);
    let fits = std::iter::once(named)
        .chain((0..SEGMENTS_TRIED).filter(|tried| *tried != named))
        .map(|segment| segment * segment_pages)
        .find(|first_page| most_fit(&pages, *first_page));
    Seen {
        page_size: Some(page_size),
        first_page: fits.unwrap_or(named * segment_pages),
        checksums: fits.is_some(),
        strange_sums: fits.is_none() && pages.len() > 1,
    }
}

struct Sum {
    number: u64,
    hash: u32,
    stored: u16,
}

/// One page in 65,535 fits a wrong number by chance, so a quarter of the pages
/// is far beyond chance, and still reached by a file that is mostly damaged.
fn most_fit(pages: &[Sum], first_page: u64) -> bool {
    let fits = pages
        .iter()
        .filter(|page| {
            u32::try_from(first_page + page.number)
                .is_ok_and(|block| checksum(page.hash, block) == page.stored)
        })
        .count();
    fits > 0 && fits * 4 >= pages.len()
}

pub(crate) fn vote_on_page_size(chunks: &[Vec<u8>]) -> Option<usize> {
    let votes = |size: usize| {
        chunks
            .iter()
            .flat_map(|bytes| bytes.chunks_exact(size))
            .filter_map(Header::read)
            .filter(|header| header.upper > 0 && header.fault(size, MAX_ALIGN).is_none())
            .count()
    };
    PAGE_SIZES
        .into_iter()
        .map(|size| (votes(size), size))
        .filter(|(votes, _)| *votes > 0)
        .max()
        .map(|(_, size)| size)
}

fn read_samples(path: &Path) -> std::io::Result<Vec<(u64, Vec<u8>)>> {
    let file = open_regular(path)?;
    let length = file.metadata()?.len();
    let largest_page = 32 << 10;
    let places = [0, length / 2, length.saturating_sub(SAMPLE_BYTES as u64)];
    let mut chunks: Vec<(u64, Vec<u8>)> = Vec::new();
    for place in places {
        let offset = place - place % largest_page;
        if chunks.iter().any(|(before, _)| offset < before + SAMPLE_BYTES as u64) {
            continue;
        }
        let mut bytes = vec![0_u8; SAMPLE_BYTES];
        let filled = read_fully(&file, &mut bytes, offset)?;
        bytes.truncate(filled);
        chunks.push((offset, bytes));
    }
    Ok(chunks)
}

/// Opens a file that lies alone.
pub(crate) fn open(path: &Path, metadata: &Metadata) -> Result<Target, Error> {
    let real = std::fs::canonicalize(path).map_err(|source| Error::io("open", path, source))?;
    open_regular(&real).map_err(|source| Error::io("open", path, source))?;
    let named = relation_file(path);
    if named.is_some_and(|file| file.is_incremental) {
        return Err(Error::unrecognised(
            path,
            "a file of an incremental backup that lies alone",
            "check the whole backup: its control file says how large pages are",
        ));
    }
    let seen = sample(&real, named.map_or(0, |file| file.segment));
    let page_size = seen.page_size.unwrap_or(8192);
    let checksums = if seen.checksums { Checksums::On } else { Checksums::Off };
    let format = Arc::new(PostgresPages {
        page_size,
        max_align: MAX_ALIGN,
        checksums,
        failure: Severity::Damage,
        recovery: None,
        log_end: None,
        is_logged: true,
    });
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let first_page = PageNo(seen.first_page);
    let mut steps = vec![Step::Note(Note {
        file: String::new(),
        text:
            "a relation file without its cluster: page size and checksums were taken from its pages"
                .to_owned(),
    })];
    if seen.strange_sums {
        steps.push(Step::Note(Note {
            file: String::new(),
            text: "pages hold checksum values that fit no segment number, so they were not tested: checksums may have been off, or the file may be encrypted".to_owned(),
        }));
    }
    let file = PageFile::of(name, real.clone(), metadata.len(), format);
    steps.push(Step::File(PageFile {
        first_page,
        relation: Some(Arc::new(Relation {
            page_size,
            segments: vec![Segment {
                path: real,
                first_page,
                pages: metadata.len() / page_size as u64,
            }],
        })),
        ..file
    }));
    Ok(Target {
        description: Description {
            part: None,
            path: path.to_owned(),
            format: FORMAT.name,
            engine: "PostgreSQL".to_owned(),
            page_size: u32::try_from(page_size).unwrap_or(0),
            setting: None,
            state: match checksums {
                Checksums::On => "a relation file, checksums found on its pages",
                _ => "a relation file, no checksums found on its pages",
            }
            .to_owned(),
            evidence: super::evidence_of(checksums),
            live: false,
            epoch: None,
        },
        steps: Box::new(steps.into_iter()),
        woken: None,
    })
}
