//! The two files that pages use, embedded in the binary. Their addresses change with their content, so that browsers may keep them.

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse as _;
use axum::routing::get;
use xxhash_rust::xxh3::xxh3_64;

use crate::admin::Admin;

const STYLE: &str = include_str!("assets/dashboard.css");
const SCRIPT: &str = include_str!("assets/dashboard.js");

const KEPT: &str = "public, max-age=31536000, immutable";

/// The style sheet's address.
pub(super) fn style() -> &'static str {
    static ADDRESS: LazyLock<String> = LazyLock::new(|| address("dashboard.css", STYLE));
    &ADDRESS
}

/// The script's address.
pub(super) fn script() -> &'static str {
    static ADDRESS: LazyLock<String> = LazyLock::new(|| address("dashboard.js", SCRIPT));
    &ADDRESS
}

fn address(name: &str, content: &str) -> String {
    format!("/assets/{name}?{:016x}", xxh3_64(content.as_bytes()))
}

pub(super) fn router() -> Router<Arc<Admin>> {
    let file = |kind: &'static str, content: &'static str| {
        get(
            move || async move { ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, KEPT)], content).into_response() },
        )
    };
    Router::new()
        .route("/assets/dashboard.css", file("text/css; charset=utf-8", STYLE))
        .route("/assets/dashboard.js", file("text/javascript; charset=utf-8", SCRIPT))
}
