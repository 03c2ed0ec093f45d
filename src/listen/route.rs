//! Which source a path belongs to.
//!
//! `/a/b` is exactly this path, with or without a trailing slash; `/a/*` takes `/a` and all below; `/a/{store}` names a
//! segment. The most specific wins, segment by segment: literal before `{name}` before `*`.

use std::cmp::Ordering;

/// The paths that a source takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(Box<str>),
    Name(Box<str>),
    Rest,
}

impl Pattern {
    /// Reads a pattern as written in the configuration. The error says what is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err("a path begins with /".to_owned());
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let mut segments = Vec::new();
        let parts: Vec<&str> = if rest.is_empty() { Vec::new() } else { rest.split('/').collect() };
        for (i, part) in parts.iter().enumerate() {
            segments.push(match *part {
                "*" if i + 1 == parts.len() => Segment::Rest,
                "*" => return Err("* stands only at the end of a path".to_owned()),
                "" => return Err("a path has no empty segments (//)".to_owned()),
                "." | ".." => return Err("a path has no . or .. segments".to_owned()),
                part => match part.strip_prefix('{').map(|name| name.strip_suffix('}')) {
                    Some(Some(name)) if is_name(name) => {
                        let name_taken = |s: &Segment| matches!(s, Segment::Name(n) if **n == *name);
                        if segments.iter().any(name_taken) {
                            return Err(format!("{{{name}}} stands twice in the path"));
                        }
                        Segment::Name(name.into())
                    }
                    Some(_) => return Err("a named segment is written {name}, of letters, digits and _".to_owned()),
                    // Not the segment: what stands in it may have come from a variable that holds a secret.
                    None => match part.chars().find(|c| "{}*?#%\\".contains(*c) || !c.is_ascii_graphic()) {
                        Some(c) => return Err(format!("{c:?} is a character that no path segment here may have")),
                        None => Segment::Literal(part.into()),
                    },
                },
            });
        }
        Ok(Self { text: text.into(), segments })
    }

    /// As written in the configuration.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The names of its `{name}` segments, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|s| match s {
            Segment::Name(name) => Some(&**name),
            Segment::Literal(_) | Segment::Rest => None,
        })
    }

    /// How many segments at the beginning of `path` are literally this pattern's.
    fn literal(&self, path: &str) -> usize {
        let own = self.segments.iter().map(|segment| match segment {
            Segment::Literal(literal) => Some(&**literal),
            Segment::Name(_) | Segment::Rest => None,
        });
        segments(path).zip(own).take_while(|(part, own)| Some(*part) == *own).count()
    }

    /// Whether two patterns take the same paths with the same precedence, so that neither could win.
    #[must_use]
    pub fn conflicts(&self, other: &Self) -> bool {
        self.precedence(other) == Ordering::Equal
    }

    /// The `{name}` segments of `path` when it belongs here, still percent-encoded.
    fn matches<'p>(&self, path: &'p str) -> Option<Vec<(&str, &'p str)>> {
        let mut found = Vec::new();
        path.strip_prefix('/')?;
        let mut parts = segments(path);
        for segment in &self.segments {
            match segment {
                Segment::Rest => return Some(found),
                Segment::Literal(literal) => {
                    if parts.next()? != &**literal {
                        return None;
                    }
                }
                Segment::Name(name) => found.push((&**name, parts.next()?)),
            }
        }
        parts.next().is_none().then_some(found)
    }

    /// `Less` when this one is tried first.
    fn precedence(&self, other: &Self) -> Ordering {
        let rank = |s: Option<&Segment>| match s {
            Some(Segment::Literal(_)) => 0,
            Some(Segment::Name(_)) => 1,
            None => 2,
            Some(Segment::Rest) => 3,
        };
        let longest = self.segments.len().max(other.segments.len());
        for i in 0..longest {
            let (mine, theirs) = (self.segments.get(i), other.segments.get(i));
            let order = rank(mine).cmp(&rank(theirs));
            if order != Ordering::Equal {
                return order;
            }
            if let (Some(Segment::Literal(a)), Some(Segment::Literal(b))) = (mine, theirs)
                && a != b
            {
                return a.cmp(b);
            }
        }
        Ordering::Equal
    }
}

/// The segments of a path, empty ones left out.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Sources by path, most specific first.
#[derive(Clone, Debug)]
pub struct Router {
    order: Vec<(Pattern, usize)>,
}

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
pub struct Match<'r, 'p> {
    /// The place of the pattern in the list that the router was built from.
    pub index: usize,
    /// `{name}` segments, percent-encoded as they came.
    pub names: Vec<(&'r str, &'p str)>,
}

