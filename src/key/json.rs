//! Reads a JSON document (RFC 8259) through to its end without building a tree.
//!
//! serde_json skips values just as well, but it cannot say how deep a document goes, and it refuses a whole document for
//! half a surrogate in a member name nobody asked for; receivers take both. What this reader accepts is what
//! serde_json accepts and ignores, and a property test holds the two together.
//!
//! Every byte is looked at a bounded number of times, and nesting costs a bit a level on the heap: neither a long nor a deep
//! document is a weapon.

/// The text is not a JSON document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Invalid;

/// Where a value or a string stands: byte offsets of its first byte and past its last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// A place in a document that only moves forward.
#[derive(Debug)]
pub(super) struct Cursor<'t> {
    text: &'t str,
    at: usize,
    deepest: usize,
    /// Bytes looked at: the measure by which tests hold that work is linear.
    #[cfg(test)]
    pub(super) looks: usize,
}

impl<'t> Cursor<'t> {
    /// At the beginning of `text`.
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            text,
            at: 0,
            deepest: 0,
            #[cfg(test)]
            looks: 0,
        }
    }

    /// The byte offset.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The most arrays and objects seen open at once.
    pub(super) fn deepest(&self) -> usize {
        self.deepest
    }

    /// The text of `span`; its ends are ASCII bytes, so it never cuts a character.
    pub(super) fn text_of(&self, span: Span) -> &'t str {
        self.text.get(span.start..span.end).unwrap_or_default()
    }

    /// The next byte that is not white space, not consumed. A document that ends here is invalid.
    pub(super) fn token(&mut self) -> Result<u8, Invalid> {
        loop {
            match self.peek().ok_or(Invalid)? {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                byte => return Ok(byte),
            }
        }
    }

    /// Consumes the byte that [`token`](Self::token) gave.
    pub(super) fn bump(&mut self) {
        self.at += 1;
    }

    /// Whether nothing but white space is left.
    pub(super) fn ended(&mut self) -> Result<(), Invalid> {
        match self.token() {
            Ok(_) => Err(Invalid),
            Err(Invalid) => Ok(()),
        }
    }

    /// Notes that `depth` arrays and objects are open.
    pub(super) fn reached(&mut self, depth: usize) {
        self.deepest = self.deepest.max(depth);
    }

    /// A member's name and its colon; the span has the quotes.
    pub(super) fn name(&mut self) -> Result<Span, Invalid> {
        if self.token()? != b'"' {
            return Err(Invalid);
        }
        let name = self.string()?;
        if self.token()? != b':' {
            return Err(Invalid);
        }
        self.bump();
        Ok(name)
    }

    /// A value of any kind and depth, inside `depth` open arrays and objects.
    pub(super) fn skip(&mut self, depth: usize) -> Result<(), Invalid> {
        let mut open = Nest::default();
        loop {
            // A value is due here.
            let first = self.token()?;
            if let b'{' | b'[' = first {
                let object = first == b'{';
                self.bump();
                open.push(object);
                self.reached(depth + open.len);
                if self.token()? == if object { b'}' } else { b']' } {
                    self.bump();
                    open.pop();
                } else {
                    if object {
                        self.name()?;
                    }
                    continue;
                }
            } else {
                self.scalar(first)?;
            }
            // A value has ended here: close what ends with it, up to the next comma.
            loop {
                let Some(object) = open.last() else { return Ok(()) };
                let byte = self.token()?;
                self.bump();
                match (object, byte) {
                    (true, b',') => {
                        self.name()?;
                        break;
                    }
                    (false, b',') => break,
                    (true, b'}') | (false, b']') => open.pop(),
                    _ => return Err(Invalid),
                }
            }
        }
    }

    /// A string, number or word that begins with `first`.
    pub(super) fn scalar(&mut self, first: u8) -> Result<Span, Invalid> {
        let start = self.at;
        match first {
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' => self.number()?,
            b't' => self.word("true")?,
            b'f' => self.word("false")?,
            b'n' => self.word("null")?,
            _ => return Err(Invalid),
        }
        Ok(Span { start, end: self.at })
    }

    /// A string, with its quotes, at whose opening quote the cursor stands.
    fn string(&mut self) -> Result<Span, Invalid> {
        let start = self.at;
        self.at += 1;
        loop {
            let plain = plain_run(self.rest());
            self.look(plain);
            self.at += plain;
            match self.peek().ok_or(Invalid)? {
                b'"' => {
                    self.at += 1;
                    return Ok(Span { start, end: self.at });
                }
                b'\\' => self.escape()?,
                _ => return Err(Invalid),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Invalid> {
        self.at += 1;
        let kind = self.peek().ok_or(Invalid)?;
        self.at += 1;
        match kind {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(()),
            b'u' => {
                let digits = self.rest().first_chunk::<4>().ok_or(Invalid)?;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return Err(Invalid);
                }
                self.look(4);
                self.at += 4;
                Ok(())
            }
            _ => Err(Invalid),
        }
    }

    fn number(&mut self) -> Result<(), Invalid> {
        self.take(b"-");
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.take(b".") {
            self.digits()?;
        }
        if self.take(b"eE") {
            self.take(b"+-");
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Invalid> {
        let first = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == first { Err(Invalid) } else { Ok(()) }
    }

    fn word(&mut self, word: &str) -> Result<(), Invalid> {
        if !self.rest().starts_with(word.as_bytes()) {
            return Err(Invalid);
        }
        self.look(word.len());
        self.at += word.len();
        Ok(())
    }

    /// Consumes the next byte if it is one of `bytes`.
    fn take(&mut self, bytes: &[u8]) -> bool {
        let taken = self.peek().is_some_and(|byte| bytes.contains(&byte));
        self.at += usize::from(taken);
        taken
    }

    fn peek(&mut self) -> Option<u8> {
        self.look(1);
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &'t [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    #[cfg(test)]
    fn look(&mut self, bytes: usize) {
        self.looks += bytes;
    }

    #[cfg(not(test))]
    #[inline]
    fn look(&self, _bytes: usize) {}
}

/// How many bytes stand before the next quote, backslash or control character: eight at a time, since most of a body
/// is text that nobody asked for (Mycroft's test for a byte below, or equal to, a value in a word).
fn plain_run(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let (words, _) = bytes.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let control = word.wrapping_sub(ONES * 0x20) & !word;
        let quote = word ^ (ONES * 0x22);
        let slash = word ^ (ONES * 0x5C);
        let hit = (control | (quote.wrapping_sub(ONES) & !quote) | (slash.wrapping_sub(ONES) & !slash)) & HIGH;
        if hit != 0 {
            // The lowest hit is exact; a borrow can only mark bytes above it.
            return i * 8 + usize::try_from(hit.trailing_zeros() / 8).unwrap_or_default();
        }
    }
    let done = words.len() * 8;
    let tail = bytes.get(done..).unwrap_or_default();
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    done + tail.iter().position(special).unwrap_or(tail.len())
}

/// Which of the open containers are objects, innermost last: one bit each, and nothing on the heap below 65 levels.
#[derive(Debug, Default)]
struct Nest {
    full: Vec<u64>,
    top: u64,
    len: usize,
}

impl Nest {
    fn push(&mut self, object: bool) {
        if self.len > 0 && self.len.is_multiple_of(64) {
            self.full.push(self.top);
        }
        self.top = self.top << 1 | u64::from(object);
        self.len += 1;
    }

    fn pop(&mut self) {
        self.len -= 1;
        self.top >>= 1;
        if self.len > 0 && self.len.is_multiple_of(64) {
            self.top = self.full.pop().expect("every 64 open levels have a word");
        }
    }

    fn last(&self) -> Option<bool> {
        (self.len > 0).then_some(self.top & 1 == 1)
    }
}

/// The text of a string literal that a [`Cursor`] has read, given with its quotes; `None` when it holds half a surrogate pair, which
/// is not text.
pub(super) fn decode(literal: &str) -> Option<std::borrow::Cow<'_, str>> {
    let inside = literal.get(1..literal.len().saturating_sub(1))?;
    if memchr::memchr(b'\\', inside.as_bytes()).is_none() {
        return Some(inside.into());
    }
    serde_json::from_str::<String>(literal).ok().map(Into::into)
}
