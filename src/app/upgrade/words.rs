//! What is said over `upgrade.sock`: JSON, a line each. Fields may be added; what one does not know is passed over.

use serde::{Deserialize, Serialize};

/// The course that both sides have to agree on. It changes when the order of words or their meaning does.
pub(super) const PROTOCOL: u32 = 1;

/// A word.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "snake_case")]
pub(super) enum Word {
    /// Somebody would take over.
    Hello {
        /// The course that it knows.
        protocol: u32,
        /// Which version it is, for people.
        version: String,
    },
    /// These sockets come along, in this order.
    Offer {
        /// Which version offers them, for people.
        version: String,
        /// What each is for.
        sockets: Vec<Offered>,
    },
    /// Make way.
    Go,
    /// The store is free.
    Closed,
    /// The successor serves.
    Serving,
    /// Not so, and why.
    Refused {
        /// In words.
        why: String,
    },
}

/// A socket on its way.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offered {
    /// What it is for.
    pub(super) role: Role,
    /// A supervisor keeps it open.
    #[serde(default)]
    pub(super) kept: bool,
}

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Role {
    /// Senders.
    Listen,
    /// The admin side.
    Admin,
    /// Tenants' pages.
    Tenants,
    /// Something that a later version has.
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_later_version_are_understood_as_far_as_they_are_known() {
        let text = r#"{"word":"offer","version":"9.0","mood":"good","sockets":[{"role":"listen","kept":true},{"role":"quic"}]}"#;
        let offered = |role, kept| Offered { role, kept };
        let sockets = vec![offered(Role::Listen, true), offered(Role::Unknown, false)];
        assert_eq!(serde_json::from_str::<Word>(text).unwrap(), Word::Offer { version: "9.0".into(), sockets });
        assert_eq!(serde_json::to_string(&Word::Go).unwrap(), r#"{"word":"go"}"#);
    }
}