impl Router {
    /// A router over `patterns`; the answers count in their order.
    #[must_use]
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a Pattern>) -> Self {
        let mut order: Vec<_> = patterns.into_iter().cloned().enumerate().map(|(i, p)| (p, i)).collect();
        order.sort_by(|a, b| a.0.precedence(&b.0));
        Self { order }
    }

    /// A path that no source takes as records show it: some senders have a secret in their path, and a wrong one need not be far from a
    /// right one. What the nearest pattern says literally is shown, or else the first segment; of the rest only its length.
    #[must_use]
    pub fn masked(&self, path: &str) -> String {
        let literal = self.order.iter().map(|(pattern, _)| pattern.literal(path)).max().unwrap_or(0);
        let (shown, rest): (Vec<_>, Vec<_>) =
            segments(path).enumerate().partition(|(number, _)| *number < literal.max(1));
        let mut masked: String = shown.iter().map(|(_, part)| format!("/{part}")).collect();
        let bytes: usize = rest.iter().map(|(_, part)| part.len() + 1).sum();
        match bytes.checked_sub(1) {
            Some(bytes) => masked.push_str(&format!("/*** ({bytes} bytes)")),
            None if masked.is_empty() => masked.push('/'),
            None => {}
        }
        masked
    }

    /// The most specific source for `path` (no query).
    #[must_use]
    pub fn find<'p>(&self, path: &'p str) -> Option<Match<'_, 'p>> {
        self.order.iter().find_map(|(pattern, index)| pattern.matches(path).map(|names| Match { index: *index, names }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(patterns: &[&str]) -> Router {
        let patterns: Vec<_> = patterns.iter().map(|p| Pattern::parse(p).unwrap()).collect();
        Router::new(&patterns)
    }

    #[test]
    fn literal_before_name_before_rest_segment_by_segment() {
        let r = router(&["/*", "/hooks/{store}", "/hooks/github", "/hooks/*", "/hooks/{store}/x", "/hooks"]);
        let index = |path| r.find(path).map(|m| m.index);
        assert_eq!(index("/hooks/github"), Some(2));
        assert_eq!(index("/hooks/github/"), Some(2));
        assert_eq!(index("/hooks/a"), Some(1));
        assert_eq!(index("/hooks/a/x"), Some(4));
        assert_eq!(index("/hooks/a/y"), Some(3));
        assert_eq!(index("/hooks"), Some(5));
        assert_eq!(index("/hooks/"), Some(5));
        assert_eq!(index("/other"), Some(0));
        assert_eq!(index("/"), Some(0));
    }

    #[test]
    fn of_a_path_that_no_source_takes_only_what_is_known_is_shown() {
        let r = router(&["/hooks/{store}/new", "/hooks/in/erp"]);
        assert_eq!(r.masked("/hooks/in/s3cret/x"), "/hooks/in/*** (8 bytes)");
        assert_eq!(r.masked("/hooks/shop/s3cret"), "/hooks/*** (11 bytes)");
        assert_eq!(r.masked("/services/T0/B0/s3cret"), "/services/*** (12 bytes)");
        assert_eq!(r.masked("/favicon.ico"), "/favicon.ico");
        assert_eq!((r.masked("/"), r.masked(""), r.masked("//")), ("/".into(), "/".into(), "/".into()));
    }

    #[test]
    fn names_come_as_they_stand() {
        let r = router(&["/t/{account}/{store}"]);
        assert_eq!(r.find("/t/a%20b/c/").unwrap().names, [("account", "a%20b"), ("store", "c")]);
        assert_eq!(r.find("/t/a"), None);
        assert_eq!(r.find("/t/a/b/c"), None);
        assert_eq!(r.find("t/a/b"), None);
    }

    #[test]
    fn a_rest_takes_its_own_root() {
        let r = router(&["/x/*"]);
        for path in ["/x", "/x/", "/x/a", "/x/a/b"] {
            assert!(r.find(path).is_some(), "{path}");
        }
        assert!(r.find("/xa").is_none());
    }

    #[test]
    fn two_equal_ones_conflict_whatever_their_names_are() {
        let p = |t| Pattern::parse(t).unwrap();
        assert!(p("/a/{x}").conflicts(&p("/a/{y}/")));
        assert!(!p("/a/{x}").conflicts(&p("/a/*")));
        assert!(!p("/a").conflicts(&p("/b")));
    }

    #[test]
    fn a_bad_pattern_says_why() {
        for (text, why) in [
            ("a", "begins with /"),
            ("/a//b", "empty"),
            ("/a/../b", ".."),
            ("/*/b", "only at the end"),
            ("/{}", "{name}"),
            ("/{a}/{a}", "twice"),
            ("/a?b", "character"),
            ("/a%2fb", "character"),
        ] {
            let error = Pattern::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
