//! From what an attempt gave to what the engine is told and what is written down: the one place where the two meet.

use crate::deliver::{Attempt, Follows, Limit, Outcome, RetryAfter, RetryScope};
use crate::engine::{self, Ending, Scope};
use crate::store::{AttemptNote, EXCERPT_BYTES_MAX};

/// What the engine is told. The rule itself is `deliver::follows`; nothing is decided here.
pub(super) fn ending(attempt: &Attempt) -> Ending {
    let status = attempt.outcome.status().map(|status| status.as_u16());
    match (attempt.outcome, attempt.follows) {
        (_, Follows::Settled) => Ending::Success,
        (Outcome::Cancelled, _) => Ending::Cancelled,
        (_, Follows::Dead) => Ending::Never(status),
        (Outcome::Status(status), Follows::Retried(Limit::Attempts)) => Ending::Client(status.as_u16()),
        (Outcome::Status(status), Follows::Retried(Limit::Age)) => {
            Ending::Server { status: status.as_u16(), retry_after: retry_after(attempt) }
        }
        (_, Follows::Retried(_)) => Ending::NoAnswer,
    }
}

fn retry_after(attempt: &Attempt) -> Option<engine::RetryAfter> {
    let scope = match attempt.retry_scope {
        None => Scope::Auto,
        Some(RetryScope::Group) => Scope::Group,
        Some(RetryScope::Upstream) => Scope::Upstream,
    };
    match attempt.retry_after? {
        RetryAfter::After(delay) => Some(engine::RetryAfter { delay, scope }),
        RetryAfter::Never => None,
    }
}

/// What is kept of an attempt.
pub(super) fn note(attempt: &Attempt) -> AttemptNote {
    let excerpt = attempt.answer.as_ref().map(|answer| answer.body.slice(..answer.body.len().min(EXCERPT_BYTES_MAX)));
    AttemptNote {
        number: attempt.number,
        started: attempt.started,
        took: attempt.took,
        outcome: attempt.outcome.name().into(),
        status: attempt.outcome.status().map(|status| status.as_u16()),
        error: attempt.error.clone(),
        excerpt: excerpt.unwrap_or_default(),
        refused: matches!(ending(attempt), Ending::Client(_)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;

    use super::*;
    use crate::deliver::follows;
    use crate::event::Wall;

    fn attempt(outcome: Outcome, retry_after: Option<RetryAfter>) -> Attempt {
        Attempt {
            number: 1,
            started: Wall(0),
            took: Duration::ZERO,
            outcome,
            follows: follows(outcome, &[410], retry_after),
            error: "".into(),
            retry_after,
            retry_scope: None,
            answer: None,
        }
    }

    #[test]
    fn every_outcome_has_its_ending() {
        let status = |code| Outcome::of(StatusCode::from_u16(code).unwrap());
        let server = |status| Ending::Server { status, retry_after: None };
        for (outcome, expected) in [
            (status(204), Ending::Success),
            (status(301), server(301)),
            (status(404), Ending::Client(404)),
            (status(410), Ending::Never(Some(410))),
            (status(429), server(429)),
            (status(500), server(500)),
            (Outcome::Refused, Ending::NoAnswer),
            (Outcome::TimeoutHead, Ending::NoAnswer),
            (Outcome::Tls, Ending::NoAnswer),
            (Outcome::Cancelled, Ending::Cancelled),
            (Outcome::Unsendable, Ending::Never(None)),
        ] {
            assert_eq!(ending(&attempt(outcome, None)), expected, "{outcome:?}");
        }
        let after = RetryAfter::After(Duration::from_secs(9));
        let expected = Some(engine::RetryAfter { delay: Duration::from_secs(9), scope: Scope::Auto });
        assert_eq!(ending(&attempt(status(503), Some(after))), Ending::Server { status: 503, retry_after: expected });
        assert_eq!(ending(&attempt(status(503), Some(RetryAfter::Never))), Ending::Never(Some(503)));
    }
}
