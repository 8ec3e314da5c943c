//! What a store says when it does not give something, in words that help, without secrets.

use std::error::Error as _;
use std::io;
use std::sync::{Mutex, PoisonError};

use object_store::Error;
use pagewarden::source::store::{NotRead, Trouble};

/// Parts of names of settings whose values are secret.
const SECRET: [&str; 6] = ["secret", "token", "password", "account_key", "access_key", "sas_"];
/// Shorter ones would blot out words.
const SECRET_BYTES_MIN: usize = 6;
/// Of what a server answers.
const ANSWER_CHARS_MAX: usize = 200;

/// Values that no message may hold.
#[derive(Debug, Default)]
pub(crate) struct Secrets {
    hidden: Mutex<Hidden>,
    trouble: Mutex<Option<Trouble>>,
}

#[derive(Default)]
struct Hidden(Vec<String>);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("...")
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    // A token's file is none, nor is the name of a key.
    let is_name = ["_path", "_file", "_id", "_uri"].iter().any(|ending| name.ends_with(ending));
    !is_name && SECRET.iter().any(|part| name.contains(part))
}

impl Secrets {
    /// What the clouds' variables hold.
    pub(crate) fn of_environment() -> Self {
        let secrets = Self::default();
        let variables = std::env::vars_os().filter(|(name, _)| {
            let name = name.to_string_lossy();
            is_secret(&name)
                && ["AWS", "AZURE", "GOOGLE", "GCP", "GCS"].iter().any(|it| name.starts_with(it))
        });
        for (_, value) in variables {
            secrets.add(&value.to_string_lossy());
        }
        secrets
    }

    /// One more.
    pub(crate) fn add(&self, value: &str) {
        let mut hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        if value.len() >= SECRET_BYTES_MIN {
            hidden.0.push(value.to_owned());
        }
    }

    fn without(&self, text: &str) -> String {
        let hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        hidden.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
    }

    /// An error that says nothing of the bytes; it is remembered as the last one.
    pub(crate) fn not_read(&self, words: &str) -> io::Error {
        let words = self.without(words);
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let times = trouble.as_ref().map_or(0, |trouble| trouble.times).saturating_add(1);
        *trouble = Some(Trouble { times, last: words.clone() });
        NotRead(words).into()
    }

    /// How many of them there were, and the last one.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What an error says, as one that says nothing of the bytes; only an object that is not there is
    /// [`io::ErrorKind::NotFound`].
    pub(crate) fn hide(&self, error: &Error) -> io::Error {
        let deepest = deepest(error);
        let code = element(&deepest, "Code");
        let words = match error {
            // The bucket is another matter than a file in it.
            Error::NotFound { .. } if code.as_deref() != Some("NoSuchBucket") => {
                return io::Error::new(io::ErrorKind::NotFound, NO_OBJECT);
            }
            // A list that finds none has no kind of its own.
            _ if code.as_deref() == Some("NoSuchBucket") => "there is no such bucket".to_owned(),
            Error::Precondition { .. } => REPLACED.to_owned(),
            // As such a list.
            _ if matches!(
                error,
                Error::PermissionDenied { .. } | Error::Unauthenticated { .. }
            ) || ["code: 401", "code: 403"].iter().any(|code| deepest.contains(code)) =>
            {
                format!(
                    "the store refused the request ({}): check that the credentials may list the \
                     bucket and read its objects",
                    self.answer(&deepest)
                )
            }
            _ if deepest.contains("without LOCATION") => {
                "the store sent the request elsewhere: the bucket is in another region; name it \
                 with --storage-option region=REGION"
                    .to_owned()
            }
            _ if deepest.contains("invalid peer certificate") => {
                format!("the server is not trusted ({deepest}): SSL_CERT_FILE names its authority")
            }
            _ if deepest.contains("non-partial response") => {
                "the server does not give parts of a file, which are needed".to_owned()
            }
            _ if deepest.starts_with("Requested ") => {
                format!("the server gave another part than the one asked for: {deepest}")
            }
            _ => format!("the request failed ({})", self.answer(&deepest)),
        };
        self.not_read(&words)
    }

