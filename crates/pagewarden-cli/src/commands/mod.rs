//! One file a command.

pub mod check;
pub mod completions;
pub mod cost;
pub mod iotest;
pub mod man;
pub mod mount;
pub mod pack;
pub mod protect;
pub mod sealing;
pub mod survey;
pub mod unpack;
