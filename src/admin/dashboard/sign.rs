//! Coming in and going out.

use std::sync::Arc;

use askama::Template;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse as _, Redirect, Response};

use super::form::{Fields, Form};
use super::{Visit, assets, session};
use crate::admin::Admin;
use crate::admin::problem::Problem;

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignIn<'a> {
    style: &'static str,
    to: &'a str,
    wrong: bool,
}

fn shown(status: StatusCode, to: &str, wrong: bool) -> Response {
    let page = SignIn { style: assets::style(), to: session::back_to(to), wrong };
    (status, Html(page.render().unwrap_or_default())).into_response()
}

/// The form that asks for the token.
pub(super) async fn page(visit: Visit) -> Response {
    shown(StatusCode::OK, visit.query().get("to").unwrap_or("/"), false)
}

/// The token, given.
pub(super) async fn enter(
    State(admin): State<Arc<Admin>>,
    visit: Visit,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let fields = Fields::read(&body?);
    let to = session::back_to(fields.get("to").unwrap_or("/"));
    Ok(match session::sign_in(&admin, fields.get("token").unwrap_or_default(), visit.peer) {
        Some(cookie) => ([(header::SET_COOKIE, cookie)], Redirect::to(to)).into_response(),
        None => {
            admin.hold_back(visit.peer).await;
            shown(StatusCode::UNAUTHORIZED, to, true)
        }
    })
}

/// Ends the session.
pub(super) async fn leave(form: Form) -> Response {
    if let Some(seat) = &form.visit.seat {
        form.visit.admin.dashboard.sessions.close(seat);
    }
    ([(header::SET_COOKIE, session::forget())], Redirect::to("/sign-in")).into_response()
}
