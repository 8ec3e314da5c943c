//! A log that lies in several places: a folder, and the segments that backups brought along.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;

use crate::files::archived_log::store::{LogArchive, NoSegment, StoredSegment};

/// See the module. What an earlier place has is not asked of a later one.
pub(in crate::files) struct JoinedLog {
    places: Vec<Arc<dyn LogArchive>>,
    segments: Vec<StoredSegment>,
    /// The place of each segment, by its name, and whether it is whole.
    by_name: BTreeMap<String, (usize, bool)>,
}

impl JoinedLog {
    /// The log of one place.
    pub(in crate::files) fn of(first: Arc<dyn LogArchive>) -> Self {
        let mut joined =
            Self { places: Vec::new(), segments: Vec::new(), by_name: BTreeMap::new() };
        joined.add(first, |_| true);
        joined
    }

    /// True if there is a whole segment of this name.
    pub(in crate::files) fn has(&self, name: &str) -> bool {
        self.by_name.get(name).is_some_and(|(_, is_whole)| *is_whole)
    }

    /// Adds another place: the segments of it that are wanted and not here yet. Their names.
    pub(in crate::files) fn add(
        &mut self,
        place: Arc<dyn LogArchive>,
        wanted: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let mut added = Vec::new();
        for segment in place.segments().iter().filter(|segment| wanted(&segment.name)) {
            if !self.by_name.contains_key(&segment.name) {
                let found = (self.places.len(), !segment.is_partial);
                self.by_name.insert(segment.name.clone(), found);
                self.segments.push(segment.clone());
                added.push(segment.name.clone());
            }
        }
        self.places.push(place);
        added
    }
}

impl LogArchive for JoinedLog {
    fn segments(&self) -> &[StoredSegment] {
        &self.segments
    }

    /// Those of the first place.
    fn histories(&self) -> Vec<(u32, Result<String, String>)> {
        self.places.first().map(|place| place.histories()).unwrap_or_default()
    }

    fn open(&self, segment: &StoredSegment) -> Result<File, NoSegment> {
        let place = self.by_name.get(&segment.name).and_then(|(place, _)| self.places.get(*place));
        place.map_or_else(
            || Err(NoSegment::Unread(io::Error::from(io::ErrorKind::NotFound).to_string())),
            |place| place.open(segment),
        )
    }
}

/// Segments that were taken out of an archive.
pub(in crate::files) struct TakenOut {
    segments: Vec<StoredSegment>,
    files: BTreeMap<String, File>,
}

impl TakenOut {
    /// Segments by name, all of the same archive.
    pub(in crate::files) fn of(archive: &str, files: BTreeMap<String, File>) -> Self {
        let segments = files.keys().map(|name| StoredSegment {
            name: name.clone(),
            stored_file: format!("{archive}/{name}"),
            is_partial: false,
            stored_bytes: None,
        });
        Self { segments: segments.collect(), files }
    }
}

impl LogArchive for TakenOut {
    fn segments(&self) -> &[StoredSegment] {
        &self.segments
    }

    fn histories(&self) -> Vec<(u32, Result<String, String>)> {
        Vec::new()
    }

    fn open(&self, segment: &StoredSegment) -> Result<File, NoSegment> {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let file = self.files.get(&segment.name).ok_or_else(missing);
        file.and_then(File::try_clone).map_err(|error| NoSegment::Unread(error.to_string()))
    }
}
