//! The cost laboratory: experiments, their design, their samples and what
//! comes out of them.

pub mod analyse;
pub mod cold;
pub mod compare;
pub mod csv;
pub mod decision;
pub mod design;
pub mod experiment;
pub mod experiments;
pub mod faults;
#[cfg(test)]
mod fixtures;
pub mod machine;
pub mod noise;
pub mod own_program;
pub mod postgres;
pub mod program;
pub mod protection;
pub mod read_only;
pub mod reading;
pub mod record;
pub mod report;
pub mod result;
pub mod run;
pub mod samples;
pub mod sentence;
pub mod server_cpu;
pub mod sqlite;
pub mod stores;
pub mod subjects;
pub mod whole;
