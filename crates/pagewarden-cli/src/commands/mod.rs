//! One file a command.

pub mod check;
pub mod checksum;
pub mod compare;
pub mod completions;
#[cfg(unix)]
pub mod cost;
#[cfg(not(unix))]
pub mod elsewhere;
pub mod evidence;
#[cfg(unix)]
pub mod iotest;
mod live_files;
pub mod man;
pub mod markdown;
pub mod merge;
#[cfg(unix)]
pub mod mount;
pub mod notifications;
#[cfg(unix)]
pub mod pack;
pub mod plan;
#[cfg(unix)]
pub mod protect;
pub mod reading;
#[cfg(unix)]
pub mod repair;
#[cfg(unix)]
mod restored;
pub mod scrub;
pub mod sealing;
#[cfg(unix)]
pub mod serve;
pub mod status;
pub mod storage;
pub mod subjects;
pub mod survey;
pub mod unpack;
