//! Addresses: `s3://BUCKET/PREFIX`, `gs://`, `az://`, `https://HOST/PATH`.

use std::path::{Path, PathBuf};

/// The clouds by the scheme of their addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    S3,
    Google,
    Azure,
    Https,
    Http,
}

const SCHEMES: [(&str, Scheme); 5] = [
    ("s3://", Scheme::S3),
    ("gs://", Scheme::Google),
    ("az://", Scheme::Azure),
    ("https://", Scheme::Https),
    ("http://", Scheme::Http),
];

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) scheme: Scheme,
    /// The bucket, container or host.
    pub(crate) bucket: String,
    root: String,
    path: PathBuf,
}

/// True if a text begins with a scheme that is known.
pub(crate) fn has_scheme(text: &str) -> bool {
    SCHEMES.iter().any(|(scheme, _)| text.starts_with(scheme))
}

/// An address as it may be shown: without what follows a question mark, which may let its reader in.
pub(crate) fn without_query(address: &Path) -> PathBuf {
    let text = address.to_string_lossy();
    let shown = text.split(['?', '#']).next().unwrap_or_default();
    let shown = match shown.split_once("://") {
        Some((scheme, rest)) => {
            let host = rest.split('/').next().unwrap_or_default();
            let user = host.rfind('@').map_or(0, |at| at.saturating_add(1));
            format!("{scheme}://{}", rest.get(user..).unwrap_or_default())
        }
        None => shown.to_owned(),
    };
    PathBuf::from(shown)
}

impl Address {
    /// Takes an address apart.
    ///
    /// # Errors
    /// Why it is none, and what to do.
    pub(crate) fn parse(address: &Path) -> Result<Self, (String, String)> {
        let hint = "an address is s3://BUCKET/PREFIX, gs://, az:// or https://HOST/PATH";
        let fault = |reason: &str| (reason.to_owned(), hint.to_owned());
        let text = address.to_str().ok_or_else(|| fault("an address that is no text"))?;
        let known = SCHEMES.iter().find(|(scheme, _)| text.starts_with(scheme));
        let (prefix, scheme) = known.ok_or_else(|| fault("an address of no kind that is known"))?;
        let rest = text.strip_prefix(prefix).unwrap_or_default();
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let is_web = matches!(scheme, Scheme::Https | Scheme::Http);
        if bucket.contains('@') {
            let hint = "other users of this machine can see a command line: use the cloud's \
                        variables or files";
            return Err(("an address with a user or password in it".to_owned(), hint.to_owned()));
        }
        if is_web && rest.contains(['?', '#']) {
            let hint = "name the object by s3://, gs:// or az://, or pipe it: curl ... | pagewarden \
                        check -";
            return Err((
                "an address with a query, as signed ones have".to_owned(),
                hint.to_owned(),
            ));
        }
        if bucket.is_empty() || key.split('/').any(|part| matches!(part, "." | "..")) {
            return Err(fault("an address without a bucket, or with `.` or `..` in it"));
        }
        let root = format!("{prefix}{bucket}");
        let key = key.trim_matches('/');
        let path = if key.is_empty() { root.clone() } else { format!("{root}/{key}") };
        Ok(Self { scheme: *scheme, bucket: bucket.to_owned(), path: path.into(), root })
    }

    /// The bucket's address.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// The whole address.
    pub(crate) fn path(&self) -> PathBuf {
        self.path.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let address = Address::parse(Path::new("s3://bucket/a/b c+%20/")).unwrap();
        assert_eq!((address.scheme, address.bucket.as_str()), (Scheme::S3, "bucket"));
        assert_eq!(address.path(), Path::new("s3://bucket/a/b c+%20"));
        let root = Address::parse(Path::new("gs://bucket")).unwrap();
        assert_eq!((root.root(), root.path()), ("gs://bucket", PathBuf::from("gs://bucket")));
        for wrong in ["s3://", "s3:///x", "s3://b/../x", "ftp://b/x", "az://k:s@b/x"] {
            assert!(Address::parse(Path::new(wrong)).is_err(), "{wrong}");
        }
        assert!(Address::parse(Path::new("s3://b/what?x")).is_ok(), "a key may have one");
    }

    #[test]
    fn what_lets_its_reader_in_is_not_shown() {
        let signed = Path::new("https://user:canary@host/x?X-Amz-Signature=canary#canary");
        assert_eq!(without_query(signed), Path::new("https://host/x"));
        let (reason, hint) = Address::parse(signed).unwrap_err();
        assert!(!format!("{reason}{hint}").contains("canary"));
    }
}
