//! Every call of the admin API, as one table: a row is a method, a path and the handler, and the handler brings its description
//! (`#[utoipa::path]`), without which the table does not compile. The router and `/api/v1/openapi.json` are both made of it.
//!
//! A new call is a row here, a description at its handler, and `ToSchema` or `IntoParams` at what it takes and gives. What every call
//! may answer besides (no token, another host, no JSON …) is added by [`super::openapi`].

use std::sync::Arc;

use axum::Router;
use axum::routing::{delete, get, patch, post};
use utoipa::OpenApi;

use super::{
    Admin, alerts, api, audit, export, groups, nodes, openapi, pins, release, removal, replays, sources, upstream,
};

macro_rules! calls {
    ($($method:ident $path:literal => $module:ident :: $handler:ident;)*) => {
        /// The routes of all calls.
        pub(super) fn router() -> Router<Arc<Admin>> {
            Router::new()$(.route($path, $method($module::$handler)))*
        }

        /// The descriptions of all calls.
        #[derive(OpenApi)]
        #[openapi(paths($($module::$handler),*))]
        pub(super) struct Described;

        /// Methods and paths of all calls.
        #[cfg(test)]
        pub(super) const CALLS: &[(&str, &str)] = &[$((stringify!($method), $path)),*];
    };
}

calls! {
    get "/healthz" => api::healthz;
    get "/readyz" => api::readyz;
    get "/metrics" => api::metrics;
    get "/api/v1/openapi.json" => openapi::document;
    get "/api/v1/status" => api::status;
    get "/api/v1/nodes" => nodes::list;
    get "/api/v1/sources" => sources::list;
    patch "/api/v1/source" => sources::patch;
    get "/api/v1/events" => api::events;
    get "/api/v1/events/export" => export::events;
    get "/api/v1/events/{id}" => api::event;
    get "/api/v1/events/{id}/body" => api::body;
    get "/api/v1/events/{id}/attempts" => api::attempts;
    post "/api/v1/events/{id}/replay" => replays::event;
    post "/api/v1/events/{id}/skip" => removal::skip;
    post "/api/v1/events/{id}/discard" => removal::discard;
    post "/api/v1/events/{id}/release" => release::release;
    get "/api/v1/rejections" => api::rejections;
    get "/api/v1/groups" => groups::list;
    get "/api/v1/group" => groups::one;
    patch "/api/v1/group" => groups::patch;
    delete "/api/v1/group" => groups::restore;
    post "/api/v1/group/cancel" => groups::cancel;
    post "/api/v1/group/close-breaker" => groups::close_breaker;
    post "/api/v1/group/link" => groups::link;
    post "/api/v1/group/pin" => pins::pin;
    delete "/api/v1/group/pin" => pins::unpin;
    post "/api/v1/group/divert" => removal::divert_all;
    post "/api/v1/group/discard" => removal::discard_all;
    get "/api/v1/jobs" => removal::jobs;
    get "/api/v1/jobs/{id}" => removal::job;
    delete "/api/v1/jobs/{id}" => removal::cancel;
    get "/api/v1/overrides" => groups::overrides;
    get "/api/v1/upstream" => upstream::show;
    patch "/api/v1/upstream" => upstream::patch;
    delete "/api/v1/upstream" => upstream::restore;
    post "/api/v1/upstream/close-breaker" => upstream::close_breaker;
    get "/api/v1/replays" => replays::list;
    post "/api/v1/replays" => replays::create;
    get "/api/v1/replays/{id}" => replays::one;
    patch "/api/v1/replays/{id}" => replays::patch;
    delete "/api/v1/replays/{id}" => replays::cancel;
    get "/api/v1/config" => api::config;
    get "/api/v1/audit" => audit::list;
    get "/api/v1/alerts" => alerts::list;
    post "/api/v1/alerts/test" => alerts::test;
}
