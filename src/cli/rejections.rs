//! `fairlane rejections`: requests that were refused, and which part of each did not fit.

use clap::Args;
use http::Method;

use super::remote::{Remote, encoded, noted, shown};
use super::table::{Column, table};

/// `fairlane rejections`.
#[derive(Debug, Args)]
pub(super) struct Rejections {
    /// Only of this source
    #[arg(long)]
    source: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    remote: Remote,
}

const COLUMNS: [Column; 5] = [
    ("TIME", "at", false),
    ("SOURCE", "source", false),
    ("REASON", "reason", false),
    ("PEER", "peer", false),
    ("MESSAGE", "message", false),
];

/// Lists them, newest first; the answer is the exit code.
pub(super) fn run(rejections: &Rejections) -> u8 {
    let source = rejections.source.as_ref().map(|source| format!("&source={}", encoded(source))).unwrap_or_default();
    let path = format!("/api/v1/rejections?limit={}{source}", rejections.limit);
    shown(&rejections.remote, Method::GET, &path, None, |answer| {
        noted(answer);
        table(answer, "rejections", &COLUMNS)
    })
}
