//! The style guide as a test. Every finding names the rule, the place and the fix.
//!
//! The rules are data: who may import whom, which words a module may not have, which texts no file may hold. A table of bad
//! snippets at the end shows that each rule can fail.

#[path = "tidy/source.rs"]
mod source;

use std::fmt;
use std::path::Path;

use source::{Module, Tree, Used, modules, places, read_tree, tokens, used};

/// A module of the crate, and what it may use of the others. A path allows itself and what is inside it; a path that
/// ends in `::` allows only what that module itself shows, its types and functions, and none of its submodules.
struct Layer {
    module: &'static str,
    may_use: &'static [&'static str],
}

/// Who may import whom: only what stands above, and never sideways.
const LAYERS: &[Layer] = &[
    Layer { module: "event", may_use: &[] },
    // Deciding: pure.
    Layer { module: "verify", may_use: &["event"] },
    Layer { module: "key", may_use: &["event"] },
    Layer { module: "engine", may_use: &["event"] },
    // Time and numbers.
    Layer { module: "clock", may_use: &["event"] },
    Layer { module: "metrics", may_use: &["event"] },
    // It stamps what is recorded, and is told where to; it knows no stage.
    Layer { module: "spans", may_use: &["event", "clock"] },
    // One effect each.
    Layer { module: "store", may_use: &["event", "clock", "metrics"] },
    // It signs anew what it sends, with the primitives that judged it.
    Layer { module: "deliver", may_use: &["event", "clock", "metrics", "verify::mac"] },
    Layer { module: "cluster", may_use: &["event", "key::", "clock", "metrics", "store"] },
    // Decisions joined to effects.
    Layer {
        module: "driver",
        may_use: &["event", "verify", "key", "engine", "clock", "metrics", "spans", "store", "deliver", "cluster"],
    },
    // The two ways in hold a handle of the driver; what they show of the store, the driver shows them.
    Layer { module: "listen", may_use: &["event", "verify", "key", "clock", "metrics", "spans", "driver::"] },
    Layer { module: "admin", may_use: &["event", "clock", "metrics", "driver::"] },
    // It knows the settings of every stage; no stage knows it.
    Layer {
        module: "config",
        may_use: &[
            "event", "verify", "key", "engine", "clock", "metrics", "store", "deliver", "cluster", "driver", "listen",
            "admin",
        ],
    },
    Layer {
        module: "app",
        may_use: &[
            "event", "verify", "key", "engine", "clock", "metrics", "spans", "store", "deliver", "cluster", "driver",
            "listen", "admin", "config",
        ],
    },
    Layer { module: "cli", may_use: &["event", "verify", "key", "engine", "config", "app"] },
];

/// What tests inside `src` may use besides what their module may.
const TESTS_MAY_USE: &[&str] = &["event", "clock::TestClock", "clock::Clock"];

/// Words that some modules do without.
struct Ban {
    modules: &'static [&'static str],
    words: &'static [&'static str],
    fix: &'static str,
}

const PURE: &[&str] = &["event", "verify", "key", "engine"];

const BANS: &[Ban] = &[
    Ban {
        modules: PURE,
        words: &["tokio::", "tracing::", "metrics::", "config::", "clock::", "log::"],
        fix: "a pure module decides and has no effects: give what you learned back to the caller",
    },
    Ban {
        modules: PURE,
        words: &["Instant", "SystemTime"],
        fix: "take `now` (event::Now, Mono or Wall) as an argument",
    },
    Ban {
        modules: PURE,
        words: &["thread_rng", "OsRng", "SysRng", "ThreadRng", "getrandom", "rand::rng", "rand::random"],
        fix: "randomness is a seed or bytes from the caller, so that the same seed gives the same trace",
    },
    Ban {
        modules: PURE,
        words: &[
            "std::fs",
            "std::env",
            "std::thread",
            "std::process",
            "TcpListener",
            "TcpStream",
            "UdpSocket",
            "UnixStream",
        ],
        fix: "a pure module reads and writes nothing: take bytes or values as arguments",
    },
    Ban {
        modules: &["engine"],
        words: &["async", "await"],
        fix: "the engine is told facts and asked for requests; waiting is the driver's",
    },
    Ban {
        modules: &["config"],
        words: &["tokio::", "hyper::", "TcpListener", "TcpStream", "UdpSocket", "UnixStream"],
        fix: "the configuration is text and settings; who uses a setting opens the socket",
    },
];

