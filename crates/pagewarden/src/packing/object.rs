//! What came out, as JSON: `docs/packs-json.md`.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Failure, Packed, Result};
use crate::pack::{Coding, Forecast, Method, PackedTablespace};
use crate::report::Traffic;

impl Packed {
    /// The object of `pagewarden pack --json`; `traffic` is what was asked of stores, if any were.
    ///
    /// # Errors
    /// The report of the check is none, which is a fault of this program.
    pub fn object(
        &self,
        output: &Path,
        elapsed: Duration,
        traffic: Option<Traffic>,
    ) -> Result<Value> {
        let check: Value = serde_json::from_slice(&self.check).map_err(no_report)?;
        let mut object = json!({
            "pagewarden": crate::VERSION,
            "command": "pack",
            "verdict": self.verdict.name(),
            "output": output,
            "packed": null,
            "prediction": self.forecast.as_ref().map(forecast_object),
            "check": check,
            "seconds": elapsed.as_secs_f64(),
        });
        let Some(fields) = object.as_object_mut() else { return Ok(object) };
        if let Some((root, totals)) = self.made {
            let packed = json!({
                "root": root.to_string(),
                "base": self.base.map(|base| base.to_string()),
                "files": totals.files,
                "bytes": totals.bytes,
                "stored_bytes": totals.stored_bytes,
                "blocks": {
                    "compressed": totals.compressed_blocks,
                    "raw": totals.raw_blocks,
                    "zero": totals.zero_blocks,
                    "base": totals.base_blocks,
                },
            });
            fields.insert("packed".to_owned(), packed);
        }
        if let Some(traffic) = traffic {
            fields.insert("storage".to_owned(), json!(traffic));
        }
        Ok(object)
    }
}

fn no_report(error: serde_json::Error) -> Failure {
    Failure::Report(error.into())
}

/// The report of the check, with what was packed.
pub(super) fn with_tablespace(check: &[u8], tablespace: &PackedTablespace) -> Result<Vec<u8>> {
    let mut report: serde_json::Map<String, Value> =
        serde_json::from_slice(check).map_err(no_report)?;
    let tablespace = serde_json::to_value(tablespace).map_err(no_report)?;
    report.insert("tablespace".to_owned(), tablespace);
    serde_json::to_vec(&report).map_err(no_report)
}

/// How fast a pack could be read.
#[must_use]
pub fn forecast_object(forecast: &Forecast) -> Value {
    let coding = |coding: &Coding| {
        json!({
            "codec": codec(coding.method),
            "ratio": coding.ratio,
            "decode_bytes_per_second": coding.decode_bytes_per_second,
            "cold_scan": forecast.cold_scan(coding),
        })
    };
    json!({
        "cores": forecast.cores,
        "read_bytes_per_second": forecast.read_bytes_per_second,
        "chosen": coding(&forecast.chosen),
        "other": coding(&forecast.other),
    })
}

/// As `--codec` names it.
#[must_use]
pub fn codec(method: Method) -> &'static str {
    match method {
        Method::Raw => "raw",
        Method::Lz4 => "lz4",
        Method::Zstd(_) => "zstd",
    }
}
