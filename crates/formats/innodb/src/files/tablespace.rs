//! One file of an InnoDB tablespace: `.ibd`, `ibdata1`, `undo_001`, under any name, whole or its
//! first pages only.
//!
//! [`open_file`] looks at a file and gives all that is needed to check it. A caller that knows more
//! than the file says (a data directory, a backup) says so in a [`Context`]:
//!
//! | field | for whom |
//! |---|---|
//! | `name` | what the file is called in the report |
//! | `object`, `database` | the table, where it is known |
//! | `member` | a further file of a tablespace (`ibdata2`): layout, space id and number of its first page come from the files before it |
//! | `is_further` | it is no first file, whatever its first page says: that may be blank |
//! | `rest` | how many pages further files of the same tablespace have |
//! | `may_be_imported` | its pages may be on their way from another number to this one |
//! | `may_be_encrypted_since` | its pages may have been encrypted since its first page was written |
//! | `was_shut_down` | its server was shut down: what the system tablespace's map has in use was written, too |
//! | `severities` | what findings prove: see [`FileSeverities`] |
//! | `keyring` | the keys, read once by [`read_keyring`] |
//!
//! Pages are judged later, one by one. Before, this is read: the first pages for the layout
//! ([`geometry`]; a mebibyte if page 0 is damaged), the pages of extent descriptors for what is in use (one page in 16384 of 16K), and
//! page 5 of the system tablespace for where its doublewrite area lies. The segment of that area has
//! single pages, too, which are in use and were never written.

#![deny(clippy::arithmetic_side_effects)]

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::files::doublewrite::TRANSACTION_PAGE;
use crate::files::system::{
    Area, DICTIONARY_PAGE, Facts, fixed_pages, geometry_of_further, pages_of_doublewrite, sdi_root,
};
use crate::files::untested::Lock;
use crate::page::allocation::{AllocationMap, descriptor_pages, free_limit};
use crate::page::compression::Unpacked;
use crate::page::encryption::{Cipher, KeyInfo, Keyring, Opens};
use crate::page::fields::{
    FSP_FLAGS, FSP_SIZE, PAGE_NUMBER, PAGE_TYPE, SPACE_ID, TYPE_PAGE_COMPRESSED_ENCRYPTED,
    read_u16, read_u32,
};
use crate::page::layout::{Form, Layout, Writer};
use crate::page::{InnodbPages, Look, Severities, locked_sum_fits};
use pagewarden_core::database::{PageFile, Relation, Segment, Step};
use pagewarden_core::error::Error;
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, Note, PageNo, Severity, Standing};

pub mod geometry;

use geometry::{Geometry, HEAD_BYTES};

/// The number of the system tablespace.
pub const SYSTEM_SPACE: u32 = 0;
/// MariaDB's temporary tablespace, and MySQL's data dictionary (`mysql.ibd`).
const TEMPORARY_OR_DICTIONARY: u32 = 0xffff_fffe;
/// The flag of MySQL 8.0 and later that its dictionary has, and no file of MariaDB's.
const FLAG_SDI: u32 = 1 << 14;
const MEBIBYTE: u64 = 1 << 20;
/// Servers extend files by blocks of this, rounded down, and count pages all the same: of pages of
/// 1K up to three unused ones are not there (seen in tables of MariaDB 10.11 that were closed).
const BLOCK_BYTES: u64 = 4096;
/// A first page that was never written begins with this many zeros: the smallest page.
const BLANK_BYTES: usize = 1024;
const HINT: &str = "restore the file from a backup, or save what is readable with innodb_force_recovery \
                    and a dump";

/// What findings about a file prove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSeverities {
    /// About its pages.
    pub pages: Severities,
    /// It ends before its header says.
    pub truncated: Severity,
    /// It ends inside a page.
    pub partial_page: Severity,
}

impl FileSeverities {
    /// Of a file that a server closed in order.
    #[must_use]
    pub fn at_rest() -> Self {
        Self {
            pages: Severities::at_rest(),
            truncated: Severity::Damage,
            partial_page: Severity::Damage,
        }
    }

