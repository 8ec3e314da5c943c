//! One file a command.

pub mod check;
pub mod checksum;
pub mod compare;
pub mod completions;
pub mod cost;
pub mod evidence;
pub mod iotest;
mod live_files;
pub mod man;
pub mod markdown;
pub mod merge;
pub mod mount;
pub mod notifications;
pub mod pack;
pub mod plan;
pub mod protect;
pub mod reading;
pub mod repair;
mod restored;
pub mod scrub;
pub mod sealing;
pub mod serve;
pub mod status;
pub mod storage;
pub mod subjects;
pub mod survey;
pub mod unpack;
