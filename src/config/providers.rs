//! The names that `provider:` takes.

use crate::verify;

/// What a source that anybody may send to names.
pub(super) const NONE: &str = "none";

/// Whether this is a provider, or `none`.
pub(super) fn is_known(name: &str) -> bool {
    name == NONE || verify::preset(name).is_some()
}

/// All of them.
pub(super) fn names() -> Vec<&'static str> {
    verify::presets().iter().map(|preset| preset.name).chain([NONE]).collect()
}

/// What to do about a name that is none of them.
pub(super) fn hint(name: &str) -> String {
    match name {
        "bearer" => "a scheme of your own is written { bearer: {}, secret: … }".to_owned(),
        "basic" => "a scheme of your own is written { basic: { user: … }, secret: … }".to_owned(),
        "token" => "a scheme of your own is written { token: { header: X-Api-Key }, secret: … }".to_owned(),
        "hmac" => "a scheme of your own is written { hmac: { header: X-Signature }, secret: … }".to_owned(),
        _ => {
            super::nearest::hint(name, &names()).unwrap_or_else(|| "fairlane providers lists the known ones".to_owned())
        }
    }
}
