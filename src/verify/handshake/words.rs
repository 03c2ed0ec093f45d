//! Handshakes in words, for people: what a provider asks, and what it is answered.

use super::{Answer, Mark, Place, ROWS, Row};

/// The handshakes of a provider, one text each, e.g. `GET with query challenge: the challenge, plain`.
#[must_use]
pub fn questions(provider: &str) -> Vec<String> {
    ROWS.iter().filter(|row| row.provider == Some(provider)).map(Row::in_words).collect()
}

impl Row {
    fn in_words(&self) -> String {
        let open = if self.open { "with handshake: open, " } else { "" };
        let signed = if self.signed { "signed " } else { "" };
        let marks: Vec<String> = self.marks.iter().map(Mark::in_words).collect();
        let with = if marks.is_empty() { String::new() } else { format!(" with {}", marks.join(" and ")) };
        format!("{open}{signed}{}{with}: {}", self.method, self.answer.in_words())
    }
}

impl Mark {
    fn in_words(&self) -> String {
        match self {
            Self::Has(place) => place.in_words(),
            Self::Is(place, text) => format!("{} = {text}", place.in_words()),
            Self::Lacks(place) => format!("no {}", place.in_words()),
        }
    }
}

impl Place {
    fn in_words(self) -> String {
        match self {
            Self::Query(name) => format!("query.{name}"),
            Self::Header(name) => format!("headers.{name}"),
            Self::Member(path) => format!("body.{}", path.join(".")),
        }
    }
}

impl Answer {
    fn in_words(&self) -> String {
        match self {
            Self::Status(status) => format!("{status}"),
            Self::Json(text) => format!("`{text}`"),
            Self::Echo(place, _) => format!("{} as plain text", place.in_words()),
            Self::EchoIfToken { echo, token } => {
                format!("{} as plain text, if {} is the agreed word; else 403", echo.in_words(), token.in_words())
            }
            Self::EchoIfTopic { echo, topic } => {
                format!("{} as plain text, if {} is one of ours; else 404", echo.in_words(), topic.in_words())
            }
            Self::Visit { address, .. } => format!("{} is asked for, then 200", address.in_words()),
            Self::HeaderBack(name) => format!("headers.{name} as it came"),
            Self::EchoJson(name, place) => format!("{} as the JSON member {name}", place.in_words()),
            Self::ZoomTokens(place) => format!("{} and its HMAC, as JSON", place.in_words()),
            Self::XCrc(place) | Self::BraintreeHmac(place) => format!("the HMAC of {}", place.in_words()),
            Self::EbayHash(place) => format!("the SHA-256 of {}, the agreed word and the address", place.in_words()),
            Self::AllowOrigin(place) => format!("{} as the origin that may send", place.in_words()),
        }
    }
}
