//! One object, written from its beginning to its end.
//!
//! It is sent in parts, some at a time, and is seen in its bucket once all of them are there: what fails
//! or is stopped before leaves no object, and its parts are removed. An object that fits into one part
//! is one request, which the store refuses if there is such an object.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use object_store::path::Path as Key;
use object_store::{
    Error, GetOptions, MultipartUpload, ObjectStore, PutMode, PutMultipartOptions, PutOptions,
    PutPayload,
};
use tokio::task::JoinHandle;

use crate::object::Access;

/// A part has at least 5 MiB, but for the last.
const PART_BYTES_MIN: u64 = 8 << 20;
/// S3 takes 10,000.
const PARTS_MAX: u64 = 9_900;
/// Parts in flight: memory is these and the one that is being filled.
const IN_FLIGHT_MAX: usize = 3;
/// Where the length is not known, parts become twice as long after this number of them.
const PARTS_OF_A_LENGTH: u64 = 2_000;
/// How long a waiting thread does not look whether to stop.
const PATIENCE: Duration = Duration::from_millis(100);
const EXISTS: &str = "it exists, and is not overwritten";

/// See the module. Dropping it before [`Upload::finish`] removes what was sent.
#[derive(Debug)]
pub struct Upload {
    access: Access,
    key: Key,
    shown: PathBuf,
    /// The most that is to come, where that is known.
    expected: Option<u64>,
    part: Vec<u8>,
    parts: u64,
    bytes: u64,
    sent: Option<Sent>,
    /// Where it is noted that parts could not be removed.
    left_behind: Arc<std::sync::Mutex<Option<String>>>,
}

/// Parts that were sent.
#[derive(Debug)]
struct Sent {
    upload: Box<dyn MultipartUpload>,
    in_flight: usize,
    tasks: Vec<JoinHandle<()>>,
    sender: Sender<Result<(), Error>>,
    receiver: Receiver<Result<(), Error>>,
}

impl Upload {
    pub(crate) fn new(
        access: Access,
        key: Key,
        shown: PathBuf,
        expected: Option<u64>,
        left_behind: Arc<std::sync::Mutex<Option<String>>>,
    ) -> Self {
        let (part, parts, bytes, sent) = (Vec::new(), 0, 0, None);
        Self { access, key, shown, expected, part, parts, bytes, sent, left_behind }
    }

