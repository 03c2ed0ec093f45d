//! Where the demo speaks: lines that stay, one line that moves on a terminal, and how wide and colourful they may be.

use std::io::{IsTerminal as _, Write as _};

use super::super::print;

/// No line is longer, however wide the terminal.
const WIDTH_MAX: usize = 100;

/// How wide a text is that no terminal shows.
const WIDTH_WITHOUT_TERMINAL: usize = 80;

/// The two ways out, and what they can do.
pub(super) struct Screen {
    /// What is printed is JSON, so what is told goes to standard error.
    json: bool,
    colour: bool,
    width: usize,
    /// Standard error is a terminal, so that a line can move there.
    moves: bool,
}

impl Screen {
    /// As this process's outputs and `NO_COLOR` (no-color.org) have it.
    pub(super) fn new(json: bool) -> Self {
        let told = if json { std::io::stderr().is_terminal() } else { std::io::stdout().is_terminal() };
        let columns = |fd: std::io::Result<rustix::termios::Winsize>| fd.ok().map(|size| usize::from(size.ws_col));
        let width = columns(rustix::termios::tcgetwinsize(std::io::stdout()).map_err(Into::into))
            .or_else(|| columns(rustix::termios::tcgetwinsize(std::io::stderr()).map_err(Into::into)))
            .filter(|columns| *columns > 0)
            .unwrap_or(WIDTH_WITHOUT_TERMINAL);
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { json, colour: told && !refused, width: width.min(WIDTH_MAX), moves: std::io::stderr().is_terminal() }
    }

    /// Prints a text that stays. Its lines must fit.
    pub(super) fn say(&self, text: &str) {
        self.still();
        if self.json {
            // Without a standard error there is nobody to tell; the figures are printed all the same.
            writeln!(std::io::stderr().lock(), "{text}").ok();
        } else {
            print(format!("{text}\n").as_bytes());
        }
    }

    /// [`Self::say`], folded to the width.
    pub(super) fn tell(&self, text: &str) {
        self.say(&folded(text, self.width, ""));
    }

    /// [`Self::tell`] below a step's heading.
    pub(super) fn tell_indented(&self, text: &str) {
        self.say(&folded(text, self.width, "   "));
    }

    /// [`Self::tell`] with emphasis.
    pub(super) fn tell_loudly(&self, text: &str, how: Loud) {
        self.say(&self.loud(&folded(text, self.width, ""), how));
    }

    /// `text` with emphasis where colours are wanted.
    pub(super) fn loud(&self, text: &str, how: Loud) -> String {
        if self.colour { format!("\x1b[{}m{text}\x1b[0m", how.code()) } else { text.to_owned() }
    }

    /// Shows `line` in place of the one that was shown before.
    pub(super) fn moving(&self, line: &str) {
        if self.moves {
            let line: String = line.chars().take(self.width.saturating_sub(1)).collect();
            write!(std::io::stderr().lock(), "\r\x1b[2K{line}").ok();
        }
    }

    /// Takes the moving line away.
    pub(super) fn still(&self) {
        self.moving("");
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.still();
    }
}

/// How a text stands out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Loud {
    Heading,
    Good,
    Bad,
}

impl Loud {
    fn code(self) -> &'static str {
        match self {
            Self::Heading => "1",
            Self::Good => "1;32",
            Self::Bad => "1;31",
        }
    }
}

/// `text` in lines of at most `width` characters, where its words allow, each after `indent`.
fn folded(text: &str, width: usize, indent: &str) -> String {
    let mut lines = indent.to_owned();
    let mut column = indent.chars().count();
    let begin = column;
    for word in words(text) {
        let length = word.chars().count();
        if column > begin && column + 1 + length > width {
            lines.push('\n');
            lines.push_str(indent);
            column = begin;
        } else if column > begin {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(&word);
        column += length;
    }
    lines
}

/// The words of `text`, a number and its unit as one.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let is_unit = matches!(word.trim_end_matches([',', '.', ';', ':', ')']), "ms" | "s" | "MiB");
        match words.last_mut() {
            Some(last) if is_unit => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_folded_between_words() {
        assert_eq!(folded("one two three", 7, ""), "one two\nthree");
        assert_eq!(folded("one two three", 13, ""), "one two three");
        assert_eq!(folded("unbreakable", 4, ""), "unbreakable");
        assert_eq!(folded("a bb ccc", 5, "  "), "  a\n  bb\n  ccc");
        assert_eq!(folded("took 15 ms, no more", 8, ""), "took\n15 ms,\nno more");
    }

    #[test]
    fn colours_are_left_out_where_they_are_not_wanted() {
        let screen = |colour| Screen { json: false, colour, width: 60, moves: false };
        assert_eq!(screen(false).loud("a", Loud::Bad), "a");
        assert_eq!(screen(true).loud("a", Loud::Bad), "\x1b[1;31ma\x1b[0m");
    }
}
