//! Whether a page is well formed: every element that is opened is closed, in order. Not a parser; enough for what templates get wrong.

/// Elements that have no end.
const VOID: [&str; 6] = ["meta", "link", "input", "br", "hr", "img"];

/// The first thing that is wrong with the nesting of `page`, in words.
pub(crate) fn fault(page: &str) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = end_of_tag(rest)?;
        let (tag, after) = rest.split_at(end);
        rest = &after[1..];
        if tag.starts_with('!') {
            continue;
        }
        let word =
            tag.trim_start_matches('/').split(|c: char| c.is_whitespace() || c == '/').next().unwrap_or_default();
        if tag.starts_with('/') {
            match open.pop() {
                Some(last) if last == word => {}
                last => {
                    return Some(format!(
                        "</{word}> closes {last:?}, at {:?}",
                        rest.chars().take(80).collect::<String>()
                    ));
                }
            }
        } else if !tag.ends_with('/') && !VOID.contains(&word) {
            open.push(word);
        }
    }
    open.last().map(|last| format!("<{last}> is never closed"))
}

/// Where a tag ends: the first `>` outside of quotes. A tag without an end is one that goes on to the end of the page.
fn end_of_tag(text: &str) -> Option<usize> {
    let mut quoted = false;
    text.char_indices().find_map(|(at, c)| {
        quoted ^= c == '"';
        (c == '>' && !quoted).then_some(at)
    })
}

#[test]
fn a_fault_is_found() {
    assert_eq!(fault("<!doctype html><p a=\"x>y\">a<br>b</p><svg><rect/></svg>"), None);
    assert!(fault("<p><b>x</p></b>").is_some_and(|fault| fault.contains("</p> closes")));
    assert!(fault("<p><b>x</b>").is_some_and(|fault| fault.contains("<p> is never closed")));
}
