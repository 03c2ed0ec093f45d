//! What a person sent with a form: its fields, after the session's own word was found among them.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse as _, Response};

use super::{Visit, shell};
use crate::admin::Admin;
use crate::admin::problem::Problem;

/// The name of the field that carries the session's word.
pub(super) const WORD: &str = "word";

/// The fields of a form; the first of equal names.
#[derive(Debug, Default)]
pub(super) struct Fields(HashMap<String, String>);

impl Fields {
    /// Of a form's body, or of a query.
    pub(super) fn read(text: &[u8]) -> Self {
        let mut fields = HashMap::new();
        for (name, value) in form_urlencoded::parse(text) {
            fields.entry(name.into_owned()).or_insert_with(|| value.into_owned());
        }
        Self(fields)
    }

    /// What was filled in; a field that was left empty was left out.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// The same, for a field that every form of its kind has.
    pub(super) fn need(&self, name: &str) -> Result<&str, Problem> {
        self.get(name).ok_or_else(|| Problem::Parameter(format!("{name}: expected something, found nothing")))
    }

    /// A number, where one was filled in.
    pub(super) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Problem> {
        let wrong = |text: &str| Problem::Parameter(format!("{name}: expected a number, found {text:?}"));
        self.get(name).map(|text| text.parse().map_err(|_| wrong(text))).transpose()
    }
}

/// A form that somebody who is signed in sent from a page of ours.
pub(super) struct Form {
    pub(super) visit: Visit,
    pub(super) fields: Fields,
}

impl FromRequest<Arc<Admin>> for Form {
    type Rejection = Response;

    async fn from_request(request: Request, state: &Arc<Admin>) -> Result<Self, Response> {
        let visit = request.extensions().get::<Visit>().cloned().ok_or_else(|| Problem::Token.into_response())?;
        match fields(&visit, request, state).await {
            Ok(fields) => Ok(Self { visit, fields }),
            Err(problem) => Err(shell::trouble(&visit, problem)),
        }
    }
}

async fn fields(visit: &Visit, request: Request, state: &Arc<Admin>) -> Result<Fields, Problem> {
    let fields = Fields::read(&Bytes::from_request(request, state).await?);
    let signed = |word| visit.seat.as_ref().is_some_and(|seat| seat.signed(word));
    if fields.get(WORD).is_some_and(signed) { Ok(fields) } else { Err(Problem::Form) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_fields_are_left_out_and_the_first_of_equal_names_counts() {
        let fields = Fields::read(b"do=pause&do=resume&weight=&cap=+8+&rate=x&name=caf%C3%A9");
        assert_eq!((fields.get("do"), fields.get("weight"), fields.get("name")), (Some("pause"), None, Some("café")));
        assert_eq!(fields.number::<u32>("cap").unwrap(), Some(8));
        assert!(fields.number::<u32>("rate").is_err() && fields.need("weight").is_err());
    }
}
