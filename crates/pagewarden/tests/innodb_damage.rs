//! Eighteen kinds of damage to a copy of every healthy fixture. What theory
//! says must be seen is seen; what it says cannot be is asserted as unseen, so
//! that no blind spot is larger or smaller than documented.

use std::fs;
use std::path::Path;

use pagewarden::page::innodb::fields::{
    FSP_FLAGS, FSP_SIZE, KEY_VERSION, LSN, MARIADB_PAYLOAD_BYTES, MYSQL_STORED_BYTES, PAGE_NUMBER,
    PAGE_TYPE, SPACE_ID, TYPE_COMPRESSED, TYPE_COMPRESSED_MARK, TYPE_PAGE_COMPRESSED,
    TYPE_PAGE_COMPRESSED_ENCRYPTED, read_u16, read_u32,
};
use pagewarden::page::innodb::layout::{Form, Layout};
use pagewarden::verdict::{Kind, Severity};
use serde_json::Value;

use crate::innodb::{Report, check, manifest, root};

/// What protects a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// A sum at both ends: crc32 or innodb.
    Plain,
    /// The marks of algorithm none.
    Unprotected,
    /// Old layout or zip, encrypted by MariaDB: the sum of the encrypted page.
    Encrypted,
    /// Old layout, compressed: the page inside. Where the payload ends.
    Compressed(usize),
    /// MySQL's encryption, without the key.
    Locked,
    /// MariaDB's compression and encryption, without the key. Where the payload ends.
    LockedCompressed(usize),
    /// Old layout, compressed by lzo, which is not unpacked.
    Lzo,
    /// `full_crc32`.
    Full,
    /// `full_crc32`, encrypted.
    FullEncrypted,
    /// `full_crc32`, compressed. Where what is stored ends.
    FullCompressed(usize),
}

impl Class {
    fn of(layout: &Layout, page: &[u8]) -> Self {
        let page_type = read_u16(page, PAGE_TYPE);
        if layout.form == Form::FullCrc32 {
            let stored = usize::from(page_type & !TYPE_COMPRESSED_MARK) * 256;
            return if page_type & TYPE_COMPRESSED_MARK != 0 && layout.may_be_page_compressed {
                Self::FullCompressed(stored)
            } else if read_u32(page, 0) != 0 {
                Self::FullEncrypted
            } else {
                Self::Full
            };
        }
        let payload = |at| usize::from(read_u16(page, at));
        match page_type {
            15..=17 => Self::Locked,
            TYPE_COMPRESSED => Self::Compressed(38 + payload(MYSQL_STORED_BYTES)),
            TYPE_PAGE_COMPRESSED if page[33] == 3 => Self::Lzo,
            TYPE_PAGE_COMPRESSED => Self::Compressed(40 + payload(MARIADB_PAYLOAD_BYTES)),
            TYPE_PAGE_COMPRESSED_ENCRYPTED => {
                Self::LockedCompressed(42 + payload(MARIADB_PAYLOAD_BYTES))
            }
            _ if read_u32(page, 0) == 0xdead_beef => Self::Unprotected,
            _ if read_u32(page, KEY_VERSION) != 0 => Self::Encrypted,
            _ => Self::Plain,
        }
    }

    /// A change behind this byte is not seen.
    fn end(self, page_size: usize) -> usize {
        match self {
            Self::Compressed(end) | Self::LockedCompressed(end) | Self::FullCompressed(end) => end,
            _ => page_size,
        }
    }
}

/// What theory says of a damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Damage,
    Suspect,
    Nothing,
}

impl Seen {
    fn if_damage(is_seen: bool) -> Self {
        if is_seen { Self::Damage } else { Self::Nothing }
    }
}

/// A healthy file and the page that is to suffer.
struct Patient<'a> {
    name: &'a str,
    layout: Layout,
    bytes: Vec<u8>,
    victim: usize,
    class: Class,
}

