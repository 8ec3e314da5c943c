//! A row as it lies on a page ([`Tuple`]), and as the server would send it.
//!
//! Numbers lie in the order of the server's bytes, here little-endian, and are sent
//! big-endian. A value of any length is aligned only if its header takes four bytes: one
//! that begins with another byte than 0, which fills gaps, begins there.
//!
//! `numeric` begins with two bytes: with 0x8000 set a short form, sign 0x2000, scale 0x1F80,
//! weight 0x007F in two's complement; else sign 0xC000, scale 0x3FFF, and two bytes of weight.
//! 0xC000, 0xD000 and 0xF000 are NaN and infinity. Groups of four decimal digits follow.
//!
//! Sources: `src/include/access/tupmacs.h`, `src/backend/utils/adt/numeric.c`
//! and the `typsend` functions of PostgreSQL 14 to 18; all of it was compared with what servers
//! of 15 and 18 send.

use pagewarden::formats::postgres::files::catalogue::tuple::Tuple;

use super::varlena::{self, Found, Method};

/// How the values of a type lie, and how they are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Numbers of this number of bytes, sent the other way round.
    Number(usize),
    /// This number of bytes, sent as they are.
    Bytes(usize),
    /// A name: 64 bytes, of which those before the first 0 are sent.
    Name,
    /// Any length, sent as it is.
    Varlena,
    /// `numeric`.
    Numeric,
}

impl Kind {
    /// That of a type of PostgreSQL's own; none if its values are not sent as they lie.
    pub fn of(type_name: &str) -> Option<Self> {
        Some(match type_name {
            "bool" | "char" => Self::Bytes(1),
            "int2" => Self::Number(2),
            "int4" | "oid" | "float4" | "date" => Self::Number(4),
            "int8" | "float8" | "time" | "timestamp" | "timestamptz" => Self::Number(8),
            "uuid" => Self::Bytes(16),
            "name" => Self::Name,
            "text" | "varchar" | "bpchar" | "bytea" | "json" => Self::Varlena,
            "numeric" => Self::Numeric,
            _ => return None,
        })
    }

    fn width(self) -> Width {
        match self {
            Self::Number(bytes) | Self::Bytes(bytes) => Width::Fixed(bytes),
            Self::Name => Width::Fixed(64),
            Self::Varlena | Self::Numeric => Width::Varlena,
        }
    }
}

/// `pg_attribute.attlen`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// This number of bytes.
    Fixed(usize),
    /// -1.
    Varlena,
    /// -2: up to a byte of 0.
    CString,
}

impl Width {
    /// That of a catalogue's number.
    pub fn of(attlen: i16) -> Option<Self> {
        match attlen {
            -1 => Some(Self::Varlena),
            -2 => Some(Self::CString),
            bytes => usize::try_from(bytes).ok().filter(|bytes| *bytes > 0).map(Self::Fixed),
        }
    }
}

/// An attribute as it lies, one that was dropped too.
#[derive(Debug, Clone, Copy)]
pub struct Attribute {
    /// How long it is.
    pub width: Width,
    /// To which multiple of bytes it is aligned: 1, 2, 4 or 8.
    pub align: usize,
    /// True if rows that are shorter have a value for it nevertheless (`atthasmissing`).
    pub has_missing: bool,
}

/// What the rows of a table are made of, and which of it is wanted.
#[derive(Debug)]
pub struct Layout {
    /// Up to the last that is wanted.
    attributes: Vec<Attribute>,
    /// What is sent: places of attributes, and their kinds.
    wanted: Vec<(usize, Kind)>,
    /// Where the values of a row were found.
    found: Vec<Option<Found>>,
    /// What was compressed.
    expanded: Vec<u8>,
}

impl Layout {
    /// That of the attributes of a table, of which those at some places are wanted, in this
    /// order; none if what they are is not what their kinds say.
    pub fn new(mut attributes: Vec<Attribute>, wanted: Vec<(usize, Kind)>) -> Option<Self> {
        for (place, kind) in &wanted {
            if attributes.get(*place)?.width != kind.width() {
                return None;
            }
        }
        if attributes.iter().any(|attribute| !matches!(attribute.align, 1 | 2 | 4 | 8)) {
            return None;
        }
        let last = wanted.iter().map(|(place, _)| *place).max()?;
        attributes.truncate(last + 1);
        let found = vec![None; attributes.len()];
        Some(Self { attributes, wanted, found, expanded: Vec::new() })
    }

