//! What somebody probably meant who wrote something else.

use super::fields::{Kind, Map, ROOT};

/// Below this likeness a proposal confuses more than it helps.
const LIKENESS_MIN: f64 = 0.72;

/// The nearest of `known`, as a hint.
pub(super) fn hint(written: &str, known: &[&str]) -> Option<String> {
    let written = written.to_lowercase();
    let likeness = |name: &str| {
        strsim::normalized_damerau_levenshtein(&written, name).max(strsim::jaro_winkler(&written, name) - 0.1)
    };
    let best = known.iter().map(|name| (likeness(name), name)).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(likeness, _)| *likeness >= LIKENESS_MIN).map(|(_, name)| format!("did you mean {name:?}?"))
}

/// Where a field of this name belongs, if there is exactly one such place.
pub(super) fn elsewhere(written: &str) -> Option<String> {
    let mut found = Vec::new();
    places(&ROOT, "", written, &mut found);
    // What one of several senders may say, the only one may say as well.
    found.retain(|place| !place.ends_with(".any_of[]"));
    match found.as_slice() {
        [only] => Some(format!("{written:?} belongs in {only}")),
        _ => None,
    }
}

fn places(map: &'static Map, path: &str, name: &str, found: &mut Vec<String>) {
    for field in map.fields {
        if field.name == name {
            found.push(if path.is_empty() { "the top level".to_owned() } else { path.to_owned() });
        }
        let below = if path.is_empty() { field.name.to_owned() } else { format!("{path}.{}", field.name) };
        match &field.kind {
            Kind::Map(map) => places(map, &below, name, found),
            Kind::List(Kind::Map(map), _) => places(map, &format!("{below}[]"), name, found),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_ones_are_proposed_and_far_ones_are_not() {
        let known = ["secret", "secrets", "provider", "tolerance"];
        assert_eq!(hint("secrt", &known).as_deref(), Some("did you mean \"secret\"?"));
        assert_eq!(hint("Provider", &known).as_deref(), Some("did you mean \"provider\"?"));
        assert_eq!(hint("tolerence", &known).as_deref(), Some("did you mean \"tolerance\"?"));
        assert_eq!(hint("colour", &known), None);
        assert_eq!(hint("", &known), None);
    }

    #[test]
    fn a_field_at_the_wrong_level_is_sent_home() {
        assert_eq!(elsewhere("burst").as_deref(), Some("\"burst\" belongs in groups"));
        assert_eq!(elsewhere("body_timeout").as_deref(), Some("\"body_timeout\" belongs in listen.limits"));
        assert_eq!(elsewhere("secrets").as_deref(), Some("\"secrets\" belongs in sources[].verify"));
        assert_eq!(elsewhere("address"), None);
        assert_eq!(elsewhere("nowhere"), None);
    }
}