    /// An answer in short: its status, and what it says in the elements for people.
    fn answer(&self, deepest: &str) -> String {
        let status = deepest
            .split_once("status code: ")
            .map(|(_, rest)| rest.split(':').next().unwrap_or_default().trim());
        let said = [element(deepest, "Code"), element(deepest, "Message")];
        let said: Vec<_> = said.into_iter().flatten().collect();
        let words = match (status, said.is_empty()) {
            (Some(status), true) => status.to_owned(),
            (Some(status), false) => format!("{status}: {}", said.join(": ")),
            (None, _) => without_queries(deepest),
        };
        let words: String = words.chars().take(ANSWER_CHARS_MAX).collect();
        self.without(&words)
    }
}

/// What is said of an object that is not there.
pub(crate) const NO_OBJECT: &str = "there is no such object";
/// What is said of an object that is no longer the one that was seen first.
pub(crate) const REPLACED: &str = "it was replaced or changed while the run read it: check again";

/// Refuses secrets on the command line.
///
/// # Errors
/// Which one is one, and what to do.
pub(crate) fn refuse_secrets(options: &[(String, String)]) -> Result<(), (String, String)> {
    match options.iter().find(|(key, _)| is_secret(key)) {
        None => Ok(()),
        Some((key, _)) => Err((
            format!("{key} is a secret, and other users of this machine can see a command line"),
            "set the cloud's own variable, as AWS_SECRET_ACCESS_KEY, or use its files".to_owned(),
        )),
    }
}

/// The words of the cause that has no other: what lies above it repeats the address.
fn deepest(error: &Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = error.to_string();
        cause = error.source();
    }
    words
}

/// The text of an XML element.
fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inner, _) = rest.split_once(&format!("</{name}>"))?;
    Some(inner.chars().filter(|letter| !letter.is_control()).take(ANSWER_CHARS_MAX).collect())
}

fn without_queries(text: &str) -> String {
    let words = text.split(' ').map(|word| match word.split_once('?') {
        Some((before, _)) if word.contains("://") => before,
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Said(&'static str);

    impl std::fmt::Display for Said {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }

    impl std::error::Error for Said {}

    fn failed(said: &'static str) -> Error {
        Error::Generic { store: "S3", source: Box::new(Said(said)) }
    }

    #[test]
    fn secrets_are_in_no_message() {
        let secrets = Secrets::default();
        secrets.add("canary-secret");
        let error = failed("error sending to https://host/x?sig=canary2: canary-secret");
        let words = secrets.hide(&error).to_string();
        assert!(!words.contains("canary"), "{words}");
        assert!(!format!("{secrets:?}").contains("canary"));
        let answer = "Server returned non-2xx status code: 400 Bad Request: \
             <Error><Code>Bad</Code><Message>no</Message><Key>canary3</Key></Error>";
        let words = secrets.hide(&failed(answer)).to_string();
        assert_eq!(words, "the request failed (400 Bad Request: Bad: no)");
        let option = ("secret_access_key".to_owned(), "canary".to_owned());
        let (reason, hint) = refuse_secrets(&[option]).unwrap_err();
        assert!(!format!("{reason}{hint}").contains("canary"));
    }

    #[test]
    fn only_an_object_that_is_not_there_is_not_found() {
        let secrets = Secrets::default();
        let not_found = |said| {
            let error = Error::NotFound { path: "x".to_owned(), source: Box::new(Said(said)) };
            secrets.hide(&error).kind()
        };
        assert_eq!(not_found("<Code>NoSuchKey</Code>"), io::ErrorKind::NotFound);
        assert_ne!(not_found("<Code>NoSuchBucket</Code>"), io::ErrorKind::NotFound);
    }
}
