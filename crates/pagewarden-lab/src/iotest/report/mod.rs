//! A session as a table and as JSON.

pub mod text;

use serde_json::{Value, json};

use crate::iotest::diagnosis::{Reading, limits, not_run, sentences};
use crate::iotest::judge::Judgement;
use crate::iotest::session::Session;

/// What a report says beside a session.
#[derive(Debug, Clone, Default)]
pub struct Beside {
    /// Real backups, judged.
    pub judged: Vec<Judgement>,
    /// The reading of a real database, with its path.
    pub against: Option<(String, Reading)>,
}

/// The object of a run, whole. Of a run that only judged messages there is no
/// session.
#[must_use]
pub fn json(session: Option<&Session>, beside: &Beside, seconds: f64) -> Value {
    let stopped = session.is_some_and(|session| session.stopped);
    let mut object = json!({
        "pagewarden": pagewarden::VERSION,
        "command": "iotest",
        "verdict": if stopped { "incomplete" } else { "measured" },
        "seconds": seconds,
    });
    let Some(fields) = object.as_object_mut() else { return object };
    if let Some(session) = session {
        if let Ok(Value::Object(more)) = serde_json::to_value(session) {
            fields.extend(more);
        }
        fields.insert("sentences".to_owned(), json!(sentences(session)));
        fields.insert("not_run".to_owned(), json!(not_run(session)));
    }
    if !beside.judged.is_empty() {
        fields.insert("judged".to_owned(), json!(beside.judged));
    }
    if let Some((path, reading)) = &beside.against {
        let said = session.map(|session| limits(reading, session)).unwrap_or_default();
        fields.insert(
            "against".to_owned(),
            json!({ "path": path, "reading": reading, "sentences": said }),
        );
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_has_what_every_object_has() {
        let session = Session { stopped: true, ..Session::default() };
        let object = json(Some(&session), &Beside::default(), 1.5);
        for name in ["pagewarden", "command", "verdict", "seconds", "patterns", "doubts", "not_run"]
        {
            assert!(object.get(name).is_some(), "{name}");
        }
        assert_eq!(object["verdict"], "incomplete");
        assert_eq!(object["not_run"].as_array().unwrap().len(), 7);
        assert_eq!(json(None, &Beside::default(), 0.0)["verdict"], "measured");
    }
}