impl Patient<'_> {
    fn size(&self) -> usize {
        self.layout.page_size
    }

    fn page(&mut self, number: usize) -> &mut [u8] {
        let size = self.size();
        &mut self.bytes[number * size..(number + 1) * size]
    }

    fn copy(&self) -> Self {
        Self { bytes: self.bytes.clone(), ..*self }
    }

    fn check(&self) -> Report {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(Path::new(self.name).file_name().unwrap());
        fs::write(&path, &self.bytes).unwrap();
        check(&path, None).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// Damages a copy and holds what is said against theory.
    fn suffers(&self, what: &str, damage: impl FnOnce(&mut Self), seen: Seen) -> Report {
        let mut copy = self.copy();
        damage(&mut copy);
        let report = copy.check();
        let victim = self.victim as u64;
        let (damaged, suspect) = (report.pages(Severity::Damage), report.pages(Severity::Suspect));
        let expected = match seen {
            Seen::Damage => (vec![victim], vec![]),
            Seen::Suspect => (vec![], vec![victim]),
            Seen::Nothing => (vec![], vec![]),
        };
        assert_eq!(
            (damaged, suspect),
            expected,
            "{} ({:?}): {what}: {report:?}",
            self.name,
            self.class
        );
        report
    }
}

fn patients(root: &Path, lines: &[Value], mut trial: impl FnMut(&Patient<'_>)) {
    let mut tried = 0;
    for line in lines {
        let name = line["file"].as_str().unwrap();
        let is_lone = line["expect"] == "no finding" && name.ends_with(".ibd");
        if !is_lone {
            continue;
        }
        let bytes = fs::read(root.join(name)).unwrap();
        let layout = Layout::of_flags(read_u32(&bytes, FSP_FLAGS)).unwrap();
        let pages = bytes.chunks_exact(layout.page_size);
        // Index pages that are full enough to differ from others in both halves.
        let used = pages.enumerate().skip(3).filter(|(_, page)| read_u32(page, PAGE_NUMBER) != 0);
        let fullest = used.max_by_key(|(_, page)| page.iter().filter(|byte| **byte != 0).count());
        let Some((victim, page)) = fullest else { continue };
        let class = Class::of(&layout, page);
        trial(&Patient { name, layout, bytes, victim, class });
        tried += 1;
    }
    assert!(tried > 60, "{tried} files");
}

fn flip(patient: &mut Patient<'_>, at: usize) {
    let victim = patient.victim;
    patient.page(victim)[at] ^= 4;
}

fn fill(patient: &mut Patient<'_>, range: std::ops::Range<usize>, byte: u8) {
    let victim = patient.victim;
    patient.page(victim)[range].fill(byte);
}

#[test]
fn damage_inside_a_page_is_seen_as_theory_says() {
    let Some(root) = root() else { return };
    let lines = manifest(&root);
    patients(&root, &lines, |patient| {
        let (class, zip) = (patient.class, patient.layout.form == Form::Zip);
        let size = patient.size();
        let locked = if zip { Seen::Nothing } else { Seen::Suspect };
        // 1: the body.
        let body = match class {
            Class::Unprotected | Class::Locked | Class::Lzo => Seen::Nothing,
            Class::LockedCompressed(_) => Seen::Suspect,
            _ => Seen::Damage,
        };
        let report = patient.suffers("bit of the body", |it| flip(it, 120), body);
        // Where the sum is a CRC of the page as it lies, the bit is named.
        let is_crc = !patient.name.contains("innodb") && !patient.name.contains("mysql5");
        let is_named =
            matches!(class, Class::Full | Class::FullEncrypted | Class::FullCompressed(_))
                || (is_crc && matches!(class, Class::Plain | Class::Encrypted));
        if is_named && !patient.name.starts_with("public/") {
            assert_eq!(report.findings[0].kind, Kind::BitFlip, "{}", patient.name);
            let detail = report.findings[0].detail.as_deref().unwrap();
            assert!(detail.contains("bit 2 of byte 120"), "{}: {detail}", patient.name);
        }
        // 2: the page number.
        let report = patient.suffers("page number", |it| flip(it, PAGE_NUMBER + 3), Seen::Damage);
        assert_ne!(report.findings[0].kind, Kind::Torn);
        // 3: the first field.
        let first = match class {
            Class::Encrypted | Class::Locked | Class::LockedCompressed(_) => Seen::Nothing,
            _ => Seen::Damage,
        };
        patient.suffers("first field", |it| flip(it, 1), first);
        // 4: the space id.
        patient.suffers("space id", |it| flip(it, SPACE_ID + 2), Seen::Damage);
        // 5: the last eight bytes.
        let end = match class {
            Class::Locked | Class::Lzo | Class::LockedCompressed(_) => Seen::Nothing,
            _ => Seen::if_damage(class.end(size) > size - 8),
        };
        patient.suffers("last eight bytes", |it| fill(it, size - 8..size, 0xa5), end);
        // 6: the page type, to one that the flags do not allow.
        if read_u16(&patient.bytes[patient.victim * size..], PAGE_TYPE) != TYPE_PAGE_COMPRESSED {
            let masquerade = |it: &mut Patient<'_>| {
                let victim = it.victim;
                it.page(victim)[PAGE_TYPE..PAGE_TYPE + 2]
                    .copy_from_slice(&TYPE_PAGE_COMPRESSED.to_be_bytes());
            };
            patient.suffers("page type", masquerade, Seen::Damage);
        }
        // 7: bytes that the sums of the old layouts do not cover.
        let uncovered = match class {
            Class::Plain | Class::Unprotected | Class::Locked => Seen::Nothing,
            Class::LockedCompressed(_) => locked,
            _ => Seen::Damage,
        };
        patient.suffers("bytes 26 to 33", |it| fill(it, 26..34, 0x5a), uncovered);
        // 8: the LSN.
        let lsn = match class {
            Class::Locked | Class::Lzo => Seen::Nothing,
            Class::LockedCompressed(_) => Seen::Suspect,
            _ => Seen::if_damage(!zip),
        };
        patient.suffers("LSN", |it| flip(it, LSN + 6), lsn);
        // 9: all of it.
        let noise = |it: &mut Patient<'_>| {
            let victim = it.victim;
            for (byte, at) in it.page(victim).iter_mut().zip(0_u32..) {
                *byte = (at.wrapping_mul(2_654_435_761) >> 13) as u8;
            }
        };
        patient.suffers("noise", noise, Seen::Damage);
    });
}

