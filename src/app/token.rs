//! The admin token: the configured one, or one made at the first start and kept in the data directory.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::Rng as _;

use crate::admin::Settings;
use crate::event::Secret;

/// Its name in the data directory; the command line looks there too.
pub const FILE: &str = "admin-token";

/// What `admin.token` has to have, too.
const BYTES_MIN: usize = 16;

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
        Ok(text) => kept(&path, text.trim()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => make(&path),
        Err(error) => Err(error).with_context(|| format!("the admin token in {} cannot be read", path.display())),
    }
}

/// The token in `path`, as good as one in the configuration has to be, and from now on readable by its owner alone.
fn kept(path: &Path, text: &str) -> anyhow::Result<Secret> {
    let remedy = "remove the file to have a new token made";
    anyhow::ensure!(!text.is_empty(), "the admin token in {} is empty: {remedy}", path.display());
    anyhow::ensure!(
        text.len() >= BYTES_MIN && text.bytes().all(|byte| byte.is_ascii_graphic()),
        "the admin token in {} is not one line of at least {BYTES_MIN} visible ASCII characters: {remedy}",
        path.display()
    );
    let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
    if mode & 0o077 != 0 {
        let closed = std::fs::set_permissions(path, Permissions::from_mode(0o600));
        let (file, closed) = (path.display(), closed.is_ok());
        tracing::warn!(%file, closed, "others on this machine could read the admin token; {remedy}");
    }
    Ok(Secret::new(text))
}

fn make(path: &Path) -> anyhow::Result<Secret> {
    let mut bytes = [0; 32];
    rand::rng().fill_bytes(&mut bytes);
    let token = URL_SAFE_NO_PAD.encode(bytes);
    // Under its name it is whole or not there: a crash now must not leave an empty one.
    let whole = path.with_extension("new");
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&whole);
    file.and_then(|mut file| {
        writeln!(file, "{token}")?;
        file.sync_all()?;
        std::fs::rename(&whole, path)
    })
    .with_context(|| format!("the admin token cannot be kept in {}", path.display()))?;
    tracing::info!(file = %path.display(), "an admin token was made");
    Ok(Secret::new(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_token_is_kept_and_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let made = make(&path).unwrap();
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(kept(&path, text.trim()).unwrap().expose(), made.expose());
        assert_eq!(mode(), 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_is_no_token_is_not_taken_for_one() {
        for text in
            ["", "x", "fifteen-letters", "a-first-line-here\na-second-one", "sixteen and blank", "sixteen-and-más"]
        {
            let error = kept(Path::new("admin-token"), text).unwrap_err().to_string();
            assert!(error.contains("remove the file"), "{error}");
        }
    }
}