    /// Appends the row as `COPY ... (FORMAT binary)` sends it; none if only the server can.
    pub fn send(&mut self, tuple: &Tuple<'_>, out: &mut Vec<u8>) -> Option<()> {
        self.find(tuple)?;
        out.extend_from_slice(&i16::try_from(self.wanted.len()).ok()?.to_be_bytes());
        for (place, kind) in &self.wanted {
            match self.found.get(*place)? {
                None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
                Some(Found::Plain(range)) => {
                    put(*kind, tuple.data().get(range.clone())?, out)?;
                }
                Some(Found::Compressed { bytes, expanded, method }) => {
                    let bytes = tuple.data().get(bytes.clone())?;
                    put_expanded(*kind, bytes, *expanded, *method, &mut self.expanded, out)?;
                }
                Some(Found::Elsewhere) => return None,
            }
        }
        Some(())
    }

    fn find(&mut self, tuple: &Tuple<'_>) -> Option<()> {
        let data = tuple.data();
        let mut at = 0_usize;
        for (place, (attribute, found)) in (0..).zip(self.attributes.iter().zip(&mut self.found)) {
            *found = None;
            if place >= tuple.attributes() {
                if attribute.has_missing {
                    return None;
                }
                continue;
            }
            if tuple.is_null(place) {
                continue;
            }
            let aligned = at.checked_next_multiple_of(attribute.align)?;
            let (value, end) = match attribute.width {
                Width::Fixed(bytes) => {
                    let end = aligned.checked_add(bytes)?;
                    data.get(aligned..end)?;
                    (Found::Plain(aligned..end), end)
                }
                Width::Varlena => {
                    let is_gap = *data.get(at)? == 0;
                    varlena::find(data, if is_gap { aligned } else { at })?
                }
                Width::CString => {
                    let length = data.get(aligned..)?.iter().position(|byte| *byte == 0)?;
                    let end = aligned.checked_add(length)?;
                    (Found::Plain(aligned..end), end.checked_add(1)?)
                }
            };
            *found = Some(value);
            at = end;
        }
        Some(())
    }
}

fn put_expanded(
    kind: Kind,
    bytes: &[u8],
    expanded: usize,
    method: Method,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Option<()> {
    scratch.clear();
    varlena::expand(bytes, expanded, method, scratch)?;
    put(kind, scratch, out)
}

/// Appends a value and, before it, its length.
fn put(kind: Kind, value: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let length = |bytes: usize| i32::try_from(bytes).ok().map(i32::to_be_bytes);
    match kind {
        // Of one piece: these are most values of most tables.
        Kind::Number(_) => match *value {
            [a, b] => out.extend_from_slice(&[0, 0, 0, 2, b, a]),
            [a, b, c, d] => out.extend_from_slice(&[0, 0, 0, 4, d, c, b, a]),
            [a, b, c, d, e, f, g, h] => {
                out.extend_from_slice(&[0, 0, 0, 8, h, g, f, e, d, c, b, a]);
            }
            _ => return None,
        },
        Kind::Bytes(_) | Kind::Varlena => {
            out.extend_from_slice(&length(value.len())?);
            out.extend_from_slice(value);
        }
        Kind::Name => {
            let name = value.split(|byte| *byte == 0).next()?;
            out.extend_from_slice(&length(name.len())?);
            out.extend_from_slice(name);
        }
        Kind::Numeric => {
            let (head, rest) = value.split_first_chunk::<2>()?;
            let head = u16::from_le_bytes(*head);
            let (sign, scale, weight, groups) = match head & 0xC000 {
                0xC000 => (head & 0xF000, (head & 0x1F80) >> 7, 0, rest),
                0x8000 => {
                    let sign = (head & 0x2000) << 1;
                    // The sign of seven bits, in sixteen.
                    let weight = (head & 0x003F) | if head & 0x0040 == 0 { 0 } else { 0xFFC0 };
                    (sign, (head & 0x1F80) >> 7, weight, rest)
                }
                sign => {
                    let (weight, groups) = rest.split_first_chunk::<2>()?;
                    (sign, head & 0x3FFF, u16::from_le_bytes(*weight), groups)
                }
            };
            let groups = groups.as_chunks::<2>().0;
            let count = u16::try_from(groups.len()).ok()?;
            out.extend_from_slice(&length(8 + groups.len() * 2)?);
            for part in [count, weight, sign, scale] {
                out.extend_from_slice(&part.to_be_bytes());
            }
            for group in groups {
                out.extend(group.iter().rev());
            }
        }
    }
    Some(())
}
