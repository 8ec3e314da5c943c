//! Signatures that `ssh-keygen -Y verify` proves, with an ed25519 key of SSH.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, ensure};
use ssh_key::{Algorithm, HashAlg, LineEnding, PrivateKey, PublicKey, SshSig};

/// What signatures are for, so that one of another purpose is not taken for one of evidence.
pub const NAMESPACE: &str = "pagewarden";

/// Signs a text with the key in a file.
///
/// # Errors
/// The file has no key that can sign.
pub fn sign(text: &[u8], key: &Path) -> Result<String> {
    let shown = key.display();
    let key = fs::read_to_string(key).with_context(|| format!("cannot read {shown}"))?;
    let key = PrivateKey::from_openssh(&key).map_err(|error| {
        anyhow!(
            "{shown} is no private key of OpenSSH: {error}\n\
             hint: make one with ssh-keygen -t ed25519 -N '' -f KEY"
        )
    })?;
    ensure!(
        !key.is_encrypted(),
        "{shown} needs a passphrase\nhint: use a key without one, that only this user can read"
    );
    ensure!(
        key.algorithm() == Algorithm::Ed25519,
        "{shown} is a key of {}, and only ed25519 signs here\n\
         hint: make one with ssh-keygen -t ed25519 -N '' -f KEY",
        key.algorithm()
    );
    let signature = key
        .sign(NAMESPACE, HashAlg::Sha512, text)
        .map_err(|error| anyhow!("cannot sign: {error}"))?;
    signature.to_pem(LineEnding::LF).map_err(|error| anyhow!("cannot write the signature: {error}"))
}

/// Verifies a signature; returns the key that made it, as `SHA256:...`.
///
/// # Errors
/// It is none of this text, or not by this key.
pub fn verify(text: &[u8], signature: &str, by: Option<&Path>) -> Result<String> {
    let signature: SshSig =
        signature.parse().map_err(|error| anyhow!("the signature cannot be read: {error}"))?;
    let key = PublicKey::from(signature.public_key().clone());
    if let Some(path) = by {
        let shown = path.display();
        let wanted = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
        let wanted = PublicKey::from_openssh(wanted.trim())
            .map_err(|error| anyhow!("{shown} is no public key of OpenSSH: {error}"))?;
        ensure!(
            wanted.key_data() == key.key_data(),
            "it is signed by another key: {}",
            key.fingerprint(HashAlg::Sha256)
        );
    }
    key.verify(NAMESPACE, text, &signature)
        .map_err(|_| anyhow!("the signature is not of this text"))?;
    Ok(key.fingerprint(HashAlg::Sha256).to_string())
}
