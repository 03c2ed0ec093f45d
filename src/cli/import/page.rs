//! The file that is written: YAML and comments, and the variables that its secrets come from.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use rand::Rng as _;

use super::{DIFFERS, MISSING};
use crate::event::Secret;

/// Columns of a comment.
const WIDTH: usize = 120;

/// A `gateway.yaml` that grows.
#[derive(Debug, Default)]
pub(super) struct Page {
    head: Vec<String>,
    body: String,
    missing: usize,
    differs: usize,
    /// By its name, the value that the export has for it, or that was made for it.
    variables: BTreeMap<String, Option<Secret>>,
    /// The names of those that no export can have: they are of this gateway alone, and made here.
    made: BTreeSet<String>,
}

impl Page {
    /// A line of what stands before everything, as a comment.
    pub(super) fn head(&mut self, text: &str) {
        self.head.extend(wrapped(text, WIDTH - 2));
    }

    /// A line of YAML.
    pub(super) fn line(&mut self, depth: usize, text: &str) {
        self.body.push_str(&format!("{}{text}\n", "  ".repeat(depth)));
    }

    /// A comment.
    pub(super) fn say(&mut self, depth: usize, text: &str) {
        for line in wrapped(text, WIDTH - 2 * depth - 2) {
            self.line(depth, &format!("# {line}"));
        }
    }

    /// Something that has no counterpart.
    pub(super) fn missing(&mut self, depth: usize, what: &str) {
        self.missing += 1;
        self.say(depth, &format!("{MISSING} {what}"));
    }

    /// Something that behaves otherwise.
    pub(super) fn differs(&mut self, depth: usize, what: &str) {
        self.differs += 1;
        self.say(depth, &format!("{DIFFERS} {what}"));
    }

    /// How a secret is written: as a variable, whose name is made of the words. `value` is what the export has for it.
    pub(super) fn secret(&mut self, words: &[&str], value: Option<String>) -> String {
        let name = variable(words);
        let kept = self.variables.entry(name.clone()).or_default();
        if kept.is_none() {
            *kept = value.map(Secret::new);
        }
        format!("\"${{{name}}}\"")
    }

    /// The same for one that this gateway alone has: it is made here, at random.
    pub(super) fn own_secret(&mut self, words: &[&str]) -> String {
        self.made.insert(variable(words));
        self.secret(words, Some(signing_secret()))
    }

    /// The whole text.
    pub(super) fn whole(&self) -> String {
        let mut text: String = self.head.iter().map(|line| format!("# {line}\n")).collect();
        if !self.variables.is_empty() {
            text.push_str("#\n# Secrets come from the environment:\n");
            for (name, value) in &self.variables {
                let known = match value {
                    Some(_) if self.made.contains(name) => "new; --env makes one",
                    Some(_) => "in the export; --env writes it to a file",
                    None => "not in the export",
                };
                text.push_str(&format!("#   {name}    ({known})\n"));
            }
        }
        text + &self.body
    }

    /// The values that the export had, as `NAME=value` lines; those without one are left for their owner to fill in. What the lines of
    /// `there` have a value for already is left out.
    pub(super) fn secrets(&self, there: &str) -> String {
        let standing = |name: &str| {
            let mut values = there.lines().filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='));
            values.next_back().map(|value| !value.is_empty())
        };
        let line = |(name, value): (&String, &Option<Secret>)| match (standing(name), value) {
            (Some(true), _) | (Some(false), None) => String::new(),
            (_, None) => format!("{name}=\n"),
            (_, Some(value)) => format!("{name}={}\n", shell(&String::from_utf8_lossy(value.expose()))),
        };
        self.variables.iter().map(line).collect()
    }

    /// What it came to, in a sentence.
    pub(super) fn summary(&self) -> String {
        let (missing, differs) = (self.missing, self.differs);
        let secrets = self.variables.len();
        let known = self.variables.values().flatten().count();
        format!(
            "{missing} without a counterpart (search for {MISSING:?}), {differs} that behave otherwise ({DIFFERS:?}), \
             {secrets} secrets to set, of which --env writes {known}; then fairlane check"
        )
    }
}

/// Bytes of a signing secret, as Standard Webhooks recommends at least.
const SECRET_BYTES: usize = 24;

/// A secret for `Fairlane-Signature`, as `upstream.signing_secret` takes it.
fn signing_secret() -> String {
    let mut bytes = [0; SECRET_BYTES];
    rand::rng().fill_bytes(&mut bytes);
    format!("whsec_{}", base64::engine::general_purpose::STANDARD.encode(bytes))
}

/// A name for an environment variable: capital letters, digits and `_`, not beginning with a digit.
pub(super) fn variable(words: &[&str]) -> String {
    let name: String =
        words.join("_").chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

/// Text of others as YAML, in which no variable is looked for.
pub(super) fn quoted(text: &str) -> String {
    // JSON's strings are YAML's, too.
    serde_json::Value::from(text.replace('$', "$$")).to_string()
}

/// Text of others for a comment: one line, nothing that a terminal obeys.
pub(super) fn plain(text: &str) -> String {
    text.escape_debug().to_string().replace("\\\"", "\"").replace("\\'", "'")
}

/// In single quotes, as a shell and systemd's `EnvironmentFile` read it.
fn shell(value: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "_-+/=.:".contains(c);
    if value.chars().all(bare) { value.to_owned() } else { format!("'{}'", value.replace('\'', "'\\''")) }
}

/// Cut between words; a word that is longer stays whole.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("  {word}")),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_stays_text() {
        assert_eq!(quoted("a\n\"b\" ${HOME} # c"), r##""a\n\"b\" $${HOME} # c""##);
        assert_eq!(plain("a\nb\u{202e}\"c\""), "a\\nb\\u{202e}\"c\"");
        assert_eq!(variable(&["3d-eye", "secret"]), "_3D_EYE_SECRET");
        assert_eq!(shell("it's"), "'it'\\''s'");
    }

    #[test]
    fn a_secret_is_named_once_and_never_written() {
        let mut page = Page::default();
        assert_eq!(page.secret(&["shop", "secret"], Some("hush".to_owned())), "\"${SHOP_SECRET}\"");
        assert_eq!(page.secret(&["shop", "secret"], None), "\"${SHOP_SECRET}\"");
        assert!(!page.whole().contains("hush"));
        assert_eq!(page.secrets(""), "SHOP_SECRET=hush\n");
    }

    #[test]
    fn secrets_that_are_there_stay_and_what_is_new_is_made() {
        let mut page = Page::default();
        page.own_secret(&["own"]);
        page.secret(&["known"], Some("hush".to_owned()));
        page.secret(&["unknown"], None);
        let whole = page.whole();
        assert!(whole.contains("OWN    (new; --env makes one)"), "{whole}");
        let fresh = page.secrets("");
        assert!(fresh.starts_with("KNOWN=hush\nOWN=whsec_") && fresh.ends_with("\nUNKNOWN=\n"), "{fresh}");
        assert_eq!(page.secrets(&format!("MINE=1\n{fresh}")), "", "a second time");
        let filled = page.secrets("KNOWN=other\nUNKNOWN=\nOWN=\n");
        assert!(filled.starts_with("OWN=whsec_") && filled.lines().count() == 1, "{filled}");
    }

    #[test]
    fn comments_are_wrapped_and_stay_comments() {
        let mut page = Page::default();
        page.missing(2, &"word ".repeat(60));
        assert!(page.whole().lines().all(|line| line.starts_with("    # ") && line.len() <= WIDTH), "{}", page.whole());
        assert!(page.summary().starts_with("1 without"));
    }
}
