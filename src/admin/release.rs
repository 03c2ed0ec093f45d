//! `POST /api/v1/events/{id}/release`: a suppressed event goes to the upstream after all.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use serde::Serialize;

use super::Admin;
use super::api::event_id;
use super::audit::Who;
use super::problem::Problem;
use crate::driver::Unreleased;
use crate::event::Seq;

#[derive(Serialize)]
pub(super) struct ReleasedView {
    id: String,
    /// Its place in the order of commits from now on.
    seq: u64,
    status: &'static str,
}

pub(super) async fn release(
    State(admin): State<Arc<Admin>>,
    who: Who,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<ReleasedView>, Problem> {
    let Path(id) = id.map_err(|rejection| Problem::Parameter(rejection.body_text()))?;
    let seq = released(&admin, who, &id).await?;
    Ok(Json(ReleasedView { id, seq: seq.0, status: "queued" }))
}

/// Lets the event with this id go; the answer is its new place.
pub(super) async fn released(admin: &Admin, who: Who, id: &str) -> Result<Seq, Problem> {
    let event = event_id(id)?;
    let released = admin.handle.release(event).await;
    let seq = released.map_err(|why| match why {
        Unreleased::Unknown => Problem::Unknown(id.to_owned()),
        Unreleased::Not(_) => Problem::Conflict(why.to_string()),
        Unreleased::Store(error) => error.into(),
        Unreleased::Draining => Problem::Store(why.to_string()),
    })?;
    admin.audit(who, id, "released: it was suppressed as a repeat");
    Ok(seq)
}
