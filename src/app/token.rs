//! The admin token: the configured one, or one made at the first start and kept in the data directory.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::Rng as _;

use crate::admin::Settings;
use crate::event::Secret;

/// Its name in the data directory; the command line looks there too.
pub const FILE: &str = "admin-token";

/// The token to ask for.
///
/// # Errors
/// The file cannot be read or made.
pub(super) fn of(settings: &Settings, data: &Path) -> anyhow::Result<Secret> {
    if let Some(token) = &settings.token {
        return Ok(token.clone());
    }
    let path = data.join(FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => Ok(Secret::new(text.trim())),
        Ok(_) => anyhow::bail!("{} is empty: remove it to have a new token made", path.display()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => make(&path),
        Err(error) => Err(error).with_context(|| format!("the admin token in {} cannot be read", path.display())),
    }
}

fn make(path: &Path) -> anyhow::Result<Secret> {
    let mut bytes = [0; 32];
    rand::rng().fill_bytes(&mut bytes);
    let token = URL_SAFE_NO_PAD.encode(bytes);
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| {
        writeln!(file, "{token}")?;
        file.sync_all()
    })
    .with_context(|| format!("the admin token cannot be kept in {}", path.display()))?;
    tracing::info!(file = %path.display(), "an admin token was made");
    Ok(Secret::new(token))
}
