//! `pagewarden evidence`: exports receipts, and verifies an export.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use pagewarden::words::{counted, printable};
use pagewarden_guard::evidence::{chain, signature};
use pagewarden_guard::ledger::Ledger;
use pagewarden_guard::moment;
use serde_json::json;

use crate::args::evidence::{Action, Evidence, Export, Verify};
use crate::args::scrub::Place;
use crate::commands::subjects::state_folder;
use crate::exit::{self, Exit};
use crate::replaced_file::{Content, ReplacedFile};

/// Runs the command.
pub fn run(arguments: &Evidence) -> anyhow::Result<Exit> {
    match &arguments.action {
        Action::Export(export) => {
            exit::or_json("evidence", arguments.json, || write(arguments, export))
        }
        Action::Verify(verify) => {
            exit::or_json("evidence", arguments.json, || prove(arguments, verify))
        }
    }
}

fn signature_of(file: &Path) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(".sig");
    name.into()
}

fn write(common: &Evidence, arguments: &Export) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let place = Place { config: common.config.clone(), state: common.state.clone() };
    let folder = state_folder(&place);
    let ledger = Ledger::read(&folder)?.with_context(|| {
        format!(
            "there is no ledger in {}\nhint: run pagewarden scrub, or name its folder with --state",
            folder.display()
        )
    })?;
    let export = chain::export(&ledger, arguments.since, arguments.until, moment::now())?;
    let file = ReplacedFile::prepare(&arguments.output, Content::Evidence, &[])?;
    let signed = arguments.sign.as_ref().map(|key| signature::sign(export.text.as_bytes(), key));
    let signature = match signed.transpose()? {
        Some(text) => {
            let place = signature_of(&arguments.output);
            Some((ReplacedFile::prepare(&place, Content::Signature, &[])?, text))
        }
        None => None,
    };
    file.replace(export.text.as_bytes())?;
    let is_signed = signature.is_some();
    if let Some((file, text)) = signature {
        file.replace(text.as_bytes())?;
    }
    let mut out = io::stdout().lock();
    if common.json {
        let object = json!({
            "pagewarden": pagewarden::VERSION,
            "command": "evidence",
            "verdict": "exported",
            "seconds": begin.elapsed().as_secs_f64(),
            "receipts": export.receipts,
            "file": arguments.output.to_string_lossy(),
            "signed": is_signed,
        });
        writeln!(out, "{object}")?;
    } else if !common.quiet {
        let signed = if is_signed { ", signed" } else { "" };
        writeln!(out, "{}{signed}", counted(export.receipts as u64, "receipt"))?;
    }
    Ok(Exit::Fine)
}

fn prove(common: &Evidence, arguments: &Verify) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let shown = arguments.file.display();
    let bytes = fs::read(&arguments.file).with_context(|| format!("cannot read {shown}"))?;
    let text = std::str::from_utf8(&bytes).with_context(|| format!("{shown} is no text"))?;
    let proved = chain::prove(text).with_context(|| format!("{shown} cannot be verified"))?;
    let mut faults = proved.faults;
    let place = signature_of(&arguments.file);
    let signer = match fs::read_to_string(&place) {
        Ok(signature) => match signature::verify(&bytes, &signature, arguments.key.as_deref()) {
            Ok(signer) => Some(signer),
            Err(error) => {
                faults.push(format!("{}: {error:#}", place.display()));
                None
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if arguments.key.is_some() {
                faults.push(format!("it is not signed: there is no {}", place.display()));
            }
            None
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", place.display()));
        }
    };
    let mut out = io::stdout().lock();
    if common.json {
        let object = json!({
            "pagewarden": pagewarden::VERSION,
            "command": "evidence",
            "verdict": if faults.is_empty() { "proved" } else { "altered" },
            "seconds": begin.elapsed().as_secs_f64(),
            "receipts": proved.receipts,
            "exported": proved.exported,
            "signed_by": signer,
            "faults": faults,
        });
        writeln!(out, "{object}")?;
    } else if !common.quiet || !faults.is_empty() {
        for fault in &faults {
            writeln!(out, "{}", printable(fault))?;
        }
        let signed = match &signer {
            Some(key) => format!("signed by {key}"),
            None if place.exists() => "its signature does not hold".to_owned(),
            None => "not signed: a user who can write the file can make all of it".to_owned(),
        };
        let receipts = counted(proved.receipts as u64, "receipt");
        match faults.len() as u64 {
            0 => writeln!(out, "{receipts} that fit together; {signed}")?,
            count => writeln!(out, "{receipts}, {}; {signed}", counted(count, "fault"))?,
        }
    }
    Ok(if faults.is_empty() { Exit::Fine } else { Exit::Wrong })
}
