//! What follows a failed attempt: when it is repeated, and when it is not.

use std::time::Duration;

use super::ev::Ev;
use super::fact::Ending;
use super::rng::Rng;
use super::{Backoff, Retry};
use crate::event::Mono;

/// A `Retry-After` of a group is believed up to here.
pub(super) const GROUP_HOLD_MAX: Duration = Duration::from_secs(3_600);

/// What follows for the event of an attempt that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Delivered,
    /// Again, so long from now.
    Again(Duration),
    Dead(Box<str>),
    /// It did not happen.
    Back,
}

/// Decides. `ev` has the ended attempt in its counts already; `hold_left` is how long it may still hold its order key, where it
/// has one.
pub(super) fn next(
    retry: &Retry,
    ev: &Ev,
    ending: Ending,
    hold_left: Option<Duration>,
    now: Mono,
    rng: &mut Rng,
) -> Next {
    match ending {
        Ending::Success => return Next::Delivered,
        Ending::NotSent => return Next::Back,
        Ending::Never(Some(status)) => {
            return Next::Dead(format!("the upstream answered {status}: never again").into());
        }
        Ending::Never(None) => return Next::Dead("it cannot be sent; its last attempt says why".into()),
        Ending::Client(_) | Ending::Server { .. } | Ending::NoAnswer | Ending::Cancelled => {}
    }
    if ev.refused() >= retry.attempts {
        let refused = ev.refused();
        return Next::Dead(format!("refused with a 4xx {refused} times; the last attempt {}", ending.words()).into());
    }
    let age = ev.age(now);
    if age >= retry.max_age {
        let age = age.as_secs();
        return Next::Dead(format!("given up {age} s after its first attempt; the last {}", ending.words()).into());
    }
    if hold_left == Some(Duration::ZERO) {
        return Next::Dead(
            format!("held its order key for as long as it may; the last attempt {}", ending.words()).into(),
        );
    }
    let mut delay = backoff(&retry.backoff, ev.attempts, rng);
    if let Ending::Server { retry_after: Some(asked), .. } = ending {
        delay = delay.max(asked.delay.min(GROUP_HOLD_MAX));
    }
    // The last attempt of an event that holds its key comes before its time is over, and the last of all at its greatest age.
    delay = delay.min(hold_left.unwrap_or(Duration::MAX)).min(retry.max_age - age);
    Next::Again(delay)
}

/// Whether any failure of the coming attempt that is not final would be followed by another.
pub(super) fn will_retry(retry: &Retry, ev: &Ev, now: Mono) -> bool {
    ev.refused() + 1 < retry.attempts && ev.age(now) < retry.max_age
}

/// After the n-th failure uniform in [0.5, 1] × min(initial · factorⁿ⁻¹, max).
fn backoff(backoff: &Backoff, failures: u32, rng: &mut Rng) -> Duration {
    let grown =
        backoff.initial.as_secs_f64() * backoff.factor.max(1.0).powi(failures.saturating_sub(1).min(1_000) as i32);
    let full = Duration::try_from_secs_f64(grown).unwrap_or(Duration::MAX).min(backoff.max);
    full / 2 + rng.part_of(full / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Settings;
    use crate::engine::fact::{RetryAfter, Scope};

    fn ev(attempts: u32, refused: u32, age_s: i64) -> Ev {
        Ev::tried(attempts, 1_000_000_000 - age_s * 1_000_000, refused)
    }

    const NOW: Mono = Mono(1_000_000_000);
    const BAD: Ending = Ending::Server { status: 500, retry_after: None };

    fn decide(ev: &Ev, ending: Ending, hold_left: Option<Duration>) -> Next {
        next(&Settings::default().retry, ev, ending, hold_left, NOW, &mut Rng::new(1))
    }

    fn delay(next: &Next) -> Duration {
        match next {
            Next::Again(delay) => *delay,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn delays_double_from_five_seconds_to_an_hour_with_half_of_them_drawn() {
        for (attempts, full) in [(1, 5), (2, 10), (3, 20), (9, 1_280), (10, 2_560), (11, 3_600), (5_000, 3_600)] {
            for seed in 0..50 {
                let mut rng = Rng::new(seed);
                let next = next(&Settings::default().retry, &ev(attempts, 0, 1), BAD, None, NOW, &mut rng);
                let delay = delay(&next);
                assert!(
                    delay >= Duration::from_secs(full) / 2 && delay <= Duration::from_secs(full),
                    "{attempts} {delay:?}"
                );
            }
        }
    }

    #[test]
    fn only_refusals_count_and_all_else_has_three_days() {
        assert!(matches!(decide(&ev(500, 11, 86_400), BAD, None), Next::Again(_)));
        assert!(matches!(decide(&ev(12, 12, 60), Ending::Client(404), None), Next::Dead(_)));
        assert!(matches!(decide(&ev(12, 11, 60), Ending::Client(404), None), Next::Again(_)));
        assert!(matches!(decide(&ev(30, 0, 3 * 86_400), BAD, None), Next::Dead(_)));
        assert!(matches!(decide(&ev(1, 0, 0), Ending::Never(Some(410)), None), Next::Dead(_)));
        assert_eq!(decide(&ev(1, 0, 0), Ending::NotSent, None), Next::Back);
        assert_eq!(decide(&ev(1, 0, 0), Ending::Success, None), Next::Delivered);
    }

    #[test]
    fn the_last_attempt_comes_at_the_greatest_age_and_not_after() {
        assert_eq!(delay(&decide(&ev(40, 0, 3 * 86_400 - 60), BAD, None)), Duration::from_secs(60));
    }

    #[test]
    fn retry_after_is_waited_for_up_to_an_hour() {
        let asked = |s| Ending::Server {
            status: 503,
            retry_after: Some(RetryAfter { delay: Duration::from_secs(s), scope: Scope::Auto }),
        };
        assert_eq!(delay(&decide(&ev(1, 0, 0), asked(120), None)), Duration::from_secs(120));
        assert_eq!(delay(&decide(&ev(1, 0, 0), asked(100_000), None)), Duration::from_secs(3_600));
    }

    #[test]
    fn a_held_key_is_given_up_in_time() {
        assert!(matches!(decide(&ev(3, 0, 60), BAD, Some(Duration::ZERO)), Next::Dead(_)));
        assert_eq!(delay(&decide(&ev(11, 0, 60), BAD, Some(Duration::from_secs(7)))), Duration::from_secs(7));
    }
}
