//! A command line as a POSIX shell cuts it into words (XCU §2.2, and bash's `$'…'`), without running anything.

/// The words of the first command in `text`. What would need a shell (variables, substitutions) is refused.
pub(super) fn split(text: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut rest = text.as_bytes();
    loop {
        rest = match rest {
            [] | [b'|' | b';' | b'<' | b'>' | b'&' | b'\n', ..] => break,
            [b'\\', b'\n', tail @ ..] | [b'\\', b'\r', b'\n', tail @ ..] => tail,
            [b'\\', byte, tail @ ..] => {
                word.get_or_insert_default().push(*byte);
                tail
            }
            [b'$', b'\'', tail @ ..] => ansi(tail, word.get_or_insert_default())?,
            [b'$', b'"', tail @ ..] | [b'"', tail @ ..] => double(tail, word.get_or_insert_default())?,
            [b'\'', tail @ ..] => {
                let at = memchr::memchr(b'\'', tail).ok_or("a ' is not closed")?;
                word.get_or_insert_default().extend_from_slice(tail.get(..at).unwrap_or_default());
                tail.get(at + 1..).unwrap_or_default()
            }
            [b' ' | b'\t' | b'\r', tail @ ..] => {
                words.extend(word.take());
                tail
            }
            [b'#', ..] if word.is_none() => break,
            [first, tail @ ..] => {
                no_shell(*first, tail)?;
                word.get_or_insert_default().push(*first);
                tail
            }
        }
    }
    words.extend(word);
    Ok(words)
}

/// A variable's value is not in the text.
fn no_shell(byte: u8, tail: &[u8]) -> Result<(), String> {
    let names = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'{' | b'(');
    if byte == b'`' || (byte == b'$' && tail.first().is_some_and(names)) {
        let at = tail.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
        let name = String::from_utf8_lossy(tail.get(..at).unwrap_or_default()).into_owned();
        return Err(format!(
            "the command needs a shell to fill ${name} in: write its value there, or quote it with '…'"
        ));
    }
    Ok(())
}

/// The inside of `"…"`; the answer is what follows.
fn double<'t>(mut rest: &'t [u8], word: &mut Vec<u8>) -> Result<&'t [u8], String> {
    loop {
        rest = match rest {
            [] => return Err("a \" is not closed".to_owned()),
            [b'"', tail @ ..] => return Ok(tail),
            [b'\\', b'\n', tail @ ..] => tail,
            [b'\\', byte @ (b'$' | b'`' | b'"' | b'\\'), tail @ ..] => {
                word.push(*byte);
                tail
            }
            [byte, tail @ ..] => {
                no_shell(*byte, tail)?;
                word.push(*byte);
                tail
            }
        }
    }
}

/// The inside of `$'…'`; the answer is what follows.
fn ansi<'t>(mut rest: &'t [u8], word: &mut Vec<u8>) -> Result<&'t [u8], String> {
    loop {
        rest = match rest {
            [] => return Err("a $' is not closed".to_owned()),
            [b'\'', tail @ ..] => return Ok(tail),
            [b'\\', b'x', tail @ ..] => {
                let (code, tail) = number(tail, 2, 16)?;
                word.extend(u8::try_from(code));
                tail
            }
            [b'\\', letter @ (b'u' | b'U'), tail @ ..] => {
                let (code, tail) = number(tail, if *letter == b'u' { 4 } else { 8 }, 16)?;
                let letter = char::from_u32(code).ok_or("a \\u in $'…' is no character")?;
                word.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                tail
            }
            [b'\\', b'0'..=b'7', ..] => {
                let (code, tail) = number(rest.get(1..).unwrap_or_default(), 3, 8)?;
                word.push((code & 0xff) as u8);
                tail
            }
            [b'\\', byte, tail @ ..] => {
                let escaped = match byte {
                    b'n' => &b"\n"[..],
                    b'r' => b"\r",
                    b't' => b"\t",
                    b'a' => b"\x07",
                    b'b' => b"\x08",
                    b'e' | b'E' => b"\x1b",
                    b'f' => b"\x0c",
                    b'v' => b"\x0b",
                    b'\'' | b'"' | b'\\' | b'?' => std::slice::from_ref(byte),
                    // Unknown ones keep their backslash.
                    other => &[b'\\', *other],
                };
                word.extend_from_slice(escaped);
                tail
            }
            [byte, tail @ ..] => {
                word.push(*byte);
                tail
            }
        }
    }
}

/// A number of at most so many digits, and what follows.
fn number(rest: &[u8], digits: usize, radix: u32) -> Result<(u32, &[u8]), String> {
    let count = rest.iter().take(digits).take_while(|byte| char::from(**byte).is_digit(radix)).count();
    let (text, tail) = rest.split_at_checked(count).unwrap_or_default();
    let code = std::str::from_utf8(text).ok().and_then(|text| u32::from_str_radix(text, radix).ok());
    Ok((code.ok_or("an escape in $'…' has no digits")?, tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        split(text).unwrap().into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
    }

    #[test]
    fn words_are_cut_as_a_shell_cuts_them() {
        assert_eq!(texts("a  b\\ c \\\n 'd \"e' \"f 'g\\\"\"h # no"), ["a", "b c", "d \"e", "f 'g\"h"]);
        assert_eq!(texts(r"$'a\n\u00e9\x41\101\'\\\q'b ''"), ["a\né\x41A'\\\\qb", ""]);
        assert_eq!(texts("a | b"), ["a"]);
        assert_eq!(texts("a\nb"), ["a"]);
        assert_eq!(texts("a \\\r\n  b"), ["a", "b"]);
        assert_eq!(texts("'$x' a$ $"), ["$x", "a$", "$"]);
    }

    #[test]
    fn what_needs_a_shell_or_is_not_whole_is_refused() {
        for (text, why) in [
            ("a $TOKEN", "fill $TOKEN in"),
            ("a \"${TOKEN}\"", "needs a shell"),
            ("a `id`", "needs a shell"),
            ("a 'b", "' is not closed"),
            ("a \"b", "\" is not closed"),
            ("a $'b", "$' is not closed"),
            (r"$'\xzz'", "no digits"),
            (r"$'\ud800'", "no character"),
        ] {
            let error = split(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