/// Texts that belong to a machine or to its mirror of a registry, in halves so that this file may be checked too.
const MACHINE_PATHS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/home/", "user/")];
const REGISTRIES: [&str; 9] = [
    concat!("crates", ".io"),
    concat!("npmjs", ".org"),
    concat!("npmjs", ".com"),
    concat!("yarnpkg", ".com"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("rubygems", ".org"),
    concat!("proxy.golang", ".org"),
    concat!("sum.golang", ".org"),
];

/// How cargo itself names its registry in every lock file.
const LOCKED_SOURCE: &str = concat!("source = \"registry+https://github.com/rust-lang/crates", ".io-index\"");

/// One place where the house is not tidy.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    rule: &'static str,
    file: String,
    line: usize,
    what: String,
    fix: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: [{}] {}\n    fix: {}", self.file, self.line, self.rule, self.what, self.fix)
    }
}

/// A rule's name, and what finds where it is broken.
type Rule = (&'static str, fn(&Tree) -> Vec<Finding>);

const RULES: &[Rule] = &[
    ("layers", layers),
    ("words", words),
    ("doc", docs),
    ("orphan", orphans),
    ("allow", allows),
    ("unfinished", unfinished),
    ("registry", registries),
    ("machine-path", machine_paths),
];

fn findings(tree: &Tree) -> Vec<Finding> {
    RULES.iter().flat_map(|(_, find)| find(tree)).collect()
}

fn layers(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut finding = |file: &str, line, what, fix: &str| {
        found.push(Finding { rule: "layers", file: file.to_owned(), line, what, fix: fix.to_owned() });
    };
    for module in modules(tree) {
        let Some(own) = module.path.first() else { continue };
        let Some(layer) = LAYERS.iter().find(|l| l.module == own) else {
            if module.path.len() == 1 {
                finding(&module.file, 1, format!("`{own}` is in no layer"), "give it a row in LAYERS of tests/tidy.rs");
            }
            continue;
        };
        let text = tree.get(&module.file).map(String::as_str).unwrap_or_default();
        for used in used(text, &module) {
            let allowed = |paths: &[&str]| paths.iter().any(|p| allows_path(p, &used));
            let inside = used.path.first() == Some(own);
            if !(inside || allowed(layer.may_use) || used.test && allowed(TESTS_MAY_USE)) {
                let what = format!("`{}` uses `{}`", used.by.join("::"), used.path.join("::"));
                let may = layer.may_use.join(", ");
                let fix = format!("`{own}` may use: {may}; move the code up to who may, or pass the value in");
                finding(&module.file, used.line, what, &fix);
            }
        }
    }
    found
}

/// Whether `allowed` (see [`Layer`]) covers a path.
fn allows_path(allowed: &str, used: &Used) -> bool {
    let face_only = allowed.ends_with("::");
    let mut rest = used.path.iter().map(String::as_str);
    let covered = allowed.trim_end_matches("::").split("::").all(|segment| rest.next() == Some(segment));
    // By the language's own convention what begins with a small letter and goes on is a submodule.
    let next = rest.next();
    let submodule = next.is_some_and(|n| n.starts_with(char::is_lowercase)) && rest.next().is_some();
    covered && !(face_only && submodule)
}

fn words(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for module in modules(tree) {
        let bans = || BANS.iter().filter(|ban| module.path.first().is_some_and(|m| ban.modules.contains(&m.as_str())));
        if bans().next().is_none() {
            continue;
        }
        let all = tokens(tree.get(&module.file).map(String::as_str).unwrap_or_default());
        for (at, place) in places(&all, &module).iter().enumerate() {
            let Some(token) = all.get(at).filter(|_| !place.test) else { continue };
            for ban in bans() {
                // Behind `::` a module's name is ours, and the layers' business.
                let ours = at.checked_sub(1).and_then(|i| all.get(i)).is_some_and(|before| before.text == "::");
                let here = |word: &&&str| starts_with(&all, at, word) && !(ours && word.ends_with("::"));
                for word in ban.words.iter().filter(here) {
                    found.push(Finding {
                        rule: "words",
                        file: module.file.clone(),
                        line: token.line,
                        what: format!("`{}` has no `{}`", module.path.join("::"), word.trim_end_matches("::")),
                        fix: ban.fix.to_owned(),
                    });
                }
            }
        }
    }
    found
}

/// Whether the words and `::` of `path` stand at `at`.
fn starts_with(all: &[source::Token], at: usize, path: &str) -> bool {
    tokens(path).iter().enumerate().all(|(i, t)| all.get(at + i).is_some_and(|other| other.text == t.text))
}

fn docs(tree: &Tree) -> Vec<Finding> {
    let missing = |(file, text): (&String, &String)| {
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        (!first.starts_with("//!")).then(|| Finding {
            rule: "doc",
            file: file.clone(),
            line: 1,
            what: "the file does not say what it is".to_owned(),
            fix: "begin it with `//!`: what it owns, what it never does".to_owned(),
        })
    };
    rust_files(tree).filter_map(missing).collect()
}

fn orphans(tree: &Tree) -> Vec<Finding> {
    let known: Vec<Module> = modules(tree);
    let orphan = |(file, _): (&String, &String)| {
        let declared = !file.starts_with("src/") || known.iter().any(|m| m.file == *file);
        (!declared).then(|| Finding {
            rule: "orphan",
            file: file.clone(),
            line: 1,
            what: "no `mod` declares this file, so nothing compiles it".to_owned(),
            fix: "declare it in the module above, or delete it".to_owned(),
        })
    };
    rust_files(tree).filter_map(orphan).collect()
}

fn allows(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, text) in rust_files(tree) {
        let all = tokens(text);
        let mut attribute = 0_usize;
        for (at, token) in all.iter().enumerate() {
            let before = |n: usize| at.checked_sub(n).and_then(|i| all.get(i)).map_or("", |t| t.text.as_str());
            match token.text.as_str() {
                "[" if before(1) == "#" || (before(1) == "!" && before(2) == "#") || attribute > 0 => attribute += 1,
                "]" => attribute = attribute.saturating_sub(1),
                "allow" if attribute > 0 && starts_with(&all, at, "allow(") => found.push(Finding {
                    rule: "allow",
                    file: file.clone(),
                    line: token.line,
                    what: "a lint is switched off".to_owned(),
                    fix: "mend what it says, or `#[expect(lint, reason = \"…\")]`".to_owned(),
                }),
                _ => {}
            }
        }
    }
    found
}

