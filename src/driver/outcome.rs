//! From what an attempt gave to what the engine is told and what is written down: the one place where the two meet.

use std::time::Duration;

use crate::deliver::{Attempt, BodyEnd, Follows, Limit, Outcome, RetryAfter, RetryScope};
use crate::engine::{self, Ending, Scope};
use crate::event::WaitSplit;
use crate::store::{AttemptNote, EXCERPT_BYTES_MAX};

/// What the engine is told. The rule itself is `deliver::follows`; nothing is decided here.
pub(super) fn ending(attempt: &Attempt) -> Ending {
    let status = attempt.outcome.status().map(|status| status.as_u16());
    match (attempt.outcome, attempt.follows) {
        (_, Follows::Settled) => Ending::Success,
        (Outcome::Cancelled, _) => Ending::Cancelled,
        (Outcome::Withheld, _) => Ending::NotSent,
        (_, Follows::Dead) => Ending::Never(status),
        (Outcome::Status(status), Follows::Retried(Limit::Attempts)) => Ending::Client(status.as_u16()),
        (Outcome::Status(status), Follows::Retried(Limit::Age)) => {
            Ending::Server { status: status.as_u16(), retry_after: retry_after(attempt) }
        }
        (_, Follows::Retried(_)) => Ending::NoAnswer,
    }
}

/// The same of a live request that had waited for `wait`. Its answer's body counts, for without it there is nothing to relay. Time that ran
/// out after most of it went by in our queue says nothing about the upstream.
pub(super) fn live_ending(attempt: &Attempt, wait: Duration) -> Ending {
    let timeout = matches!(attempt.outcome, Outcome::TimeoutDns | Outcome::TimeoutConnect | Outcome::TimeoutHead);
    match attempt.answer.as_ref().map(|answer| answer.end) {
        end if (timeout || end == Some(BodyEnd::Late)) && attempt.took < wait => Ending::Cancelled,
        Some(BodyEnd::Late | BodyEnd::BrokeOff) => Ending::NoAnswer,
        _ => ending(attempt),
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

/// What is kept of an attempt, before which its event waited for this.
pub(super) fn note(attempt: &Attempt, waited: WaitSplit) -> AttemptNote {
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
        waited,
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, StatusCode};

    use bytes::Bytes;

    use super::*;
    use crate::deliver::{Answer, follows};
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
            (Outcome::Withheld, Ending::NotSent),
            (Outcome::Unsendable, Ending::Never(None)),
        ] {
            assert_eq!(ending(&attempt(outcome, None)), expected, "{outcome:?}");
        }
        let after = RetryAfter::After(Duration::from_secs(9));
        let expected = Some(engine::RetryAfter { delay: Duration::from_secs(9), scope: Scope::Auto });
        assert_eq!(ending(&attempt(status(503), Some(after))), Ending::Server { status: 503, retry_after: expected });
        assert_eq!(ending(&attempt(status(503), Some(RetryAfter::Never))), Ending::Never(Some(503)));
    }

    #[test]
    fn a_live_request_that_spent_its_time_in_our_queue_says_nothing_about_the_upstream() {
        let took = |outcome, ms| Attempt { took: Duration::from_millis(ms), ..attempt(outcome, None) };
        let wait = Duration::from_millis(100);
        assert_eq!(live_ending(&took(Outcome::TimeoutHead, 99), wait), Ending::Cancelled);
        assert_eq!(live_ending(&took(Outcome::TimeoutHead, 100), wait), Ending::NoAnswer);
        assert_eq!(live_ending(&took(Outcome::Refused, 0), wait), Ending::NoAnswer, "no time was needed for that");
        let ok = Outcome::of(StatusCode::OK);
        for (end, expected) in [
            (BodyEnd::Whole, Ending::Success),
            (BodyEnd::TooLong, Ending::Success),
            (BodyEnd::BrokeOff, Ending::NoAnswer),
            (BodyEnd::Late, Ending::NoAnswer),
        ] {
            let answer = Answer { status: StatusCode::OK, headers: HeaderMap::new(), body: Bytes::new(), end };
            let attempt = Attempt { answer: Some(answer), ..took(ok, 200) };
            assert_eq!(live_ending(&attempt, wait), expected, "{end:?}");
        }
    }
}
