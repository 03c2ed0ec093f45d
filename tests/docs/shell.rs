//! Shell text as far as the tests need it: the simple commands in it, each as its words.

use std::iter::Peekable;
use std::str::Chars;

/// Words that stand before a command.
const BEFORE: [&str; 10] = ["sudo", "until", "while", "do", "if", "then", "else", "!", "time", "exec"];

/// The simple commands of a script. Assignments and keywords before a command are left out, and so are here-documents,
/// redirections and whatever stands inside double quotes.
pub(crate) fn commands(script: &str) -> Vec<Vec<String>> {
    let script = without_here_documents(script);
    let mut words: Vec<String> = Vec::new();
    let mut all: Vec<Vec<String>> = Vec::new();
    let mut word = None::<String>;
    let mut rest = script.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' => {
                if let Some(next) = rest.next().filter(|next| *next != '\n') {
                    word.get_or_insert_default().push(next);
                }
            }
            '\'' | '"' => quoted(c, &mut rest, word.get_or_insert_default()),
            '#' if word.is_none() => while rest.next_if(|c| *c != '\n').is_some() {},
            '$' if rest.peek() == Some(&'{') => word.get_or_insert_default().push_str(&braces(&mut rest)),
            ' ' | '\t' => words.extend(word.take()),
            '<' | '>' => {
                // `2>`: the number is no word.
                words.extend(word.take().filter(|word| word.parse::<u8>().is_err()));
                redirection(&mut rest);
            }
            '\n' | ';' | '|' | '&' | '(' | ')' => {
                words.extend(word.take());
                all.push(std::mem::take(&mut words));
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    all.push(words);
    all.into_iter().map(|words| begun(&words).to_vec()).filter(|words| !words.is_empty()).collect()
}

fn without_here_documents(script: &str) -> String {
    let (mut kept, mut end) = (String::new(), None::<String>);
    for line in script.lines() {
        match &end {
            Some(mark) if line == mark => end = None,
            Some(_) => {}
            None => {
                end = line.split_once("<<").map(|(_, mark)| mark.trim().trim_matches('\'').to_owned());
                kept.push_str(line.split("<<").next().unwrap());
                kept.push('\n');
            }
        }
    }
    kept
}

fn quoted(quote: char, rest: &mut Peekable<Chars<'_>>, word: &mut String) {
    while let Some(c) = rest.next().filter(|c| *c != quote) {
        let escaped = c == '\\' && quote == '"';
        word.push(if escaped { rest.next().unwrap_or(c) } else { c });
    }
}

/// Skips the rest of the sign and the file or descriptor after it.
fn redirection(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|c| matches!(c, '<' | '>' | '&' | ' ')).is_some() {}
    while rest.next_if(|c| !matches!(c, ' ' | '\n' | ';' | '|' | '&' | ')')).is_some() {}
}

fn braces(rest: &mut Peekable<Chars<'_>>) -> String {
    let mut text = "$".to_owned();
    for c in rest.by_ref() {
        text.push(c);
        if c == '}' {
            break;
        }
    }
    text
}

/// From the command's own name on.
fn begun(words: &[String]) -> &[String] {
    let before = |word: &String| {
        let name = word.split('=').next().unwrap_or_default();
        let assigns = word.contains('=') && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        assigns || BEFORE.contains(&word.as_str())
    };
    let skipped = words.iter().take_while(|word| before(word)).count();
    words.get(skipped..).unwrap_or_default()
}

#[test]
fn commands_are_found_wherever_they_stand() {
    let script = "export A=$(fairlane check -c 'a b') # not: fairlane no\nB=1 echo \"x # y\" |\n  fairlane send --to \"$1\" \\\n  --header 'A: b' >> out 2>&1 &\nuntil curl -s http://h/p; do sleep 1; done\ncat > f <<'EOF'\nfairlane nothing\nEOF\n";
    let found: Vec<String> = commands(script).into_iter().map(|words| words.join("|")).collect();
    assert_eq!(
        found,
        [
            "export|A=$",
            "fairlane|check|-c|a b",
            "echo|x # y",
            "fairlane|send|--to|$1|--header|A: b",
            "curl|-s|http://h/p",
            "sleep|1",
            "done",
            "cat"
        ]
    );
}