    /// Makes sure that there is no such object.
    ///
    /// # Errors
    /// There is one, or the store did not say.
    pub fn refuse_existing(&self) -> io::Result<()> {
        match self.length_there()? {
            None => Ok(()),
            Some(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, EXISTS)),
        }
    }

    /// The length of the object that is there.
    fn length_there(&self) -> io::Result<Option<u64>> {
        let Access { store, secrets, .. } = self.access.clone();
        let key = self.key.clone();
        let looked = self.wait(async move {
            let options = GetOptions { head: true, ..GetOptions::default() };
            let result = store.get_opts(&key, options).await;
            result.map(|it| it.meta.size).map_err(|error| secrets.hide(&error))
        });
        match looked {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let stop = self.access.pieces.stop();
        self.access.io.wait(stop, work).unwrap_or_else(|| Err(stopped()))
    }

    fn part_bytes(&self) -> usize {
        let bytes = match self.expected {
            Some(bytes) => PART_BYTES_MIN.max(bytes.div_ceil(PARTS_MAX)),
            None => PART_BYTES_MIN << (self.parts / PARTS_OF_A_LENGTH).min(8),
        };
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Sends what was gathered as one part.
    fn send(&mut self) -> io::Result<()> {
        if self.parts >= PARTS_MAX {
            return Err(io::Error::other("it is larger than one object can be"));
        }
        if self.sent.is_none() {
            let Access { store, secrets, .. } = self.access.clone();
            let key = self.key.clone();
            let upload = self.wait(async move {
                let options = PutMultipartOptions::default();
                let upload = store.put_multipart_opts(&key, options).await;
                upload.map_err(|error| secrets.hide(&error))
            })?;
            self.sent = Some(Sent::of(upload));
        }
        self.settle(IN_FLIGHT_MAX.saturating_sub(1))?;
        let Some(sent) = &mut self.sent else { return Ok(()) };
        let part = sent.upload.put_part(PutPayload::from(std::mem::take(&mut self.part)));
        let sender = sent.sender.clone();
        sent.in_flight = sent.in_flight.saturating_add(1);
        self.parts = self.parts.saturating_add(1);
        sent.tasks.retain(|task| !task.is_finished());
        sent.tasks.push(self.access.io.spawn(async move {
            // No one waits for it once another part has failed.
            let _ = sender.send(part.await);
        }));
        Ok(())
    }

    /// Waits until no more parts than these are in flight.
    fn settle(&mut self, most: usize) -> io::Result<()> {
        let stop = self.access.pieces.stop();
        let Some(sent) = &mut self.sent else { return Ok(()) };
        while sent.in_flight > most {
            match sent.receiver.recv_timeout(PATIENCE) {
                Ok(done) => {
                    sent.in_flight = sent.in_flight.saturating_sub(1);
                    done.map_err(|error| self.access.secrets.hide(&error))?;
                }
                Err(_) if stop.load(Ordering::Relaxed) => return Err(stopped()),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Ends the object, and makes sure that the store has all of it. Only then is it there.
    ///
    /// # Errors
    /// It was not sent, or there is one of this name by now. What was sent is removed.
    pub fn finish(mut self) -> io::Result<()> {
        if self.access.pieces.stop().load(Ordering::Relaxed) {
            return Err(stopped());
        }
        if self.sent.is_none() {
            return self.put();
        }
        if !self.part.is_empty() {
            self.send()?;
        }
        self.settle(0)?;
        // No store lets an object of parts depend on that there is none: it is asked as late as can be.
        self.refuse_existing()?;
        let Some(Sent { mut upload, .. }) = self.sent.take() else { return Ok(()) };
        let secrets = Arc::clone(&self.access.secrets);
        // Not to be stopped half way: whether it is there then would not be known.
        let done = self.access.io.wait(&AtomicBool::new(false), async move {
            let done = upload.complete().await.map_err(|error| secrets.hide(&error));
            (upload, done.map(drop))
        });
        let Some((upload, done)) = done else { return Err(stopped()) };
        let there = self.length_there();
        if let Ok(Some(length)) = there
            && length == self.bytes
        {
            // Also where the answer was lost, and the object was made.
            return Ok(());
        }
        self.sent = Some(Sent::of(upload));
        done?;
        Err(match there {
            Err(error) => error,
            Ok(length) => {
                let (sent, length) = (self.bytes, length.unwrap_or_default());
                let words = format!("{sent} bytes were sent, and the store has {length}");
                self.access.secrets.not_read(&words)
            }
        })
    }

    /// All of it in one request.
    fn put(&mut self) -> io::Result<()> {
        let Access { store, secrets, .. } = self.access.clone();
        let (key, part) = (self.key.clone(), std::mem::take(&mut self.part));
        self.wait(async move {
            let payload = PutPayload::from(part);
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            let Err(error) = store.put_opts(&key, payload.clone(), options).await else {
                return Ok(());
            };
            // It was made, and the answer was lost: when asked again, the store says that there is one.
            if is_there(store.as_ref(), &key, &payload).await {
                return Ok(());
            }
            Err(match error {
                Error::AlreadyExists { .. } => io::Error::new(io::ErrorKind::AlreadyExists, EXISTS),
                error => secrets.hide(&error),
            })
        })
    }
}

/// True if the store has an object of these very bytes.
async fn is_there(store: &dyn ObjectStore, key: &Key, wanted: &PutPayload) -> bool {
    match store.get_opts(key, GetOptions::default()).await {
        Ok(there) if there.meta.size == wanted.content_length() as u64 => {
            there.bytes().await.is_ok_and(|bytes| bytes.iter().eq(wanted.iter().flatten()))
        }
        _ => false,
    }
}

impl Sent {
    fn of(upload: Box<dyn MultipartUpload>) -> Self {
        let (sender, receiver) = mpsc::channel();
        Self { upload, in_flight: 0, tasks: Vec::new(), sender, receiver }
    }
}

fn stopped() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the run was stopped")
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.part_bytes().saturating_sub(self.part.len());
        let taken = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        self.part.extend_from_slice(taken);
        self.bytes = self.bytes.saturating_add(taken.len() as u64);
        if self.part.len() >= self.part_bytes() {
            // An error of this kind would be tried again.
            self.send().map_err(|error| match error.kind() {
                io::ErrorKind::Interrupted => io::Error::other(error),
                _ => error,
            })?;
        }
        Ok(taken.len())
    }

    /// Nothing: a part is sent when it is full.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(Sent { mut upload, tasks, .. }) = self.sent.take() else { return };
        // A server may say nothing: parts under way are not waited for.
        tasks.iter().for_each(JoinHandle::abort);
        let secrets = Arc::clone(&self.access.secrets);
        let removed = self.access.io.wait(&AtomicBool::new(false), async move {
            upload.abort().await.map_err(|error| secrets.hide(&error))
        });
        let error = match removed {
            Some(Ok(())) => return,
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => return,
            Some(Err(error)) => error.to_string(),
            None => "the thread for requests has ended".to_owned(),
        };
        let words = format!(
            "the parts of {} that were sent could not be removed: {error}",
            self.shown.display()
        );
        *self.left_behind.lock().unwrap_or_else(PoisonError::into_inner) = Some(words);
    }
}
