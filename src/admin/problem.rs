//! What the admin API answers when it cannot do what it was asked: the one place where its statuses are chosen.

use axum::Json;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::BODY_MAX;
use crate::driver::{Ended, Error};

/// A refusal, for people: what is wrong and what to do.
#[derive(Debug)]
pub(super) enum Problem {
    /// No or a wrong token.
    Token,
    /// The `Host` is not one of ours.
    Host(String),
    /// A page of another site asks.
    Origin,
    /// A form without its session's word.
    Form,
    /// Links need pages that they lead to.
    NoTenantPages,
    /// A change that is not declared as JSON.
    ContentType,
    /// Nothing is here.
    Unknown(String),
    /// No source has this name; in words.
    NoSource(String),
    /// Nothing can fit what was asked for; in words.
    Nothing(String),
    /// There is, but not for this method.
    Method,
    /// As many pages are watched live as may be.
    Watched,
    /// What it is about does not stand so that this could be done; how it stands.
    Conflict(String),
    /// A parameter cannot be read.
    Parameter(String),
    /// The body is longer than any change.
    TooLarge,
    /// The store could not answer now.
    Store(String),
    /// What was asked for is damaged on the disk, for good; the store's words with the place.
    Damaged(String),
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::Corrupt(_) => Self::Damaged(error.to_string()),
            _ => Self::Store(error.to_string()),
        }
    }
}

impl From<Ended> for Problem {
    fn from(error: Ended) -> Self {
        Self::Store(error.to_string())
    }
}

impl From<BytesRejection> for Problem {
    fn from(rejection: BytesRejection) -> Self {
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Self::TooLarge,
            _ => Self::Parameter(rejection.body_text()),
        }
    }
}

/// What every refusal looks like.
#[derive(Serialize, ToSchema)]
pub(super) struct Refusal {
    /// What is wrong.
    error: String,
    /// What to do.
    hint: String,
}

impl Problem {
    /// The status, what is wrong, and what to do.
    pub(super) fn in_words(self) -> (StatusCode, String, &'static str) {
        match self {
            Self::Token => (
                StatusCode::UNAUTHORIZED,
                "a bearer token is needed".to_owned(),
                "send `Authorization: Bearer <token>`; it is `admin.token`, or the file admin-token in the data directory",
            ),
            Self::Host(host) => (
                StatusCode::MISDIRECTED_REQUEST,
                format!("this is not {host:?}"),
                "use an IP address or localhost, or add the name to `admin.hosts`",
            ),
            Self::Origin => (
                StatusCode::FORBIDDEN,
                "requests from other sites' pages are refused".to_owned(),
                "call from a program, or from a page of this address",
            ),
            Self::Form => (
                StatusCode::FORBIDDEN,
                "this form is not of your session".to_owned(),
                "sign in, load the page again, and repeat what you did; programs use the API",
            ),
            Self::NoTenantPages => (
                StatusCode::CONFLICT,
                "tenants have no pages here".to_owned(),
                "set `tenant_pages.address` and `tenant_pages.secret`, and start again",
            ),
            Self::ContentType => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "changes are JSON".to_owned(),
                "send `Content-Type: application/json`",
            ),
            Self::Unknown(path) => (
                StatusCode::NOT_FOUND,
                format!("there is nothing at {path:?}"),
                "the API begins at /api/v1/status; see the reference in docs/api.md",
            ),
            Self::NoSource(what) => {
                (StatusCode::NOT_FOUND, what, "fairlane sources, and the page of sources, list them all")
            }
            Self::Nothing(why) => (
                StatusCode::NOT_FOUND,
                why,
                "nothing is changed; fairlane events, groups and sources list what there is",
            ),
            Self::Method => (
                StatusCode::METHOD_NOT_ALLOWED,
                "this is not something that method does here".to_owned(),
                "see the reference in docs/api.md",
            ),
            Self::Watched => (
                StatusCode::SERVICE_UNAVAILABLE,
                "too many pages are watched live".to_owned(),
                "close some; every page is complete without it: load it again to see it newer",
            ),
            Self::Conflict(what) => (StatusCode::CONFLICT, what, "look at it again: it may have changed meanwhile"),
            Self::Parameter(what) => (StatusCode::BAD_REQUEST, what, "see the reference in docs/api.md"),
            Self::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body is longer than {BODY_MAX} bytes, and no change is"),
                "see the reference in docs/api.md",
            ),
            Self::Damaged(error) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                error,
                "trying again does not help; the log names the place, and `fairlane doctor --store` looks at the whole store",
            ),
            Self::Store(error) => (StatusCode::SERVICE_UNAVAILABLE, error, "try again; the log says more"),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, error, hint) = self.in_words();
        let needs_token = status == StatusCode::UNAUTHORIZED;
        let mut response = (status, Json(Refusal { error, hint: hint.to_owned() })).into_response();
        if needs_token {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
