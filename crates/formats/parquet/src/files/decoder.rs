//! Values, by the decoder of the `parquet` crate: its pages are read, tested and expanded by the reader
//! that `check` has, so that what does not fit its CRC or its length is never decoded.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::{ColumnReader, get_column_reader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ParquetMetaDataReader;
use parquet::schema::types::SchemaDescPtr;

use super::content::{ContentFile, ContentPage, ContentPages, Obstacle};
use super::footer::Footer;
use super::header::{PageHeader, PageKind};
use pagewarden_core::source::store::StorePath;

thread_local! {
    /// This thread is in the decoder: what it panics on counts as damage, and is printed nowhere else.
    static IS_DECODING: Cell<bool> = const { Cell::new(false) };
}

/// Calls the decoder. An error of it is damage, as the page says nothing that a writer would write; so
/// is a panic, which ends here.
///
/// # Errors
/// What is wrong, for people.
pub fn guarded<T>(work: impl FnOnce() -> Result<T>) -> std::result::Result<T, String> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_DECODING.get() {
                others(panic);
            }
        }));
    });
    IS_DECODING.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_DECODING.set(false);
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(match error {
            ParquetError::General(why) => why,
            other => other.to_string(),
        }),
        Err(_) => Err("the decoder failed".to_owned()),
    }
}

/// Reads the schema of a footer as programs do that use the reader of Arrow for Rust. (Of the rest it
/// takes less than others do: a list that fastparquet wrote, which all others read.)
///
/// # Errors
/// What it has against the footer, for people.
pub(super) fn schema(bytes: &[u8], known: &Footer) -> std::result::Result<(), String> {
    // A key may be needed, or a signature follows.
    if known.has_encryption {
        return Ok(());
    }
    guarded(|| ParquetMetaDataReader::decode_schema(bytes).map(drop))
}

/// A file whose values are to be read.
#[derive(Debug)]
pub struct ValuesFile {
    /// Its pages.
    pub content: ContentFile,
    /// Its columns, as the decoder has them.
    pub schema: SchemaDescPtr,
}

impl ValuesFile {
    /// Opens it.
    ///
    /// # Errors
    /// Those of [`ContentFile::open`], or its schema cannot be read.
    pub fn open(place: &StorePath) -> std::result::Result<Self, Obstacle> {
        let mut content = ContentFile::open(place)?;
        let read = guarded(|| ParquetMetaDataReader::decode_schema(content.footer_bytes()));
        let schema =
            read.map_err(|why| Obstacle::Damaged(format!("its schema cannot be read: {why}")))?;
        // The two readers must mean the same columns.
        let leaves = &content.footer().leaves;
        let is_same = leaves.len() == schema.num_columns()
            && leaves
                .iter()
                .zip(schema.columns())
                .all(|(leaf, column)| *leaf.name == *column.path().string());
        if !is_same {
            return Err(Obstacle::Damaged("its schema can be read in two ways".to_owned()));
        }
        content.drop_footer_bytes();
        Ok(Self { content, schema })
    }

    /// The decoder of a column in a row group.
    ///
    /// # Errors
    /// Those of [`ContentFile::pages`], or it is no column that can be decoded.
    pub fn column(&self, group: usize, leaf: usize) -> std::result::Result<ColumnReader, Obstacle> {
        let pages = self.content.pages(group, leaf)?;
        let descriptor = self.schema.column(leaf);
        guarded(|| Ok(get_column_reader(descriptor, Box::new(Pages(pages)))))
            .map_err(Obstacle::Damaged)
    }
}

/// The pages of a column chunk.
struct Pages(ContentPages);

/// An obstacle on its way through the decoder.
fn passed_on(obstacle: Obstacle) -> ParquetError {
    ParquetError::General(match obstacle {
        Obstacle::Io(error) => error.to_string(),
        Obstacle::Damaged(why) | Obstacle::Unsupported(why) => why,
    })
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.0.next_page().map_err(passed_on)?;
        page.map(page_of).transpose()
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        let header = self.0.peek().map_err(passed_on)?;
        Ok(header.map(|header| PageMetadata {
            num_rows: header.rows.and_then(|rows| usize::try_from(rows).ok()),
            num_levels: usize::try_from(header.values).ok(),
            is_dict: header.kind == PageKind::Dictionary,
        }))
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.0.skip().map_err(passed_on)
    }
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

fn page_of(page: ContentPage) -> Result<Page> {
    let ContentPage { header, bytes } = page;
    let PageHeader { kind, values, rows, values_in, .. } = header;
    let buf = Bytes::from(bytes);
    let num_values = small(values)?;
    let encoding = encoding(values_in.encoding)?;
    Ok(match kind {
        PageKind::Dictionary => {
            Page::DictionaryPage { buf, num_values, encoding, is_sorted: false }
        }
        PageKind::Data | PageKind::Index => Page::DataPage {
            buf,
            num_values,
            encoding,
            def_level_encoding: self::encoding(values_in.definition_encoding)?,
            rep_level_encoding: self::encoding(values_in.repetition_encoding)?,
            statistics: None,
        },
        PageKind::DataV2 => Page::DataPageV2 {
            buf,
            num_values,
            encoding,
            num_nulls: small(values_in.nulls)?,
            num_rows: small(rows.unwrap_or(values))?,
            def_levels_byte_len: small(values_in.definition_bytes)?,
            rep_levels_byte_len: small(values_in.repetition_bytes)?,
            is_compressed: false,
            statistics: None,
        },
    })
}

fn small(number: u64) -> Result<u32> {
    u32::try_from(number).map_err(|_| ParquetError::General("a number beyond 32 bits".to_owned()))
}

/// An encoding by its number in `parquet.thrift`.
fn encoding(number: i32) -> Result<Encoding> {
    Ok(match number {
        0 => Encoding::PLAIN,
        2 => Encoding::PLAIN_DICTIONARY,
        3 => Encoding::RLE,
        #[allow(deprecated, reason = "old files have it")]
        4 => Encoding::BIT_PACKED,
        5 => Encoding::DELTA_BINARY_PACKED,
        6 => Encoding::DELTA_LENGTH_BYTE_ARRAY,
        7 => Encoding::DELTA_BYTE_ARRAY,
        8 => Encoding::RLE_DICTIONARY,
        9 => Encoding::BYTE_STREAM_SPLIT,
        other => {
            return Err(ParquetError::General(format!("encoding {other} is not known here")));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::panic, reason = "as the decoder would")]
    fn panic_of_the_decoder_is_an_error() {
        let failed: std::result::Result<(), String> =
            guarded(|| panic!("a page that no writer writes"));
        assert_eq!(failed, Err("the decoder failed".to_owned()));
        assert!(!IS_DECODING.get());
        assert_eq!(guarded(|| Ok(1)), Ok(1));
    }
}
