//! What people and programs see of an analysis: text for a terminal, JSON, and
//! a page that needs nothing else.

pub mod html;
pub mod json;
pub mod text;
pub mod words;
