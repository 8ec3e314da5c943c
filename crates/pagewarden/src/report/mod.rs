//! How results are written down. A report sees neither files nor formats.

pub mod json;
pub mod text;
