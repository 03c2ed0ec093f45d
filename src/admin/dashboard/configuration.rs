//! The configuration in force, secrets masked.

use askama::Template;
use axum::response::Response;

use super::Visit;
use super::shell::{Shell, page};

#[derive(Template)]
#[template(path = "configuration.html")]
struct Page {
    shell: Shell,
    yaml: String,
}

/// The page.
pub(super) async fn show(visit: Visit) -> Response {
    page(visit, ("configuration", "Configuration"), async |visit, shell| {
        Ok(Page { shell, yaml: visit.admin.configuration().yaml.clone() })
    })
    .await
}
