//! Which events a command is about: the filters that lists, exports and replays share.

use clap::Args;
use serde_json::{Map, Value, json};

use super::remote::encoded;

/// The filters, the states apart.
#[derive(Debug, Args)]
pub(super) struct Selection {
    /// Only of this group, as lists write it
    #[arg(long)]
    pub(super) group: Option<String>,
    /// Only of this source
    #[arg(long)]
    pub(super) source: Option<String>,
    /// Received at this time or later, e.g. 2026-01-31T08:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(super) since: Option<String>,
    /// Received before this time
    #[arg(long, value_name = "TIME")]
    pub(super) until: Option<String>,
    /// Only with this id of the provider's own
    #[arg(long, value_name = "ID")]
    pub(super) provider_event_id: Option<String>,
}

impl Selection {
    fn parts(&self) -> [(&'static str, &Option<String>); 5] {
        [
            ("group", &self.group),
            ("source", &self.source),
            ("since", &self.since),
            ("until", &self.until),
            ("provider_event_id", &self.provider_event_id),
        ]
    }

    /// What of it is given, as parameters of a query behind `path`, which has some already.
    pub(super) fn add_to(&self, path: &mut String) {
        for (name, value) in self.parts() {
            if let Some(value) = value {
                path.push_str(&format!("&{name}={}", encoded(value)));
            }
        }
    }

    /// What of it is given, as members of an object.
    pub(super) fn object(&self) -> Map<String, Value> {
        let given =
            self.parts().into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value.as_ref()?))));
        given.collect()
    }

    /// Its options, and which of them are there.
    pub(super) fn given(&self) -> [(&'static str, bool); 5] {
        [
            ("--group", self.group.is_some()),
            ("--source", self.source.is_some()),
            ("--since", self.since.is_some()),
            ("--until", self.until.is_some()),
            ("--provider-event-id", self.provider_event_id.is_some()),
        ]
    }
}