#[test]
fn torn_pages_are_seen_as_theory_says() {
    let Some(root) = root() else { return };
    let lines = manifest(&root);
    patients(&root, &lines, |patient| {
        let size = patient.size();
        let page = &patient.bytes[patient.victim * size..][..size];
        for (what, begin) in [("last sector zero", size - 512), ("second half zero", size / 2)] {
            let is_changed =
                page[begin..patient.class.end(size).max(begin)].iter().any(|it| *it != 0);
            let lsn_low = read_u32(page, LSN + 4);
            let seen = match patient.class {
                Class::Locked | Class::Lzo => Seen::Nothing,
                Class::LockedCompressed(_) if is_changed => Seen::Suspect,
                // The LSN in the trailer alone tells.
                Class::Unprotected => Seen::if_damage(lsn_low != 0),
                _ => Seen::if_damage(is_changed),
            };
            let report = patient.suffers(what, |it| fill(it, begin..size, 0), seen);
            if matches!(patient.class, Class::Plain | Class::Full | Class::Unprotected)
                && patient.layout.form != Form::Zip
            {
                assert_eq!(report.findings[0].kind, Kind::Torn, "{}: {report:?}", patient.name);
            }
        }
    });
}

#[test]
fn pages_at_other_places_are_misplaced() {
    let Some(root) = root() else { return };
    let lines = manifest(&root);
    patients(&root, &lines, |patient| {
        let size = patient.size();
        let other = (0..).find(|page| *page != patient.victim && *page > 0).unwrap();
        let replace = |it: &mut Patient<'_>| {
            let source = it.page(other).to_vec();
            let victim = it.victim;
            it.page(victim).copy_from_slice(&source);
        };
        let report = patient.suffers("another page of the file", replace, Seen::Damage);
        assert_eq!(report.findings[0].kind, Kind::Misplaced, "{}: {report:?}", patient.name);

        // The same page of another tablespace, of the same layout.
        let folder = Path::new(patient.name).parent().unwrap();
        let space = read_u32(&patient.bytes, SPACE_ID);
        for line in &lines {
            let name = line["file"].as_str().unwrap();
            if Path::new(name).parent() != Some(folder) || !name.ends_with(".ibd") {
                continue;
            }
            let foreign = fs::read(root.join(name)).unwrap();
            let layout = Layout::of_flags(read_u32(&foreign, FSP_FLAGS)).unwrap();
            let page = foreign.chunks_exact(layout.page_size).nth(patient.victim);
            let Some(page) = page.filter(|page| page.iter().any(|byte| *byte != 0)) else {
                continue;
            };
            let is_alike = (layout.form, layout.page_size) == (patient.layout.form, size)
                && layout.may_be_page_compressed == patient.layout.may_be_page_compressed
                && layout.may_be_encrypted == patient.layout.may_be_encrypted;
            if read_u32(&foreign, SPACE_ID) == space || !is_alike {
                continue;
            }
            // There the space id is encrypted or compressed, and nothing else tells.
            let is_hidden =
                matches!(Class::of(&layout, page), Class::FullEncrypted | Class::FullCompressed(_));
            let replace = |it: &mut Patient<'_>| {
                let victim = it.victim;
                it.page(victim).copy_from_slice(page);
            };
            patient.suffers(name, replace, Seen::if_damage(!is_hidden));
        }
    });
}

