//! The answers as an object.

use pagewarden::verdict::Protection;
use serde_json::{Value, json};

use super::Surveyed;
use super::advice::advice;

/// The object of a survey.
pub(super) fn object(surveyed: &Surveyed, seconds: f64) -> Value {
    let (description, summary) = (&surveyed.description, &surveyed.summary);
    let advice = advice(surveyed);
    let by_mode = summary.by_mode;
    let used = by_mode.checksum + by_mode.torn + by_mode.none;
    let share = (used > 0).then(|| (by_mode.checksum + by_mode.torn) as f64 / used as f64);
    let mut object = json!({
        "pagewarden": pagewarden::VERSION,
        "command": "survey",
        "verdict": surveyed.verdict.name(),
        "seconds": seconds,
        "path": surveyed.path.to_string_lossy(),
        "format": description.format,
        "engine": description.engine,
        "state": description.state,
        "live": description.live,
        "page_size": description.page_size,
        "files": summary.files,
        "bytes": summary.bytes,
        "setting": description.setting.map(Protection::name),
        "protection": by_mode.protection().unwrap_or("none"),
        "protected_share": share,
        "by_mode": by_mode,
        "strength": {
            "tested_by": description.evidence.tested_by,
            "unseen": description.evidence.unseen,
        },
        "pages": summary.pages,
        "severities": {
            "damage": summary.severities.damage,
            "suspect": summary.severities.suspect,
            "notice": summary.severities.notice,
        },
        "unread": summary.unread,
        "findings": surveyed.findings,
        "reading": {
            "bytes": summary.bytes,
            "seconds": summary.elapsed.as_secs_f64(),
            "mib_per_second": summary.mib_per_second(),
            "device_bytes": surveyed.device_bytes,
        },
        "price": { "known": surveyed.price.known, "command": surveyed.price.command },
        "recommended": { "command": advice.command, "why": advice.why },
        "stopped": summary.stopped,
    });
    if let (Some(traffic), Some(object)) = (surveyed.storage, object.as_object_mut()) {
        object.insert("storage".to_owned(), json!(traffic));
    }
    object
}
