//! Reads Rust text as far as a house rule needs it: words without comments and strings, modules, paths.

use std::collections::BTreeMap;
use std::path::Path;

/// Text files by their path from the root of the project, with `/` between segments.
pub(super) type Tree = BTreeMap<String, String>;

/// Directories and files that are not the project's: built, run-time, or the version control's.
const SKIPPED: [&str; 6] = ["target", ".git", "fairlane-data", "fairlane-spool", "node_modules", "__pycache__"];

/// All text files below `root`.
pub(super) fn read_tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the project can be listed") {
            let path = entry.expect("an entry of the project can be read").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if SKIPPED.contains(&name.as_str()) || path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                let relative = path.strip_prefix(root).expect("it was found below the root");
                tree.insert(relative.to_string_lossy().replace('\\', "/"), text);
            }
        }
    }
    tree
}

/// A word or a mark of a Rust file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) text: String,
    /// Counted from 1.
    pub(super) line: usize,
}

/// Words, `::` and single marks; comments, strings, characters, numbers and lifetimes are left out.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(c) = rest.chars().next() {
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(len) = literal(rest) {
            len
        } else if c.is_alphanumeric() || c == '_' {
            rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            c.len_utf8()
        };
        let (piece, tail) = rest.split_at(len);
        let word = c.is_alphabetic() || c == '_';
        let mark = len <= 2 && !piece.starts_with(['"', '\'']) && !c.is_whitespace() && !c.is_ascii_digit();
        if (word && literal(piece).is_none()) || (mark && !piece.starts_with("//")) {
            tokens.push(Token { text: piece.to_owned(), line });
        }
        line += piece.matches('\n').count();
        rest = tail;
    }
    tokens
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of the string, character or lifetime that `text` begins with.
fn literal(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r", ""].into_iter().find(|p| {
        let rest = text.strip_prefix(p);
        rest.is_some_and(|r| r.starts_with('"') || (p.ends_with('r') && r.trim_start_matches('#').starts_with('"')))
    });
    match prefix {
        Some(raw) if raw.ends_with('r') => {
            let body = text.get(raw.len()..)?;
            let hashes = body.len() - body.trim_start_matches('#').len();
            let close = format!("\"{}", "#".repeat(hashes));
            let inside = body.get(hashes + 1..)?;
            Some(raw.len() + hashes + 1 + inside.find(&close).map_or(inside.len(), |end| end + close.len()))
        }
        Some(prefix) => Some(prefix.len() + 1 + quoted(text.get(prefix.len() + 1..)?, '"')),
        None => {
            let prefix = usize::from(text.starts_with("b'"));
            let inside = text.get(prefix..)?.strip_prefix('\'')?;
            let mut chars = inside.chars();
            let (first, second) = (chars.next()?, chars.next());
            if first == '\\' || second == Some('\'') {
                Some(prefix + 1 + quoted(inside, '\''))
            } else {
                // A lifetime: the mark alone, its name is a word like any other.
                Some(1)
            }
        }
    }
}

/// The length up to and with the closing quote.
fn quoted(inside: &str, close: char) -> usize {
    let mut escaped = false;
    let end = inside.find(|c| {
        let end = c == close && !escaped;
        escaped = c == '\\' && !escaped;
        end
    });
    end.map_or(inside.len(), |end| end + 1)
}

/// A file below `src` that some `mod` declares.
#[derive(Clone, Debug)]
pub(super) struct Module {
    /// Its path from the crate's root, e.g. `["key", "plan"]`; empty for `lib.rs` and `main.rs`.
    pub(super) path: Vec<String>,
    pub(super) file: String,
    /// Whether it is compiled for tests only.
    pub(super) test: bool,
}

/// Every file that the crate is made of.
pub(super) fn modules(tree: &Tree) -> Vec<Module> {
    let mut found = Vec::new();
    for root in ["src/lib.rs", "src/main.rs"] {
        if tree.contains_key(root) {
            declare(tree, Module { path: Vec::new(), file: root.to_owned(), test: false }, &mut found);
        }
    }
    found
}