    /// Of a file that a server has open: what one page says of another may be out of date.
    #[must_use]
    pub fn live() -> Self {
        Self {
            pages: Severities { zeroed: Some(Severity::Suspect), ..Severities::at_rest() },
            truncated: Severity::Suspect,
            partial_page: Severity::Suspect,
        }
    }

    /// Of a file that no server will read again.
    #[must_use]
    pub fn worthless() -> Self {
        let failing = Severity::Notice;
        Self {
            pages: Severities { failing, zeroed: None, doublewrite: failing },
            truncated: failing,
            partial_page: failing,
        }
    }
}

/// What a further file of a tablespace takes from the files before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The tablespace's layout.
    pub layout: Layout,
    /// The tablespace's number.
    pub space_id: u32,
    /// The number of the file's first page.
    pub first_page: u64,
    /// The pages in use, as the first file's descriptors have it; `None` if that is not known.
    pub in_use: Option<Arc<AllocationMap>>,
}

/// How many pages of the tablespace lie in further files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// This number of pages.
    Pages(u64),
    /// Not known: the system tablespace may have some elsewhere.
    Unknown,
}

/// What is known of a file beside its bytes.
#[derive(Debug, Clone)]
pub struct Context {
    /// What the file is called in the report.
    pub name: String,
    /// Its database by name.
    pub database: Option<Arc<str>>,
    /// Its table by name.
    pub object: Option<Arc<str>>,
    /// Set where the file is not the first one of its tablespace.
    pub member: Option<Member>,
    /// It is a further file of a tablespace by its name: its first page may be blank.
    pub is_further: bool,
    /// Its tablespace's further files.
    pub rest: Rest,
    /// A server may be importing it just now, or was when it was killed.
    pub may_be_imported: bool,
    /// A server may be encrypting it just now, or was when it was killed: its first page may be
    /// behind its others.
    pub may_be_encrypted_since: bool,
    /// A server shut it down: of the system tablespace, too, a page in use was written.
    pub was_shut_down: bool,
    /// What findings prove.
    pub severities: FileSeverities,
    /// The keys.
    pub keyring: Option<Arc<Keyring>>,
}

impl Context {
    /// Of a file by itself, which a server closed in order.
    #[must_use]
    pub fn alone(name: String) -> Self {
        Self {
            name,
            database: None,
            object: None,
            member: None,
            is_further: false,
            rest: Rest::Unknown,
            may_be_imported: false,
            may_be_encrypted_since: false,
            was_shut_down: false,
            severities: FileSeverities::at_rest(),
            keyring: None,
        }
    }
}

/// A file that was looked at.
#[derive(Debug)]
pub struct Tablespace {
    /// How its pages lie, and whose they are.
    pub geometry: Geometry,
    /// What page 0 says of the whole tablespace; `None` where it is damaged, or elsewhere.
    pub header: Option<Header>,
    /// Bytes in the file.
    pub bytes: u64,
    /// The pages, for the engine.
    pub file: PageFile,
    /// Their format, which the file has too.
    pub pages: Arc<InnodbPages>,
    /// What was seen so far: findings and notes, to be reported before the pages.
    pub steps: Vec<Step>,
    /// Encrypted pages can be opened.
    pub has_key: bool,
    /// The tablespace's key information on page 0.
    pub is_encrypted: bool,
    /// The first page had never been written when it was looked at, as of a file being made.
    pub(crate) is_blank: bool,
    /// Why pages that need a key cannot be tested; `None` where none may need one.
    pub(crate) lock: Option<Lock>,
    /// The pages in use, as far as they were asked for.
    pub allocated: Arc<AllocationMap>,
}

/// Page 0 on the whole tablespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Pages in all files.
    pub pages: u64,
    /// The flags.
    pub flags: u32,
}

impl Tablespace {
    /// Whole pages in the file.
    #[must_use]
    pub fn pages(&self) -> u64 {
        whole_pages(self.bytes, &self.geometry.layout)
    }

