//! Files of one JSON object a line, of any length as a whole, read a line at a time.

use std::io::{self, BufRead, Read as _};

/// The longest line: a body of 26 MiB in base64, and its headers.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// The lines of a file that are not blank, with their numbers from 1.
pub(super) struct Lines<R> {
    reader: R,
    number: u64,
    text: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn of(reader: R) -> Self {
        Self { reader, number: 0, text: Vec::new() }
    }

    /// The next one; `None` at the end.
    ///
    /// # Errors
    /// Reading failed, or a line is longer than 64 MiB: what has no line ends is no such file, and may have no end either.
    pub(super) fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        loop {
            self.number += 1;
            self.text.clear();
            let read = self.reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.text)?;
            if read == 0 {
                return Ok(None);
            }
            if self.text.last() != Some(&b'\n') && u64::try_from(read).is_ok_and(|read| read == LINE_BYTES_MAX) {
                let what = format!("line {} is longer than {} MiB", self.number, LINE_BYTES_MAX >> 20);
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            if !self.text.trim_ascii().is_empty() {
                return Ok(Some((self.number, &self.text)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_are_counted_and_left_out() {
        let mut lines = Lines::of(&b"a\n\n  \nb"[..]);
        assert_eq!(lines.next().unwrap(), Some((1, &b"a\n"[..])));
        assert_eq!(lines.next().unwrap(), Some((4, &b"b"[..])));
        assert_eq!(lines.next().unwrap(), None);
    }

    #[test]
    fn what_has_no_line_ends_is_refused() {
        let mut lines = Lines::of(io::BufReader::new(io::repeat(b'x')));
        assert!(lines.next().unwrap_err().to_string().contains("line 1 is longer than 64 MiB"));
    }
}