fn declare(tree: &Tree, module: Module, found: &mut Vec<Module>) {
    let text = tree.get(&module.file).cloned().unwrap_or_default();
    let all = tokens(&text);
    found.push(module.clone());
    for (at, place) in places(&all, &module).into_iter().enumerate() {
        let [keyword, name, end] = [0, 1, 2].map(|i| all.get(at + i).map_or("", |t| t.text.as_str()));
        if keyword != "mod" || end != ";" {
            continue;
        }
        let mut path = place.path;
        path.push(name.to_owned());
        let stem = format!("src/{}", path.join("/"));
        let file = [format!("{stem}.rs"), format!("{stem}/mod.rs")].into_iter().find(|f| tree.contains_key(f));
        if let Some(file) = file {
            declare(tree, Module { path, file, test: place.test || cfg_test_before(&all, at) }, found);
        }
    }
}

/// Where a token stands: in which module, and whether that is compiled for tests only.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) path: Vec<String>,
    pub(super) test: bool,
}

/// The place of each token of a file, inline modules and `#[cfg(test)]` functions counted.
pub(super) fn places(all: &[Token], module: &Module) -> Vec<Place> {
    let outer = Place { path: module.path.clone(), test: module.test };
    let mut open = vec![outer];
    let mut next: Option<Place> = None;
    let mut places = Vec::new();
    for (at, token) in all.iter().enumerate() {
        let here = open.last().cloned().expect("the file itself is never closed");
        let word = |i: usize| all.get(at + i).map_or("", |t| t.text.as_str());
        match token.text.as_str() {
            "mod" if word(2) == "{" => {
                let mut inner = here.clone();
                inner.path.push(word(1).to_owned());
                inner.test |= cfg_test_before(all, at);
                next = Some(inner);
            }
            "fn" if cfg_test_before(all, at) => next = Some(Place { test: true, ..here.clone() }),
            "{" => open.push(next.take().unwrap_or_else(|| here.clone())),
            "}" if open.len() > 1 => {
                open.pop();
            }
            _ => {}
        }
        places.push(here);
    }
    places
}

/// Whether the item at `at` has `#[cfg(test)]` among its attributes.
fn cfg_test_before(all: &[Token], at: usize) -> bool {
    let before: Vec<_> = all.iter().take(at).map(|t| t.text.as_str()).collect();
    // Back to the end of the item before this one.
    let start = before.iter().rposition(|t| matches!(*t, ";" | "}" | "{")).map_or(0, |end| end + 1);
    let own = before.get(start..).unwrap_or_default();
    own.windows(4).any(|w| w == ["cfg", "(", "test", ")"])
}

/// A path inside the crate, as it is used somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Used {
    /// From the crate's root.
    pub(super) path: Vec<String>,
    pub(super) line: usize,
    pub(super) by: Vec<String>,
    pub(super) test: bool,
}

/// Every `crate::…` and `super::…` path of a file, those in braces one by one.
pub(super) fn used(text: &str, module: &Module) -> Vec<Used> {
    let all = tokens(text);
    let mut found = Vec::new();
    for (at, place) in places(&all, module).into_iter().enumerate() {
        let word = |i: usize| all.get(i).map_or("", |t| t.text.as_str());
        let after_path = at > 0 && word(at - 1) == "::";
        let (base, start) = match word(at) {
            "crate" if word(at + 1) == "::" => (Vec::new(), at + 2),
            "super" if word(at + 1) == "::" && !after_path => {
                let (mut base, mut next) = (place.path.clone(), at);
                while word(next) == "super" {
                    base.pop();
                    next += 2;
                }
                (base, next)
            }
            _ => continue,
        };
        let mut paths = Vec::new();
        branches(&all, start, &base, &mut paths);
        let line = all.get(at).map_or(0, |t| t.line);
        let by = |path| Used { path, line, by: place.path.clone(), test: place.test };
        found.extend(paths.into_iter().map(by));
    }
    found
}

/// Adds the paths that begin at `at`, after `base`; gives the place behind them.
fn branches(all: &[Token], mut at: usize, base: &[String], paths: &mut Vec<Vec<String>>) -> usize {
    let word = |i: usize| all.get(i).map_or("", |t| t.text.as_str());
    let mut path = base.to_vec();
    loop {
        if word(at) == "{" {
            at += 1;
            while !matches!(word(at), "}" | "") {
                at = branches(all, at, &path, paths);
                at += usize::from(word(at) == ",");
            }
            return at + 1;
        }
        path.push(word(at).to_owned());
        if word(at + 1) != "::" || word(at + 2) == "<" {
            break;
        }
        at += 2;
    }
    paths.push(path);
    at += 1;
    if word(at) == "as" {
        at += 2;
    }
    at
}