    /// The server, as far as the file tells.
    #[must_use]
    pub fn engine(&self) -> &'static str {
        match self.geometry.layout.writer {
            Some(Writer::MariaDb) => "InnoDB (MariaDB)",
            Some(Writer::MySql8) => "InnoDB (MySQL 8.0 or later)",
            None => "InnoDB",
        }
    }
}

/// Reads a file of keys.
///
/// # Errors
/// It cannot be read, or holds no keys.
pub fn read_keyring(path: &Path) -> Result<Arc<Keyring>, Error> {
    /// A thousand keys are a tenth of this.
    const BYTES_MAX: usize = 1 << 20;
    let io_error = |source| Error::io("read", path, source);
    let file = File::open(path).map_err(io_error)?;
    let mut bytes = vec![0; BYTES_MAX];
    let length = read_fully(&file, &mut bytes, 0).map_err(io_error)?;
    Keyring::parse(bytes.get(..length).unwrap_or_default()).map(Arc::new).map_err(|reason| {
        let hint = "name the file of MySQL's component_keyring_file or of MariaDB's \
                    file_key_management";
        Error::unrecognised(path, reason, hint)
    })
}

/// What the layout is found from where nothing is wrong: one of the largest pages, and four of
/// 16K.
const FIRST_BYTES: usize = 64 << 10;
/// Pages that are looked at before they are judged.
const FIRST_PAGES: usize = 4;

/// The first bytes of a file, and the layout of its pages if they show it. Few where all is
/// well, since they are read twice.
///
/// # Errors
/// What the system says.
pub fn read_head(file: &File) -> io::Result<(Vec<u8>, Option<Geometry>)> {
    let head = read_first(file, FIRST_BYTES)?;
    let geometry = Geometry::find(&head);
    let Some(geometry) = geometry.filter(|geometry| geometry.first_is_sound) else {
        let head = read_first(file, HEAD_BYTES)?;
        let geometry = Geometry::find(&head);
        return Ok((head, geometry));
    };
    let wanted = geometry.layout.page_size.saturating_mul(FIRST_PAGES).max(FIRST_BYTES);
    let wanted = if geometry.has_strangers { HEAD_BYTES } else { wanted };
    if wanted == FIRST_BYTES {
        return Ok((head, Some(geometry)));
    }
    let head = read_first(file, wanted)?;
    let geometry = Geometry::find(&head);
    Ok((head, geometry))
}

fn read_first(file: &File, bytes: usize) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    let mut head = vec![0; usize::try_from(length).unwrap_or(usize::MAX).min(bytes)];
    let filled = read_fully(file, &mut head, 0)?;
    head.truncate(filled);
    Ok(head)
}

/// True if a file's name says that it is of a tablespace.
#[must_use]
pub fn is_tablespace_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let numbered = |prefix: &str| {
        lower
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    lower.ends_with(".ibd")
        || lower.ends_with(".ibu")
        || numbered("ibdata")
        || numbered("undo_")
        || numbered("undo")
}

/// True of the names that servers give to temporary tablespaces: `ibtmp1`, `temp_1.ibt`, and what
/// lies in `#innodb_temp`.
fn is_temporary_name(path: &Path) -> bool {
    let named =
        |name: Option<&std::ffi::OsStr>| name.and_then(|name| name.to_str()).map(str::to_owned);
    let name = named(path.file_name()).unwrap_or_default();
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.strip_prefix("ibtmp").is_some_and(digits)
        || name.strip_prefix("temp_").and_then(|rest| rest.strip_suffix(".ibt")).is_some_and(digits)
        || named(path.parent().and_then(Path::file_name))
            .is_some_and(|folder| folder == "#innodb_temp")
}