fn unfinished(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, text) in rust_files(tree) {
        let all = tokens(text);
        for (at, token) in all.iter().enumerate() {
            if starts_with(&all, at, "todo!") || starts_with(&all, at, "unimplemented!") {
                found.push(Finding {
                    rule: "unfinished",
                    file: file.clone(),
                    line: token.line,
                    what: format!("`{}!` stands for something that is not written", token.text),
                    fix: "write it, or refuse the case with an error that says so".to_owned(),
                });
            }
        }
    }
    found
}

fn registries(tree: &Tree) -> Vec<Finding> {
    let holds = |line: &str| {
        let line = line.trim();
        if line == LOCKED_SOURCE { None } else { REGISTRIES.into_iter().find(|host| line.contains(host)) }
    };
    in_lines(tree, "registry", holds, "name the package and leave where it comes from to its manager's own default")
}

fn machine_paths(tree: &Tree) -> Vec<Finding> {
    let holds = |line: &str| {
        MACHINE_PATHS.into_iter().find(|path| {
            line.match_indices(path).any(|(at, _)| {
                // In the middle of a longer path it is a name like any other.
                let before = line.get(..at).and_then(|b| b.chars().next_back());
                !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '}' | '~' | '*'))
            })
        })
    };
    in_lines(tree, "machine-path", holds, "use a path relative to the project, or a variable with a default")
}

/// A finding for each line of any text file in which `holds` finds something.
fn in_lines(tree: &Tree, rule: &'static str, holds: impl Fn(&str) -> Option<&'static str>, fix: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, text) in tree {
        for (line, content) in text.lines().enumerate() {
            if let Some(what) = holds(content) {
                let what = format!("the file holds `{what}`");
                found.push(Finding { rule, file: file.clone(), line: line + 1, what, fix: fix.to_owned() });
            }
        }
    }
    found
}

fn rust_files(tree: &Tree) -> impl Iterator<Item = (&String, &String)> {
    tree.iter().filter(|(file, _)| file.ends_with(".rs"))
}

