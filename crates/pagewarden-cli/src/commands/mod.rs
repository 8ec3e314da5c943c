//! One file a command.

pub mod check;
pub mod checksum;
pub mod compare;
pub mod completions;
pub mod cost;
pub mod iotest;
pub mod man;
pub mod mount;
pub mod pack;
pub mod protect;
pub mod reading;
pub mod sealing;
pub mod storage;
pub mod survey;
pub mod unpack;
