//! `tenant_pages`: a listener of its own, off unless it has an address, and then not without a secret.

use std::net::SocketAddr;

use super::build::{Builder, address};
use super::notes;
use super::value::Slot;
use crate::admin::tenant;
use crate::event::Secret;

impl Builder<'_, '_> {
    /// The tenants' pages; `taken` are the addresses of the other listeners.
    pub(super) fn tenant_pages(&mut self, pages: &Slot, taken: [SocketAddr; 2]) -> Option<tenant::Settings> {
        let own = pages.at("address");
        own.maybe::<String>()?;
        let ours = address(own);
        for theirs in taken {
            let same_ip = ours.ip() == theirs.ip() || ours.ip().is_unspecified() || theirs.ip().is_unspecified();
            if same_ip && ours.port() == theirs.port() && ours.port() != 0 {
                let found = format!("{ours} takes the port of {theirs}");
                self.checker.problem_at("tenant_pages.address", own.place, &found).expected =
                    Some("a port of its own, apart from listen.address and admin.address".to_owned());
            }
        }
        let secrets: Vec<Secret> =
            ["secret", "previous_secret"].into_iter().filter_map(|name| pages.at(name).maybe()).collect();
        if pages.at("secret").maybe::<Secret>().is_none() {
            let problem = self.checker.problem_at("tenant_pages.secret", own.place, "an address and no secret");
            problem.expected = Some("a secret, which signs the links".to_owned());
            problem.hint =
                Some("make one, e.g. with `openssl rand -hex 32`, and name it as \"${TENANT_SECRET}\"".to_owned());
        }
        if secrets.iter().any(|secret| secret.expose().len() < notes::SECRET_BYTES) {
            self.note("tenant_pages.secret", notes::SHORT);
        }
        Some(tenant::Settings { address: ours, secrets, base_url: pages.at("base_url").maybe() })
    }
}
