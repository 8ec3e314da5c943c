//! A seal of a pass that read everything in one run and found nothing wrong.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{BufWriter, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use pagewarden::database::Target;
use pagewarden::seal::{Header, Sealing};
use pagewarden::system::{DirBuilderExt as _, OpenOptionsExt as _};
use sha2::{Digest as _, Sha256};

use crate::ledger::uint;
use crate::listing::hex;

/// A seal that is being made, beside its place.
pub(super) struct Making {
    sealing: Sealing<BufWriter<File>>,
    temporary: PathBuf,
    place: PathBuf,
}

impl Making {
    /// Begins one at `place`; returns the target to verify instead.
    pub(super) fn begin(target: Target, place: &Path, now: i64) -> Result<(Target, Self)> {
        let shown = place.display();
        let begin = || -> std::io::Result<(File, PathBuf)> {
            if let Some(folder) = place.parent() {
                DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            }
            let temporary = place.with_extension("tmp");
            // The state is locked: what is there is of a run that was killed.
            let _ = fs::remove_file(&temporary);
            let file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
            Ok((file, temporary))
        };
        let (file, temporary) =
            begin().with_context(|| format!("cannot write the seal {shown}"))?;
        let description = &target.description;
        let header = Header {
            pagewarden: pagewarden::VERSION.to_owned(),
            format: description.format.to_owned(),
            engine: description.engine.clone(),
            page_size: description.page_size,
            epoch: description.epoch.clone(),
            made: uint(now),
        };
        let out = BufWriter::with_capacity(1 << 20, file);
        let (target, sealing) = Sealing::begin(target, &header, out)
            .with_context(|| format!("cannot write the seal {shown}"))?;
        Ok((target, Self { sealing, temporary, place: place.to_owned() }))
    }

    /// Puts it in its place, if the database is healthy; returns its SHA-256.
    pub(super) fn end(self, is_healthy: bool) -> Result<Option<String>> {
        if !is_healthy {
            let _ = fs::remove_file(&self.temporary);
            return Ok(None);
        }
        let end = || -> std::io::Result<String> {
            let file =
                self.sealing.finish()?.into_inner().map_err(std::io::IntoInnerError::into_error)?;
            file.sync_all()?;
            let mut hash = Sha256::new();
            let mut written = File::open(&self.temporary)?;
            let mut piece = vec![0; 1 << 20];
            loop {
                match written.read(&mut piece)? {
                    0 => break,
                    length => hash.update(piece.get(..length).unwrap_or_default()),
                }
            }
            fs::rename(&self.temporary, &self.place)?;
            Ok(format!("sha256:{}", hex(&hash.finalize())))
        };
        let shown = self.place.display().to_string();
        end().map(Some).with_context(|| format!("cannot write the seal {shown}"))
    }
}
