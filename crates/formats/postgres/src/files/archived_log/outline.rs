//! What the names of the segments of a log tell, without reading them: which are missing between others,
//! and how far each set could be brought if all that is here is sound.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::files::archived_log::reach::{reaches, stretch_of};
use crate::files::archived_log::read::Stretch;
use crate::files::archived_log::store::{LogArchive, Shelf};
use crate::files::archived_log::{ASKED, ArchivedLog, SEGMENT_BYTES};
use crate::files::wal::segment::{LONG_HEADER_BYTES, PageHeader, SegmentName};
use pagewarden_core::database::repository::{Backup, LogGap, LogOutline, Lsn, Outline, Restorable};
use pagewarden_core::source::file::read_fully;

/// The outlines of logs, made when they are asked for.
pub(in crate::files) fn of(logs: &[ArchivedLog]) -> Outline {
    let logs: Vec<_> = logs
        .iter()
        .map(|log| {
            let archive = Arc::clone(&log.archive);
            (log.name.clone(), archive, log.sets.clone(), log.waits_for_log)
        })
        .collect();
    Arc::new(move || {
        let outlines = logs.iter().map(|(name, archive, sets, waits_for_log)| LogOutline {
            waits_for_log: *waits_for_log,
            ..outline(name, archive, sets)
        });
        outlines.collect()
    })
}

fn outline(name: &str, archive: &Arc<dyn LogArchive>, sets: &[Arc<Backup>]) -> LogOutline {
    let segments = archive.segments();
    let bytes = segments.iter().filter_map(|it| it.stored_bytes);
    let mut outline = LogOutline {
        name: name.to_owned(),
        segments: segments.len() as u64,
        stored_bytes: bytes.fold(0, u64::saturating_add),
        ..LogOutline::default()
    };
    let Some(segment_bytes) = segment_bytes(archive) else {
        if !segments.is_empty() {
            let why = "no segment of it says how long segments are";
            outline.unknown = Some(why.to_owned());
        }
        outline.lacking = sets.iter().filter(|_| segments.is_empty()).map(label).collect();
        return outline;
    };
    let shelf = Shelf::new(Arc::clone(archive), segment_bytes);
    let bytes = u64::from(segment_bytes);
    let mut stretches: Vec<Stretch> = Vec::new();
    for (name, stored) in shelf.segments() {
        let end = if stored.is_partial { name.begin } else { name.begin.saturating_add(bytes) };
        match stretches.last_mut().filter(|last| last.timeline == name.timeline) {
            Some(last) if last.end == name.begin => last.end = end,
            before => {
                outline.gaps.extend(before.map(|last| gap(last.end, *name, segment_bytes)));
                let (timeline, begin) = (name.timeline, name.begin);
                stretches.push(Stretch { timeline, begin, end, commits: Vec::new() });
            }
        }
    }
    let file_name = |name: &SegmentName| name.file_name(segment_bytes);
    outline.first = shelf.segments().keys().next().map(file_name);
    outline.last = shelf.segments().keys().next_back().map(file_name);
    for set in sets {
        let Some(need) = super::need_of(set, &BTreeMap::new()) else {
            outline.undetermined.push(set.label.clone());
            continue;
        };
        let Some(own) = stretch_of(&need, &stretches) else {
            outline.lacking.push(set.label.clone());
            continue;
        };
        let ways = reaches(&need, own, &stretches, shelf.histories(), bytes);
        outline.restorable.extend(ways.into_iter().map(|way| Restorable {
            set: set.label.clone(),
            timeline: way.timeline,
            from_lsn: Lsn(need.to),
            to_lsn: Lsn(way.to),
            from_time: set.stopped.clone(),
            to_time: None,
        }));
    }
    outline
}

fn label(set: &Arc<Backup>) -> String {
    set.label.clone()
}

/// From `begin` to before `after` there is nothing.
fn gap(begin: u64, after: SegmentName, segment_bytes: u32) -> LogGap {
    let name = |begin| SegmentName { timeline: after.timeline, begin }.file_name(segment_bytes);
    let last = after.begin.saturating_sub(u64::from(segment_bytes));
    LogGap { timeline: after.timeline, first: name(begin), last: name(last) }
}

/// How long segments are, by the first that says so: the only one that is opened.
fn segment_bytes(archive: &Arc<dyn LogArchive>) -> Option<u32> {
    archive.segments().iter().take(ASKED).find_map(|segment| {
        let file = archive.open(segment).ok()?;
        let mut bytes = [0_u8; LONG_HEADER_BYTES];
        read_fully(&file, &mut bytes, 0).ok()?;
        let identity = PageHeader::read(&bytes)?.identity?;
        let bytes = identity.segment_bytes;
        (bytes.is_power_of_two() && SEGMENT_BYTES.contains(&bytes)).then_some(bytes)
    })
}
