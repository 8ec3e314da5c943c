//! `check --seal` and `check --against`.

use std::io::BufWriter;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use pagewarden::Error;
use pagewarden::database::Target;
use pagewarden::seal::{Against, Header, Sealed, Sealing};
use pagewarden::source::store::StorePath;
use pagewarden::verdict::Verdict;
use tempfile::NamedTempFile;

use crate::replaced_file::ReplacedFile;

/// A seal that is being made, beside its place.
pub struct SealFile {
    sealing: Sealing<BufWriter<NamedTempFile>>,
}

impl SealFile {
    /// Begins one; returns the target to verify instead.
    pub fn begin(target: Target, place: &ReplacedFile) -> Result<(Target, Self)> {
        let description = &target.description;
        let header = Header {
            pagewarden: pagewarden::VERSION.to_owned(),
            format: description.format.to_owned(),
            engine: description.engine.clone(),
            page_size: description.page_size,
            epoch: description.epoch.clone(),
            made: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        };
        let out = BufWriter::with_capacity(1 << 20, place.temporary()?);
        let (target, sealing) =
            Sealing::begin(target, &header, out).context("cannot write the seal")?;
        Ok((target, Self { sealing }))
    }

    /// Puts it in its place, if this was a healthy database.
    pub fn end(self, place: ReplacedFile, verdict: Verdict, stopped: bool) -> Result<()> {
        if stopped || !matches!(verdict, Verdict::Intact | Verdict::Unprotected) {
            bail!(
                "no seal was made: a seal says what a healthy database looks like\n\
                 hint: see what is reported above, and seal again when nothing is wrong"
            );
        }
        let out = self.sealing.finish().context("cannot write the seal")?;
        let file = out.into_inner().map_err(std::io::IntoInnerError::into_error);
        place.put(file.context("cannot write the seal")?)
    }
}

/// Holds a target against a seal.
pub fn hold_against(target: Target, seal: &StorePath) -> Result<Target, Error> {
    Against::hold(target, Sealed::open_in(seal)?)
}