#[test]
fn the_house_is_tidy() {
    let tree = read_tree(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(tree.contains_key("src/lib.rs") && tree.contains_key("Cargo.toml"), "the project was read");
    let found: Vec<String> = findings(&tree).iter().map(Finding::to_string).collect();
    assert!(found.is_empty(), "{} findings:\n{}", found.len(), found.join("\n"));
}

#[test]
fn every_layer_uses_only_layers_above_it() {
    for (row, layer) in LAYERS.iter().enumerate() {
        for path in layer.may_use {
            let module = path.split("::").next().unwrap_or_default();
            assert!(LAYERS[..row].iter().any(|above| above.module == module), "{} may use {path}", layer.module);
        }
    }
}

/// A crate of these modules and files, each file begun with what every file needs.
fn tree(modules: &[&str], files: &[(&str, &str)]) -> Tree {
    let root: String = modules.iter().map(|m| format!("pub mod {m};\n")).collect();
    let lib = ("src/lib.rs".to_owned(), format!("//! A crate.\n{root}"));
    let file = |(file, text): &(&str, &str)| {
        let doc = if file.ends_with(".rs") { "//! A file.\n" } else { "" };
        ((*file).to_owned(), format!("{doc}{text}"))
    };
    std::iter::once(lib).chain(files.iter().map(file)).collect()
}

/// A file as it stands, without anything before it.
fn bare(file: &str, text: &str) -> Tree {
    Tree::from([(file.to_owned(), text.to_owned())])
}

/// A rule, the place of the one finding, and the files that cause it.
type Bad = (&'static str, &'static str, usize, Tree);

fn bad() -> Vec<Bad> {
    let path = MACHINE_PATHS[0];
    vec![
        ("layers", "src/key.rs", 2, tree(&["key"], &[("src/key.rs", "use crate::store::Seq;")])),
        ("layers", "src/key.rs", 3, tree(&["key"], &[("src/key.rs", "fn f() {\ncrate::clock::now() }")])),
        ("layers", "src/key.rs", 2, tree(&["key"], &[("src/key.rs", "use crate::{event::Seq, verify::Mac};")])),
        ("layers", "src/key.rs", 2, tree(&["key"], &[("src/key.rs", "use super::verify;")])),
        (
            "layers",
            "src/key/mod.rs",
            4,
            tree(&["key"], &[("src/key/mod.rs", "mod t {\n use super::x;\n use super::super::app; }")]),
        ),
        ("layers", "src/deliver.rs", 2, tree(&["deliver"], &[("src/deliver.rs", "use crate::verify::Verifier;")])),
        ("layers", "src/listen.rs", 2, tree(&["listen"], &[("src/listen.rs", "use crate::driver::run::Loop;")])),
        ("layers", "src/listen.rs", 2, tree(&["listen"], &[("src/listen.rs", "use crate::store::Error;")])),
        (
            "layers",
            "src/store.rs",
            3,
            tree(&["store"], &[("src/store.rs", "#[cfg(test)]\nmod t { use crate::engine::E; }")]),
        ),
        ("layers", "src/key.rs", 2, tree(&["key"], &[("src/key.rs", "use crate::clock::TestClock;")])),
        ("layers", "src/driver.rs", 2, tree(&["driver"], &[("src/driver.rs", "use crate::config;")])),
        ("layers", "src/util.rs", 1, tree(&["util"], &[("src/util.rs", "")])),
        ("words", "src/engine.rs", 2, tree(&["engine"], &[("src/engine.rs", "use std::time::Instant;")])),
        ("words", "src/engine.rs", 2, tree(&["engine"], &[("src/engine.rs", "async fn f() {}")])),
        ("words", "src/verify.rs", 2, tree(&["verify"], &[("src/verify.rs", "fn f() { tracing::info!(1) }")])),
        ("words", "src/event.rs", 2, tree(&["event"], &[("src/event.rs", "fn f() { rand::random() }")])),
        ("words", "src/key.rs", 2, tree(&["key"], &[("src/key.rs", "fn f() { std::env::var(x) }")])),
        ("words", "src/config.rs", 2, tree(&["config"], &[("src/config.rs", "use tokio::net;")])),
        ("doc", "src/lib.rs", 1, bare("src/lib.rs", "// Only a comment.")),
        ("doc", "examples/a.rs", 1, bare("examples/a.rs", "fn main() {}\n//! Too late.")),
        (
            "orphan",
            "src/key/lost.rs",
            1,
            tree(&["key"], &[("src/key/mod.rs", "// mod lost;"), ("src/key/lost.rs", "")]),
        ),
        ("orphan", "src/lost.rs", 1, tree(&[], &[("src/lost.rs", "")])),
        ("allow", "src/key.rs", 2, tree(&["key"], &[("src/key.rs", "#[allow(dead_code)] fn f() {}")])),
        ("allow", "src/key.rs", 2, tree(&["key"], &[("src/key.rs", "#![allow(dead_code)]")])),
        ("allow", "tests/a.rs", 2, tree(&[], &[("tests/a.rs", "#[cfg_attr(x, allow(dead_code))] fn f() {}")])),
        ("unfinished", "src/key.rs", 3, tree(&["key"], &[("src/key.rs", "fn f() {\ntodo!() }")])),
        ("unfinished", "src/key.rs", 2, tree(&["key"], &[("src/key.rs", "fn f() { unimplemented!(\"later\") }")])),
        ("registry", "README.md", 2, tree(&[], &[("README.md", &format!("get it\nfrom https://{}/x", REGISTRIES[0]))])),
        (
            "registry",
            "Cargo.lock",
            1,
            tree(&[], &[("Cargo.lock", &format!("source = \"registry+https://mirror.{}\"", REGISTRIES[0]))]),
        ),
        ("machine-path", "docs/a.md", 1, tree(&[], &[("docs/a.md", &format!("cd {path}main"))])),
        (
            "machine-path",
            "deploy/a.yaml",
            1,
            tree(&[], &[("deploy/a.yaml", &format!("path: \"{}x\"", MACHINE_PATHS[1]))]),
        ),
    ]
}

#[test]
fn each_rule_can_fail() {
    for (rule, file, line, tree) in bad() {
        let found = findings(&tree);
        let places: Vec<_> = found.iter().map(|f| (f.rule, f.file.as_str(), f.line)).collect();
        assert_eq!(places, vec![(rule, file, line)], "{tree:#?}");
        let text = found[0].to_string();
        assert!(text.contains(&format!("{file}:{line}: [{rule}]")) && text.contains("fix: "), "{text}");
    }
    for (rule, _) in RULES {
        assert!(bad().iter().any(|(covered, ..)| covered == rule), "no bad snippet for {rule}");
    }
}

#[test]
fn what_is_tidy_is_left_alone() {
    for tree in [
        tree(&["key"], &[("src/key.rs", "use crate::event::{Seq, Wall as W};\nuse super::event::Group;")]),
        tree(
            &["key"],
            &[("src/key/mod.rs", "mod json;\nuse crate::key::json::X;"), ("src/key/json.rs", "use super::Y;")],
        ),
        tree(
            &["key"],
            &[("src/key.rs", "#[cfg(test)]\nmod tests { use super::*; use crate::clock::TestClock; use std::fs; }")],
        ),
        tree(&["key"], &[("src/key/mod.rs", "#[cfg(test)]\nmod tests;"), ("src/key/tests.rs", "use std::env::var;")]),
        tree(
            &["key"],
            &[(
                "src/key.rs",
                "// crate::store, todo!(), #[allow(x)]\nconst A: &str = \"crate::store todo!() Instant\";",
            )],
        ),
        tree(
            &["key"],
            &[("src/key.rs", "const A: (char, &str) = ('\"', r#\"crate::app \"todo!()\"#); fn f<'a>(x: &'a str) {}")],
        ),
        tree(&["key"], &[("src/key.rs", "/* crate::app /* nested */ todo!() */ fn f(clock: u8, todo: u8) {}")]),
        tree(&["key"], &[("src/key.rs", "#[expect(dead_code, reason = \"x\")] pub(crate) fn allow(x: u8) {}")]),
        tree(&["deliver"], &[("src/deliver.rs", "use crate::verify::mac::Hmac;")]),
        tree(
            &["listen", "admin"],
            &[("src/listen.rs", "use crate::driver::Handle;"), ("src/admin.rs", "use crate::driver::{Handle, Story};")],
        ),
        tree(&["config"], &[("src/config.rs", "use crate::{listen, store::embedded::Settings};")]),
        tree(&["app"], &[("src/app.rs", "use crate::driver::run::Loop;")]),
        tree(&[], &[("Cargo.lock", LOCKED_SOURCE), ("docs/a.md", &format!("/hooks{}x", MACHINE_PATHS[0]))]),
    ] {
        assert_eq!(findings(&tree), vec![], "{tree:#?}");
    }
}

/// The compiler sees to it in every target of the package, as long as this line is there: what forbids cannot be allowed again further in.
#[test]
fn unsafe_code_is_forbidden() {
    let manifest = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let lints = manifest.split("\n[lints.rust]\n").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap();
    assert!(lints.lines().any(|line| line == "unsafe_code = \"forbid\""), "{lints}");
}
