//! Configurations: every field's own file, the examples, what is deployed and what the tests refuse, with lines, fields and bytes changed.
//! Each is refused with places that are in the file, in words that can be printed and hold nothing of the environment; or it is accepted, and
//! what is shown as its effect is accepted and means the same.

use std::io;
use std::path::{Path, PathBuf};

use fairlane::config::{self, Config, Problem};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use crate::{each_seed, mutate};

/// Files in an ordinary run: some seconds of a debug build.
const ROUNDS: u64 = 1_500;

/// What every variable and every file holds. Problems show none of it.
const HUSH: &str = "whsec_aHVudGVyMi1odW50ZXIyLWh1bnRlcjI=";

/// What takes a reader of YAML to its edges.
const NASTY: &[&[u8]] = &[
    b"\n",
    b"\r\n",
    b"\t",
    b"  ",
    b": ",
    b":",
    b"- ",
    b"-",
    b"? ",
    b"{",
    b"}",
    b"[",
    b"]",
    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    b"{a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: ",
    b", ",
    b"'",
    b"\"",
    b"\"\\x\"",
    b"\"\\ud800\"",
    b"\"\\0\"",
    b"#",
    b" # x",
    b"&a ",
    b"*a",
    b"<<: *a",
    b"&a [*a]",
    b"!!binary aGk=",
    b"!!int \"5\"",
    b"!x ",
    b"| \n",
    b">-\n",
    b"---\n",
    b"...\n",
    b"%YAML 1.2\n---\n",
    b"~",
    b"null",
    b"true",
    b"yes",
    b"0x10",
    b"010",
    b"1e400",
    b".nan",
    b"-.inf",
    b"-1",
    b"18446744073709551616",
    b"99999999999999999999h",
    b"9007199254740993MiB",
    b"1e9/s",
    b"0/s",
    b"${",
    b"${}",
    b"${A:-${B}}",
    b"${PORT}",
    b"$$",
    b"file:",
    b"file:/run/secrets/x",
    b"$[?(@.a==1)]",
    b"$..*..*",
    b"body.\"",
    b"const:",
    b"{ join: [a, b] }",
    b"/{a}/{a}/*",
    b"/*/*",
    b"[::1]:0",
    b"\0",
    b"\x7f",
    b"\xff",
    b"\xef\xbb\xbf",
    "\u{85}\u{2028}\u{202e}\u{feff}é\u{1f600}".as_bytes(),
];

#[test]
fn no_configuration_makes_it_panic() {
    let files = files();
    let fields: Vec<String> = config::paths();
    let mut accepted = 0;
    let tried =
        each_seed(ROUNDS, |seed| round(&files, &fields, seed), |is_accepted| accepted += u64::from(is_accepted));
    println!("{tried} configurations, {accepted} of them accepted");
    assert!(tried < 1_000 || accepted > tried / 100, "{accepted} of {tried}: nothing but the parser is tried");
}

/// Every YAML file of a configuration that there is.
fn files() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths =
        vec![root.join("gateway.yaml"), root.join("deploy/gateway.yaml"), root.join("deploy/gateway.nodes.yaml")];
    let entries = |folder: &str| -> Vec<PathBuf> {
        std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    paths.extend(
        entries("examples").into_iter().map(|folder| folder.join("gateway.yaml")).filter(|file| file.is_file()),
    );
    paths.extend(entries("tests/config").into_iter().filter(|file| file.extension().is_some_and(|end| end == "yaml")));
    paths.sort();
    let files: Vec<String> = paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    assert!(files.len() > 40, "{}", files.len());
    files
}

fn load(text: &str) -> Result<Config, Vec<Problem>> {
    let env = |name: &str| match name {
        "PORT" => Some("8090".to_owned()),
        name if name.contains("UPSTREAM") || name.contains("URL") => Some("http://127.0.0.1:9".to_owned()),
        _ => Some(HUSH.to_owned()),
    };
    let files = |path: &Path| match path.starts_with("/run/secrets") {
        true => Ok(HUSH.to_owned()),
        false => Err(io::ErrorKind::NotFound.into()),
    };
    config::load(text, "gateway.yaml", &env, &files)
}