/// Looks at a file.
///
/// # Errors
/// It cannot be read, or is no tablespace; damage is no error.
pub fn open_file(path: &Path, context: Context) -> Result<Tablespace, Error> {
    let io_error = |source| Error::io("read", path, source);
    let file = open_regular(path).map_err(|source| Error::io("open", path, source))?;
    let bytes = file.metadata().map_err(io_error)?.len();
    let (head, found) = read_head(&file).map_err(io_error)?;
    let geometry = match &context.member {
        Some(member) => Geometry {
            space_id: Some(member.space_id),
            is_mixture: false,
            ..Geometry::of(&head, member.layout, member.first_page, false)
        },
        None => match found {
            Some(found) if !context.is_further || found.first_page > 0 => found,
            Some(_) | None if context.is_further => {
                let layout = Geometry::of_name_only().layout;
                geometry_of_further(&file, layout).map_err(io_error)?
            }
            found => found.map_or_else(|| by_name(path, &context.name), Ok)?,
        },
    };
    if geometry.is_mixture {
        return Err(Error::unrecognised(
            path,
            "pages of several tablespaces, as in a doublewrite file",
            "name the data directory that it belongs to",
        ));
    }
    Ok(Opened { path, file, bytes, head, geometry, context }.look())
}

/// A file of which no page tells the layout.
fn by_name(path: &Path, name: &str) -> Result<Geometry, Error> {
    let last = name.rsplit('/').next().unwrap_or(name);
    is_tablespace_name(last).then(Geometry::of_name_only).ok_or_else(|| {
        Error::unrecognised(
            path,
            "neither its header nor its pages are those of an InnoDB tablespace",
            "name a tablespace file (.ibd, ibdata1, undo_001) or a data directory",
        )
    })
}

/// A file whose layout is known.
struct Opened<'a> {
    path: &'a Path,
    file: File,
    bytes: u64,
    head: Vec<u8>,
    geometry: Geometry,
    context: Context,
}

