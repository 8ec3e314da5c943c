//! `pack -`: a backup that comes as a stream, as one file of the very bytes that
//! came, verified on the way as `check -` does it.

use std::io::{self, Cursor, IsTerminal as _, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{
    Failure, Packed, Place, Request, Result, STANDARD_INPUT, Watch, check, is_sound_enough,
    plain_settings,
};
use crate::database::{self, OpenOptions};
use crate::pack::{StreamPacking, train_on_begin};
use crate::source::pipe::StandardInput;
use crate::source::store::StorePath;

/// What the file is called if the pack's own name does not tell.
const NAME: &str = "stream";
/// What a dictionary is learnt from, held in memory until it is.
const LEARNT_BYTES: u64 = 64 << 20;
const ENDING: &str = ".pwk";

/// Where a backup comes from.
pub(super) struct Input {
    source: Box<dyn Read + Send>,
    /// What the source is called.
    called: PathBuf,
    /// What the file is called, if the source has a name.
    name: Option<PathBuf>,
}

impl Input {
    /// What is piped into the program.
    pub(super) fn standard(stop: &Arc<AtomicBool>) -> Result<Self> {
        if io::stdin().is_terminal() {
            let text = "standard input is a terminal\nhint: pipe a backup into it, or name a path";
            return Err(Failure::refused(Path::new(STANDARD_INPUT), text));
        }
        let source = Box::new(StandardInput::new(Arc::clone(stop)));
        Ok(Self { source, called: STANDARD_INPUT.into(), name: None })
    }

    /// A file of a store.
    pub(super) fn stored(place: &StorePath) -> Result<Self> {
        let called = place.path().to_owned();
        let file = place.open().map_err(Failure::io("open", &called))?;
        let name = place.name().map(PathBuf::from);
        Ok(Self { source: Box::new(file), called, name })
    }

    fn shown(&self) -> &Path {
        match self.called == Path::new(STANDARD_INPUT) {
            true => Path::new("standard input"),
            false => &self.called,
        }
    }
}

pub(super) fn make(
    request: &Request,
    mut input: Input,
    place: Place<'_>,
    stop: &Arc<AtomicBool>,
    watch: &dyn Watch,
) -> Result<Packed> {
    let shown = input.shown().to_owned();
    if request.base.is_some() || request.tablespace.is_some() {
        let text = "a stream is packed as a whole\nhint: --base and --tablespace want a path";
        return Err(Failure::refused(&shown, text));
    }
    let options = request.options(stop);
    let (mut settings, wants_dictionary) = plain_settings(request, 0);
    let mut begin = Vec::new();
    if wants_dictionary {
        // It is read but once: what it begins with must do.
        let read = input.source.by_ref().take(LEARNT_BYTES).read_to_end(&mut begin);
        // A wish to stop is reported by the code that reads on.
        if !stop.load(Ordering::Relaxed) {
            read.map_err(Failure::io("read", &shown))?;
        }
        settings.dictionary = train_on_begin(&begin, settings.block_bytes);
    }
    let out = place.out(None)?;
    let cannot = || Failure::io("make", &place.path);
    let name = input.name.clone().unwrap_or_else(|| file_name(&place.path));
    let source = Box::new(Cursor::new(begin).chain(input.source));
    let (tee, packing) =
        StreamPacking::begin(source, name, settings, options.jobs, out, stop).map_err(cannot())?;
    let opened = database::open_stream(
        &input.called,
        Box::new(tee),
        request.format,
        &OpenOptions::default(),
    );
    let checked = opened.map_err(Failure::from).and_then(|target| {
        let (verdict, mut summary, report) = check(target, &[], &options, watch)?;
        if let Some(error) = packing.failure() {
            return Err(cannot()(error));
        }
        let is_kept = is_sound_enough(verdict) || request.keep_damaged;
        if is_kept && !summary.stopped {
            match packing.drain(stop, watch) {
                Err(_) if stop.load(Ordering::Relaxed) => match packing.failure() {
                    Some(error) => return Err(cannot()(error)),
                    None => summary.stopped = true,
                },
                drained => drained.map_err(Failure::io("read", &shown))?,
            }
        }
        let is_made = is_kept && !summary.stopped;
        let (base, made, forecast) = (None, None, None);
        Ok((is_made, Packed { verdict, summary, check: report, base, made, forecast }))
    });
    match checked {
        Ok((true, mut packed)) => {
            let (out, root, totals) = packing.finish(&packed.check).map_err(cannot())?;
            place.keep(out)?;
            packed.made = Some((root, totals));
            Ok(packed)
        }
        Ok((false, packed)) => {
            packing.give_up();
            Ok(packed)
        }
        Err(error) => {
            packing.give_up();
            Err(error)
        }
    }
}

/// As the pack is called, without its ending.
fn file_name(pack: &Path) -> PathBuf {
    let name = pack.file_name().map(|name| name.to_string_lossy().into_owned());
    let stem = name.as_deref().and_then(|name| name.strip_suffix(ENDING)).unwrap_or_default();
    PathBuf::from(if stem.is_empty() || stem.starts_with('.') { NAME } else { stem })
}
