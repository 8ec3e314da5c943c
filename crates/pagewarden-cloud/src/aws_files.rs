//! `~/.aws/credentials` and `~/.aws/config`: keys and region of a profile, as the tools of AWS read them.

use std::path::{Path, PathBuf};

use pagewarden::source::file::read_small;

/// These files have a few lines.
const BYTES_MAX: usize = 1 << 20;

/// What a profile says.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) access_key_id: Option<String>,
    pub(crate) secret_access_key: Option<String>,
    pub(crate) session_token: Option<String>,
    pub(crate) region: Option<String>,
}

/// The profile that `AWS_PROFILE` names, or the default one. What is not there says nothing.
pub(crate) fn profile() -> Profile {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let name = variable("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
    let home = variable("HOME").map(|home| Path::new(&home).join(".aws"));
    let file = |name: &str, own: &str| {
        let path = variable(own).map(PathBuf::from).or_else(|| Some(home.as_ref()?.join(name)));
        let bytes = path.and_then(|path| read_small(&path, BYTES_MAX).ok());
        String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
    };
    let mut profile = Profile::default();
    // Of a key that both files have, that of the first counts.
    profile.add(&file("credentials", "AWS_SHARED_CREDENTIALS_FILE"), &[&name]);
    let section = format!("profile {name}");
    profile.add(&file("config", "AWS_CONFIG_FILE"), &[&section, &name]);
    profile
}

impl Profile {
    fn add(&mut self, text: &str, sections: &[&str]) {
        let mut is_ours = false;
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                is_ours = sections.contains(&name.trim());
                continue;
            }
            let Some((key, value)) = line.split_once('=').filter(|_| is_ours) else { continue };
            let place = match key.trim() {
                "aws_access_key_id" => &mut self.access_key_id,
                "aws_secret_access_key" => &mut self.secret_access_key,
                "aws_session_token" => &mut self.session_token,
                "region" => &mut self.region,
                _ => continue,
            };
            place.get_or_insert_with(|| value.trim().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_profile_alone() {
        let mut profile = Profile::default();
        let text = "[other]\naws_access_key_id = no\n[ mine ]\n# comment\naws_access_key_id= AK \n\
                    aws_secret_access_key=a=b\n[third]\nregion = no\n";
        profile.add(text, &["mine"]);
        profile.add("[profile mine]\nregion=eu-north-1\naws_access_key_id=late", &["profile mine"]);
        assert_eq!(profile.access_key_id.as_deref(), Some("AK"));
        assert_eq!(profile.secret_access_key.as_deref(), Some("a=b"));
        assert_eq!(profile.region.as_deref(), Some("eu-north-1"));
        assert_eq!(profile.session_token, None);
    }
}
