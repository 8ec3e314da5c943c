//! Pages for the decoder of the `parquet` crate: read, tested and expanded by the reader that `check`
//! has, so that what does not fit its CRC or its length is never decoded.

use bytes::Bytes;
use pagewarden_format_parquet::files::content::{ContentPage, ContentPages, Obstacle};
use pagewarden_format_parquet::files::header::{PageHeader, PageKind};
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};

/// The pages of a column chunk.
pub(super) struct Pages(pub ContentPages);

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
