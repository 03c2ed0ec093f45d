//! A group's name as callers give it: the one written form, or words about how to write it.

use percent_encoding::percent_decode_str;

use super::problem::Problem;
use crate::event::Group;

/// The group that `text` names; `field` is the parameter's name, for the refusal. A form that differs from the one that lists show
/// (`%61bc` for `abc`) would match nobody, so it is refused too.
pub(super) fn group(field: &str, text: &str) -> Result<Group, Problem> {
    let group = Group::from_written(text).ok_or_else(|| {
        Problem::Parameter(format!("{field}: {text:?} is not a group's written form (letters, digits, -._:@~ and %XX)"))
    })?;
    let parts: Option<Vec<_>> = text.split('~').map(|part| percent_decode_str(part).decode_utf8().ok()).collect();
    match parts.map(|parts| Group::of(&parts)) {
        Some(usual) if usual == group => Ok(group),
        Some(usual) => Err(Problem::Parameter(format!("{field}: write {usual}, as lists do; found {text:?}"))),
        None => Err(Problem::Parameter(format!("{field}: {text:?} does not stand for UTF-8, and every group does"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_written_form() {
        for text in ["abc", "a~b", "~fallback", "caf%C3%A9", "%7Efallback", "gh~%25", "~overflow-07"] {
            assert_eq!(group("name", text).ok().as_ref().map(Group::as_str), Some(text));
        }
        for (text, why) in [
            ("%61bc", "write abc"),
            ("a%2Db", "write a-b"),
            ("~%66allback", "write ~fallback"),
            ("%FF", "UTF-8"),
            ("a b", "written form"),
            ("", "written form"),
        ] {
            let error = format!("{:?}", group("name", text).unwrap_err());
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
