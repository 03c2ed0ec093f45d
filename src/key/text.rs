//! Writes expressions in their canonical text, which reads back as the same expression.

use std::fmt;

use super::parse::{Root, Route, Stage, Transform};
use super::paths::Step;

/// The text of an expression: header names in lower case, one space around `|`, quotes only where they are needed.
pub(super) fn canonical(root: &Root, stages: &[Stage]) -> String {
    let mut text = root.to_string();
    for stage in stages {
        text.push_str(" | ");
        text.push_str(&stage.to_string());
    }
    text
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body(Route::Dotted(steps)) => write!(f, "body.{}", Dotted(steps)),
            Self::Body(route) => route.fmt(f),
            Self::Header(name) => write!(f, "headers.{name}"),
            Self::Query(name) => write!(f, "query.{name}"),
            Self::Name(name) => write!(f, "path.{name}"),
            Self::Segment(index) => write!(f, "path.{index}"),
            Self::Const(text) => write!(f, "const:{text}"),
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dotted(steps) => Dotted(steps).fmt(f),
            Self::JsonPath(_, text) => f.write_str(text),
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(route) => write!(f, "json | {route}"),
            Self::Transform(transform) => transform.fmt(f),
        }
    }
}

impl fmt::Display for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lower => "lower",
            Self::Trim => "trim",
            Self::Sha256 => "sha256",
        })
    }
}

/// Segments with their dots; quoted where a plain name would be read otherwise.
struct Dotted<'s>(&'s [Step]);

impl fmt::Display for Dotted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.0.iter().filter_map(Step::name).enumerate() {
            if i > 0 {
                f.write_str(".")?;
            }
            let odd = |c: char| matches!(c, '.' | '"' | '|' | '[' | ']' | '$') || c.is_whitespace() || c.is_control();
            if name.is_empty() || name.contains(odd) {
                f.write_str(&serde_json::to_string(name).map_err(|_| fmt::Error)?)?;
            } else {
                f.write_str(name)?;
            }
        }
        Ok(())
    }
}
