//! A Markdown file as far as the tests need it: fenced blocks, inline code, links, headings.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// A fenced block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// What stands after the fence: the language, and `no-run`.
    pub(crate) info: String,
    pub(crate) text: String,
    /// The heading above it, without `#`.
    pub(crate) heading: String,
    /// Where it begins, for messages.
    pub(crate) place: String,
}

/// One file.
pub(crate) struct Page {
    /// From the root of the project.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) blocks: Vec<Block>,
    /// Inline code outside of blocks, with its line.
    pub(crate) code: Vec<(usize, String)>,
    /// Targets of links, with their line.
    pub(crate) links: Vec<(usize, String)>,
    /// The anchors of its headings.
    pub(crate) anchors: BTreeSet<String>,
}

/// README and the other pages at the root, and all below docs, examples and deploy.
pub(crate) fn pages(root: &Path) -> Vec<Page> {
    let mut files = Vec::new();
    let mut open: Vec<PathBuf> = ["docs", "examples", "deploy"].iter().map(|folder| root.join(folder)).collect();
    files.extend(["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "SECURITY.md"].iter().map(|file| root.join(file)));
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "node_modules") {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                files.push(path);
            }
        }
    }
    files.sort();
    files.into_iter().map(|path| read(root, path)).collect()
}

fn read(root: &Path, path: PathBuf) -> Page {
    let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
    let text = std::fs::read_to_string(&path).unwrap();
    let mut page = Page { name, path, blocks: vec![], code: vec![], links: vec![], anchors: BTreeSet::new() };
    let (mut block, mut heading, mut seen) = (None::<Block>, String::new(), HashMap::<String, usize>::new());
    for (line, content) in text.lines().enumerate().map(|(at, content)| (at + 1, content)) {
        if let Some(info) = content.trim_start().strip_prefix("```") {
            match block.take() {
                Some(done) => page.blocks.push(done),
                None => {
                    let place = format!("{}:{line}", page.name);
                    block = Some(Block { info: info.to_owned(), text: String::new(), heading: heading.clone(), place });
                }
            }
        } else if let Some(block) = &mut block {
            block.text.push_str(content);
            block.text.push('\n');
        } else {
            if let Some(title) = content.strip_prefix('#') {
                heading = title.trim_start_matches('#').trim().to_owned();
                let anchor = anchor(&heading);
                let before = seen.entry(anchor.clone()).or_default();
                page.anchors.insert(if *before == 0 { anchor } else { format!("{anchor}-{before}") });
                *before += 1;
            }
            page.code.extend(inline_code(content).into_iter().map(|code| (line, code)));
            page.links.extend(links(content).into_iter().map(|link| (line, link)));
        }
    }
    assert!(block.is_none(), "{}: a block is not closed", page.name);
    page
}

/// As the pages' host makes them: small letters, marks left out, blanks as `-`.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ' '));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

fn inline_code(line: &str) -> Vec<String> {
    line.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn links(line: &str) -> Vec<String> {
    // What stands in code is no link.
    let text: String = line.split('`').step_by(2).collect();
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}
