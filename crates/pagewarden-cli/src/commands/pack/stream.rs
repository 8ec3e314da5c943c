//! `pack -`: a backup that comes as a stream, as one file of the very bytes that
//! came, verified on the way as `check -` does it.

use std::io::{self, Cursor, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, ensure};
use pagewarden::database::{self, OpenOptions};
use pagewarden::pack::{StreamPacking, train_on_begin};
use pagewarden::source::pipe::StandardInput;

use super::{Packed, Place, STANDARD_INPUT, check, is_sound_enough, kind, options, plain_settings};
use crate::args::pack::Pack;
use crate::progress::Show;

/// What the file is called if the pack's own name does not tell.
const NAME: &str = "stream";
/// What a dictionary is learnt from, held in memory until it is.
const LEARNT_BYTES: u64 = 64 << 20;
const ENDING: &str = ".pwk";

pub(super) fn make(
    arguments: &Pack,
    place: Place,
    stop: &Arc<AtomicBool>,
    show: &Show,
) -> Result<Packed> {
    ensure!(
        arguments.base.is_none() && arguments.tablespace.is_none(),
        "a stream is packed as a whole\nhint: --base and --tablespace want a path"
    );
    ensure!(
        !io::stdin().is_terminal(),
        "standard input is a terminal\nhint: pipe a backup into it, or name a path"
    );
    let options = options(arguments, stop);
    let (mut settings, wants_dictionary) = plain_settings(arguments, 0);
    let mut input = StandardInput::new(Arc::clone(stop));
    let mut begin = Vec::new();
    if wants_dictionary {
        // It is read but once: what it begins with must do.
        let read = input.by_ref().take(LEARNT_BYTES).read_to_end(&mut begin);
        // That we are to stop is told by whoever reads on.
        if !stop.load(Ordering::Relaxed) {
            read.context("cannot read standard input")?;
        }
        settings.dictionary = train_on_begin(&begin, settings.block_bytes);
    }
    let out = place.out()?;
    let cannot = || format!("cannot make {}", place.path.display());
    let (tee, packing) = StreamPacking::begin(
        Box::new(Cursor::new(begin).chain(input)),
        file_name(&place.path),
        settings,
        options.jobs,
        out,
        stop,
    )
    .with_context(cannot)?;
    let called = Path::new(STANDARD_INPUT);
    let target =
        database::open_stream(called, Box::new(tee), kind(arguments), &OpenOptions::default())?;
    let (verdict, mut summary, check) = check(arguments, target, &[], &options, show)?;
    if let Some(error) = packing.failure() {
        return Err(error).with_context(cannot);
    }
    let not_made = |summary| Packed {
        verdict,
        summary,
        check: check.clone(),
        base: None,
        made: None,
        prediction: serde_json::Value::Null,
    };
    let is_kept = is_sound_enough(verdict) || arguments.keep_damaged;
    if summary.stopped || !is_kept {
        return Ok(not_made(summary));
    }
    match packing.drain(stop, show) {
        Err(_) if stop.load(Ordering::Relaxed) => {
            if let Some(error) = packing.failure() {
                return Err(error).with_context(cannot);
            }
            summary.stopped = true;
            return Ok(not_made(summary));
        }
        drained => drained.context("cannot read standard input")?,
    }
    let (out, root, totals) = packing.finish(&check).with_context(cannot)?;
    drop(out);
    place.keep()?;
    Ok(Packed {
        verdict,
        summary,
        check,
        base: None,
        made: Some((root, totals)),
        prediction: serde_json::Value::Null,
    })
}

/// As the pack is called, without its ending.
fn file_name(pack: &Path) -> PathBuf {
    let name = pack.file_name().map(|name| name.to_string_lossy().into_owned());
    let stem = name.as_deref().and_then(|name| name.strip_suffix(ENDING)).unwrap_or_default();
    PathBuf::from(if stem.is_empty() || stem.starts_with('.') { NAME } else { stem })
}