impl Opened<'_> {
    fn look(self) -> Tablespace {
        let layout = self.geometry.layout;
        let mut format = InnodbPages::new(layout);
        format.space_id = self.geometry.space_id;
        let severities = self.severities();
        format.severities = severities.pages;
        format.may_be_encrypted_since = self.context.may_be_encrypted_since;
        let header = self.header();
        let mut steps = Vec::new();
        if let Some([from, to]) = self.import(&format) {
            format.import_space_id =
                [from, to].into_iter().find(|space| Some(*space) != format.space_id);
            steps.push(self.note(format!(
                "an import that is not done: its first pages are those of tablespace {to}, its last \
                 ones still those of {from}"
            )));
        }
        self.note_circumstances(header, &mut steps);
        let key_info = self.key_info();
        let is_blank = self.head.iter().take(BLANK_BYTES).all(|byte| *byte == 0);
        let mut problem = None;
        if let (Some(info), Some(keyring)) = (&key_info, &self.context.keyring) {
            match info.open(keyring).and_then(|cipher| self.proven(cipher)) {
                Ok(cipher) => format.cipher = cipher,
                Err(reason) => problem = Some(reason),
            }
            let is_mariadb = matches!(info, KeyInfo::MariaDb { .. });
            format.keys_do_not_open = is_mariadb && problem.is_some();
        }
        format.locked_pages_have_sums = self.locked_pages_have_sums();
        self.look_at_fixed_pages(&mut format, header, &mut steps);
        let allocated = self.allocation(&format, header);
        if allocated.is_cut() {
            let text = "larger than the map of pages in use that is kept: zeroed pages at its \
                        end are not told";
            steps.push(self.note(text.to_owned()));
        }
        let allocated = Arc::new(allocated);
        format.allocated = Arc::clone(&allocated);
        let missing = header
            .and_then(|header| self.missing_pages(header, &format.allocated, severities.truncated));
        steps.extend(missing);
        if self.bytes == 0 {
            steps.push(self.empty(severities.truncated));
        }
        let has_key = format.cipher.is_some();
        let is_marked = layout.may_be_encrypted || layout.may_be_page_compressed;
        let may_be_locked = is_marked || self.context.may_be_encrypted_since;
        let needs_key = may_be_locked && layout.form != Form::FullCrc32;
        let lock =
            (needs_key || format.keys_do_not_open).then(|| match is_marked || key_info.is_some() {
                true => Lock::of(key_info.as_ref(), has_key, problem.as_deref()),
                false => Lock::since_first_page(),
            });
        let format = Arc::new(format);
        let file = self.page_file(&format, severities.partial_page);
        Tablespace {
            geometry: self.geometry,
            header,
            bytes: self.bytes,
            file,
            pages: format,
            steps,
            has_key,
            is_encrypted: key_info.is_some(),
            is_blank,
            lock,
            allocated,
        }
    }

    fn note(&self, text: String) -> Step {
        Step::Note(Note { file: self.context.name.clone(), text })
    }

    fn empty(&self, severity: Severity) -> Step {
        let text = "the file is empty".to_owned();
        let finding = Finding::of_file(&self.context.name, severity, Kind::Truncated, text);
        Step::Finding(finding.with_hint(HINT))
    }

    /// The file as one to be read page by page.
    fn page_file(&self, format: &Arc<InnodbPages>, partial_page: Severity) -> PageFile {
        let layout = self.geometry.layout;
        let first_page = PageNo(self.geometry.first_page);
        let pages = whole_pages(self.bytes, &layout);
        let relation = Relation {
            page_size: layout.page_size,
            segments: vec![Segment { path: self.path.to_owned(), first_page, pages }],
        };
        let name = self.context.name.clone();
        PageFile {
            first_page,
            partial_page,
            relation: Some(Arc::new(relation)),
            hint: Some(HINT.into()),
            database: self.context.database.clone(),
            object: self.context.object.clone(),
            ..PageFile::of(name, self.path, self.bytes, Arc::clone(format) as _)
        }
    }

    /// A tablespace of which nothing outlives its server, by its name, or by a page 0 that passes its
    /// test: no page that fails may say that its failing matters little.
    fn is_temporary(&self) -> bool {
        if is_temporary_name(self.path) {
            return true;
        }
        let (first, layout) = (self.first(), &self.geometry.layout);
        let has_fitting_sum = self.geometry.first_page == 0
            && matches!(
                InnodbPages::new(*layout).look(0, first, None),
                Look::Sound(Standing::Ok, _)
            );
        let is_mariadb = || {
            read_u32(first, SPACE_ID) == TEMPORARY_OR_DICTIONARY
                && read_u32(first, FSP_FLAGS) & FLAG_SDI == 0
        };
        has_fitting_sum && (layout.is_temporary || is_mariadb())
    }

    fn severities(&self) -> FileSeverities {
        if self.is_temporary() {
            return FileSeverities::worthless();
        }
        let mut severities = self.context.severities;
        if self.geometry.space_id == Some(SYSTEM_SPACE) && !self.context.was_shut_down {
            severities.pages.zeroed = None;
        }
        severities
    }

    fn first(&self) -> &[u8] {
        self.head.get(..self.geometry.layout.page_size).unwrap_or_default()
    }

    fn header(&self) -> Option<Header> {
        let is_there = self.geometry.first_page == 0 && self.geometry.first_is_sound;
        is_there.then(|| Header {
            pages: u64::from(read_u32(self.first(), FSP_SIZE)),
            flags: read_u32(self.first(), FSP_FLAGS),
        })
    }

    fn note_circumstances(&self, header: Option<Header>, steps: &mut Vec<Step>) {
        let Geometry { layout, first_page, first_is_sound, by_vote, .. } = self.geometry;
        if self.context.member.is_none() && first_page > 0 {
            steps.push(self.note(format!(
                "its first page is number {first_page}: a further file of a tablespace whose first \
                 file was not named"
            )));
        } else if by_vote && self.context.member.is_none() && !first_is_sound {
            steps.push(self.note(format!(
                "page 0 fails, and its flags ({:#x}) are not those of the pages behind it, which \
                 are {} of {} bytes",
                read_u32(self.first(), FSP_FLAGS),
                layout.form.name(),
                layout.page_size
            )));
        }
        if self.is_temporary() && header.is_some() {
            steps.push(self.note("a temporary tablespace, made anew at every start".to_owned()));
        }
    }

    fn key_info(&self) -> Option<KeyInfo> {
        (self.geometry.first_page == 0)
            .then(|| KeyInfo::of_first_page(&self.geometry.layout, self.first()))
            .flatten()
    }

    /// The cipher, unless no page can be opened with it. MySQL's was proven by a sum already. `None` if
    /// the key is right, and the cipher is one that is not known here.
    fn proven(&self, cipher: Cipher) -> Result<Option<Cipher>, String> {
        if matches!(cipher, Cipher::MySql { .. }) {
            return Ok(Some(cipher));
        }
        let mut was_wrong = false;
        for page in self.locked_pages() {
            match cipher.decrypt_mariadb(page) {
                Some(Unpacked::Page(_)) => return Ok(Some(cipher)),
                Some(Unpacked::Broken(_)) => was_wrong = true,
                // By lzo: the key may be right.
                Some(Unpacked::Unsupported) | None => {}
            }
        }
        let pages = self.head.chunks_exact(self.geometry.layout.page_size.max(1));
        let space = self.geometry.space_id.unwrap_or_default();
        let opened = pages.map(|page| cipher.opens_index(self.geometry.layout.form, space, page));
        let opened: Vec<_> = opened.flatten().collect();
        let is_known = opened.is_empty() || opened.contains(&Opens::Chained);
        if was_wrong || (!is_known && !opened.contains(&Opens::Counted)) {
            return Err(
                "the key of the key file is another one, or its cipher is not AES_CBC".to_owned()
            );
        }
        Ok(is_known.then_some(cipher))
    }

    /// The first pages that MariaDB compressed and encrypted in the old layout.
    fn locked_pages(&self) -> impl Iterator<Item = &[u8]> {
        let pages = self.head.chunks_exact(self.geometry.layout.page_size.max(1));
        pages.filter(|page| read_u16(page, PAGE_TYPE) == TYPE_PAGE_COMPRESSED_ENCRYPTED)
    }

    /// Servers write a sum on such pages, and never read it. It is believed where nearly all of
    /// the first pages have one that fits.
    fn locked_pages_have_sums(&self) -> bool {
        const MOST: usize = 3;
        let fits = self.locked_pages().filter(|page| locked_sum_fits(page)).count();
        let misses = self.locked_pages().count().saturating_sub(fits);
        self.geometry.layout.form == Form::Old && fits > misses.saturating_mul(MOST)
    }

    /// A page, if it is there and passes its test.
    fn sound_page(&self, format: &InnodbPages, number: u64) -> Option<Vec<u8>> {
        let layout = &self.geometry.layout;
        let index = number.checked_sub(self.geometry.first_page)?;
        let mut page = vec![0; layout.page_size];
        let offset = index.checked_mul(page_bytes(layout))?;
        let count = read_fully(&self.file, &mut page, offset).ok()?;
        let look = format.look(number, &page, None);
        (count == page.len()
            && matches!(look, Look::Sound(Standing::Ok | Standing::Unprotected, _)))
        .then_some(page)
    }

    /// The numbers that the last and the first pages have, while they differ: ALTER TABLE ... IMPORT
    /// TABLESPACE gives the pages of a file its table's number, one after the other.
    fn import(&self, format: &InnodbPages) -> Option<[u32; 2]> {
        const PAGES_MAX: u64 = 1024;
        if !self.context.may_be_imported || self.geometry.first_page > 0 {
            return None;
        }
        let pages = whole_pages(self.bytes, &self.geometry.layout);
        let first = self.space_of_two(format, 0..pages.min(PAGES_MAX))?;
        let last = self.space_of_two(format, (pages.saturating_sub(PAGES_MAX)..pages).rev())?;
        (first != last).then_some([last, first])
    }

    /// The tablespace of the first two of these pages that tell theirs, if it is one.
    fn space_of_two(
        &self,
        format: &InnodbPages,
        numbers: impl Iterator<Item = u64>,
    ) -> Option<u32> {
        let layout = &self.geometry.layout;
        let mut page = vec![0; layout.page_size];
        let mut spaces = numbers.filter_map(|number| {
            let offset = number.checked_mul(page_bytes(layout))?;
            let count = read_fully(&self.file, &mut page, offset).ok()?;
            let is_its_own = u64::from(read_u32(&page, PAGE_NUMBER)) == number;
            format.clear_space_id(&page).filter(|_| is_its_own && count == layout.page_size)
        });
        let (first, second) = (spaces.next()?, spaces.next()?);
        (first == second).then_some(first)
    }

    /// What the first pages of the system tablespace say of others.
    fn look_at_fixed_pages(
        &self,
        format: &mut InnodbPages,
        header: Option<Header>,
        steps: &mut Vec<Step>,
    ) {
        if self.geometry.space_id != Some(SYSTEM_SPACE) || self.geometry.first_page != 0 {
            return;
        }
        let raw = self.head_page(TRANSACTION_PAGE);
        let transactions = self.sound_page(format, TRANSACTION_PAGE);
        let area = match &transactions {
            Some(page) => Area::find(page, true),
            None => raw.map_or(Area::None, |page| Area::find(&page, false)),
        };
        format.doublewrite = area.extents().map_or_else(Vec::new, |area| area.ranges().to_vec());
        if let Area::Perhaps(extents) = area {
            // What fails there may be a copy, or a page of a table.
            format.severities.doublewrite = format.severities.failing.min(Severity::Suspect);
            let [first, second] = extents.ranges();
            steps.push(self.note(format!(
                "page {TRANSACTION_PAGE} cannot say where the doublewrite area is: pages {} to {}, \
                 where servers put it, are tested by their sums only",
                first.start,
                second.end.saturating_sub(1)
            )));
        }
        let layout = &self.geometry.layout;
        let in_use = header.map(|_| {
            let end = u64::try_from(layout.page_size).unwrap_or(0);
            let mut map = AllocationMap::default();
            map.read(layout, 0, free_limit(self.first()), end, self.first());
            map
        });
        let dictionary = self.sound_page(format, DICTIONARY_PAGE);
        let facts = Facts {
            in_use: in_use.as_ref(),
            transactions: transactions.as_deref(),
            dictionary: dictionary.as_deref(),
            has_dictionary_elsewhere: layout.writer == Some(Writer::MySql8)
                || self.path.with_file_name("mysql.ibd").is_file(),
            sdi_root: header.and_then(|_| sdi_root(layout, self.first())),
        };
        format.never_zero = (fixed_pages(&facts), self.context.severities.pages.zeroed);
    }

    /// A page as it is, whole and sound or not.
    fn head_page(&self, number: u64) -> Option<Vec<u8>> {
        let mut page = vec![0; self.geometry.layout.page_size];
        let offset = number.checked_mul(page_bytes(&self.geometry.layout))?;
        let count = read_fully(&self.file, &mut page, offset).ok()?;
        (count == page.len()).then_some(page)
    }

    fn allocation(&self, format: &InnodbPages, header: Option<Header>) -> AllocationMap {
        let mut map = AllocationMap::default();
        if format.severities.zeroed.is_none() {
            return map;
        }
        let layout = self.geometry.layout;
        let first = self.geometry.first_page;
        if self.geometry.space_id == Some(SYSTEM_SPACE) {
            return self.allocation_of_system(format, header).unwrap_or_default();
        }
        let within_the_last_block = BLOCK_BYTES.checked_div(page_bytes(&layout)).unwrap_or(0);
        let end = first
            .saturating_add(whole_pages(self.bytes, &layout))
            .saturating_add(within_the_last_block);
        let limit = if header.is_some() { free_limit(self.first()) } else { u64::MAX };
        for number in descriptor_pages(&layout, first, end) {
            // Damaged descriptors prove nothing. Servers before 5.1 did not write their type.
            let page = self.sound_page(format, number).filter(|page| format.is_in_the_clear(page));
            if let Some(page) = page {
                map.read(&layout, number, limit, end, &page);
            }
        }
        map
    }

    /// The pages in use of the system tablespace, but those of its doublewrite area. Its further files
    /// are in the map of the first one.
    fn allocation_of_system(
        &self,
        format: &InnodbPages,
        header: Option<Header>,
    ) -> Option<AllocationMap> {
        let layout = self.geometry.layout;
        if let Some(member) = &self.context.member {
            return member.in_use.as_deref().cloned();
        }
        let pages = header?.pages;
        let own = whole_pages(self.bytes, &layout);
        let mut map = AllocationMap::default();
        for number in descriptor_pages(&layout, 0, own) {
            let page = self.sound_page(format, number).filter(|page| format.is_in_the_clear(page));
            if let Some(page) = page {
                map.read(&layout, number, free_limit(self.first()), pages, &page);
            }
        }
        let read =
            |number| self.sound_page(format, number).filter(|page| format.is_in_the_clear(page));
        pages_of_doublewrite(&layout, read)?.into_iter().for_each(|page| map.remove(page));
        Some(map)
    }

    /// The pages that page 0 counts and that are not there. One that is cut in the middle is
    /// reported with the pages.
    fn missing_pages(
        &self,
        header: Header,
        allocated: &AllocationMap,
        severity: Severity,
    ) -> Option<Step> {
        let page_size = page_bytes(&self.geometry.layout);
        let begun = self.bytes.div_ceil(page_size);
        let elsewhere = match self.context.rest {
            Rest::Pages(pages) => pages,
            Rest::Unknown => 0,
        };
        let missing =
            header.pages.checked_sub(begun.saturating_add(elsewhere)).filter(|it| *it > 0)?;
        let counted_bytes = header.pages.saturating_mul(page_size);
        let whole_blocks = counted_bytes.saturating_sub(counted_bytes % BLOCK_BYTES);
        let is_rounded_down = self.bytes >= whole_blocks
            && !(begun..header.pages).any(|page| allocated.contains(page));
        if is_rounded_down {
            return None;
        }
        let counted = format!("the header counts {} pages, here are {begun}", header.pages);
        let mut severity = severity;
        let may_have_more =
            self.context.rest == Rest::Unknown && self.geometry.space_id == Some(SYSTEM_SPACE);
        if may_have_more && self.has_sister() {
            return Some(self.note(format!("{counted}: the others are in further files")));
        }
        let mut detail = format!("{counted}: {missing} are missing");
        // Files of the system tablespace are whole mebibytes long.
        if may_have_more && self.bytes.is_multiple_of(MEBIBYTE) {
            severity = severity.min(Severity::Suspect);
            detail.push_str(", if they are not in further files elsewhere");
        }
        let context = &self.context;
        let finding = Finding::of_file(&context.name, severity, Kind::Truncated, detail)
            .at(Some(PageNo(begun)), begun.checked_mul(page_size).map(ByteOffset))
            .about(context.database.as_deref(), context.object.as_deref())
            .with_hint(HINT);
        Some(Step::Finding(finding))
    }

    /// `ibdata2` lies beside `ibdata1`.
    fn has_sister(&self) -> bool {
        let Some(name) = self.path.file_name().and_then(|name| name.to_str()) else { return false };
        let stem = name.trim_end_matches(|digit: char| digit.is_ascii_digit());
        let number = name.strip_prefix(stem).and_then(|digits| digits.parse::<u64>().ok());
        let next = number.and_then(|number| number.checked_add(1));
        next.is_some_and(|next| self.path.with_file_name(format!("{stem}{next}")).is_file())
    }
}

fn whole_pages(bytes: u64, layout: &Layout) -> u64 {
    bytes.checked_div(page_bytes(layout)).unwrap_or(0)
}

fn page_bytes(layout: &Layout) -> u64 {
    u64::try_from(layout.page_size).unwrap_or(u64::MAX).max(1)
}

/// A line on how the pages are protected.
#[must_use]
pub fn state_in_words(tablespace: &Tablespace) -> String {
    let Geometry { layout, space_id, .. } = &tablespace.geometry;
    let mut words = vec![layout.form.name().to_owned()];
    if layout.may_be_page_compressed && layout.writer.is_some() {
        words.push("page_compressed".to_owned());
    }
    if tablespace.is_encrypted {
        let key = if tablespace.has_key { "encrypted, with the key" } else { "encrypted" };
        words.push(key.to_owned());
    }
    if let Some(space) = space_id {
        words.push(format!("tablespace {space}"));
    }
    words.join(", ")
}

/// True if this form of page has a sum whatever the server is set to.
#[must_use]
pub fn always_has_sums(layout: &Layout) -> bool {
    layout.form == Form::FullCrc32
}