/// One mutated file; whether it was accepted.
fn round(files: &[String], fields: &[String], seed: u64) -> bool {
    let mut random = SmallRng::seed_from_u64(seed);
    let text = mutated(files, fields, &mut random);
    match load(&text) {
        Ok(config) => {
            means_the_same(&config);
            true
        }
        Err(problems) => {
            assert!(!problems.is_empty(), "refused without a reason");
            problems.iter().for_each(|problem| is_for_people(problem, &text));
            false
        }
    }
}

fn mutated(files: &[String], fields: &[String], random: &mut SmallRng) -> String {
    let (text, other) = (files.choose(random).unwrap(), files.choose(random).unwrap());
    let mut lines: Vec<Vec<u8>> = text.lines().map(|line| [line.as_bytes(), b"\n"].concat()).collect();
    for _ in 0..random.random_range(0..3) {
        match random.random_range(0..4) {
            0 => mutate::pieces(&mut lines, NASTY, random),
            1 => {
                // A line of another file.
                let line =
                    other.lines().collect::<Vec<_>>().choose(random).map(|line| format!("{line}\n").into_bytes());
                let at = random.random_range(0..=lines.len());
                lines.splice(at..at, line);
            }
            2 => change_line(&mut lines, fields, random),
            _ => {
                let mut whole = lines.concat();
                mutate::bytes(&mut whole, other.as_bytes(), NASTY, random);
                lines = whole.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            }
        }
    }
    String::from_utf8_lossy(&lines.concat()).into_owned()
}

/// Another name before the colon, another value behind it, or another indent.
fn change_line(lines: &mut [Vec<u8>], fields: &[String], random: &mut SmallRng) {
    let Some(at) = (!lines.is_empty()).then(|| random.random_range(0..lines.len())) else { return };
    let line = String::from_utf8_lossy(&lines[at]).into_owned();
    let indent = line.len() - line.trim_start().len();
    let name = fields.choose(random).and_then(|path| path.rsplit('.').next()).unwrap();
    let nasty = String::from_utf8_lossy(NASTY.choose(random).unwrap()).into_owned();
    let (before, after) = line.split_once(':').unwrap_or((&line, "\n"));
    lines[at] = match random.random_range(0..4) {
        0 => format!("{}{name}:{after}", &line[..indent]),
        1 => format!("{before}: {nasty}\n"),
        2 => format!("{}{}", " ".repeat(random.random_range(0..8)), line.trim_start()),
        _ => format!("{before}: {{ {name}: {nasty} }}\n"),
    }
    .into_bytes();
}

/// It is in the file, it can be printed, and it tells nothing.
fn is_for_people(problem: &Problem, text: &str) {
    let said = problem.text();
    let shown = problem.json();
    let (line, column) = (shown["line"].as_u64().unwrap(), shown["column"].as_u64().unwrap());
    // As YAML 1.2 breaks lines (§5.4).
    let breaks = text.replace("\r\n", "\n").replace('\r', "\n");
    let lines: Vec<&str> = breaks.split('\n').collect();
    assert!(line >= 1 && column >= 1, "{said}");
    // What is missing at the end is missing behind the last line, or behind the last character of one.
    let length = usize::try_from(line - 1).ok().and_then(|at| lines.get(at)).map_or(0, |line| line.chars().count());
    assert!(line <= lines.len() as u64 + 1, "{said}: there are {} lines", lines.len());
    assert!(column <= length as u64 + 1, "{said}: the line has {length} characters");
    assert!(said.chars().all(|c| c == '\n' || !c.is_control()), "{said:?}");
    assert!(!said.contains("hunter2") && !said.contains("aHVudGVyMi"), "{said}");
}

/// The effect, secrets put back, is a configuration with the same effect.
fn means_the_same(config: &Config) {
    let effect = &config.effective;
    assert!(effect.chars().all(|c| c == '\n' || !c.is_control()), "{effect:?}");
    let again = load(&effect.replace("***", HUSH));
    match again {
        Ok(again) => assert_eq!(again.effective, *effect),
        // A secret of another form than this one.
        Err(problems) => {
            let other: Vec<_> = problems.iter().filter(|problem| !is_about_a_secret(problem)).collect();
            assert!(other.is_empty(), "{other:?}\n{effect}");
        }
    }
}

fn is_about_a_secret(problem: &Problem) -> bool {
    let form = ["secret", "token", "url", "webhook", "headers", "tls"];
    form.iter().any(|name| problem.path.contains(name))
}