#[test]
fn zeroed_pages_in_use_are_seen_in_every_layout() {
    let Some(root) = root() else { return };
    let lines = manifest(&root);
    patients(&root, &lines, |patient| {
        let size = patient.size();
        let report = patient.suffers("zeroed", |it| fill(it, 0..size, 0), Seen::Damage);
        assert_eq!(report.findings[0].kind, Kind::Zeroed, "{}", patient.name);
        // Page 0 has the map; without it only page 0 itself is known to be in use.
        let mut both = patient.copy();
        both.victim = 0;
        fill(&mut both, 0..size, 0);
        let report = both.check();
        let zeroed = report.findings.iter().filter(|it| it.kind == Kind::Zeroed).count();
        assert_eq!(zeroed, 1, "{}: {report:?}", patient.name);
        assert_eq!(report.summary.pages.damaged, 1, "{}: {report:?}", patient.name);
    });
}

#[test]
fn cut_files_are_seen_where_the_header_counts_more_pages() {
    let Some(root) = root() else { return };
    let lines = manifest(&root);
    patients(&root, &lines, |patient| {
        let size = patient.size();
        let pages = patient.bytes.len() / size;
        let counted = read_u32(&patient.bytes, FSP_SIZE) as usize;
        for left in [pages - 1, pages.div_ceil(2)] {
            let mut cut = patient.copy();
            cut.bytes.truncate(left * size);
            let report = cut.check();
            let kinds: Vec<_> = report.findings.iter().map(|it| (it.severity, it.kind)).collect();
            // Files may be longer than their header says: allocated ahead.
            let expected: &[_] =
                if counted > left { &[(Severity::Damage, Kind::Truncated)] } else { &[] };
            assert_eq!(kinds, expected, "{} cut to {left} of {pages}", patient.name);
        }
        let mut cut = patient.copy();
        cut.bytes.truncate((pages - 1) * size + size / 3);
        let kinds = cut.check().kinds(pages as u64 - 1);
        assert_eq!(kinds, [(Severity::Damage, Kind::Truncated)], "{} cut", patient.name);
    });
}

#[test]
fn garbage_for_flags_condemns_page_0_only() {
    let Some(root) = root() else { return };
    let lines = manifest(&root);
    patients(&root, &lines, |patient| {
        let healthy = patient.check();
        for flags in [0xdead_be07_u32, 0xffff_ffff, 0x2f_0000] {
            let mut bad = patient.copy();
            bad.page(0)[FSP_FLAGS..FSP_FLAGS + 4].copy_from_slice(&flags.to_be_bytes());
            let report = bad.check();
            if patient.class == Class::Unprotected {
                // Nothing protects the flags; the layout is found all the same.
                assert_eq!(report.findings, [], "{}", patient.name);
                continue;
            }
            assert_eq!(report.pages(Severity::Damage), [0], "{}: {report:?}", patient.name);
            assert_eq!(report.summary.pages.ok + 1, healthy.summary.pages.ok, "{}", patient.name);
        }
    });
}
