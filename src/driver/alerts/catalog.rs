//! Every kind of alert, as data: what it is called, how urgent it is, when it fires and resolves, what it means and what to do. The
//! documentation's table is written from it (see `docs/alerts.md`).

use std::time::Duration;

use super::Severity;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Declares the kinds and their list, so that none can be left out of it.
macro_rules! kinds {
    ($($kind:ident),* $(,)?) => {
        /// One kind of alert.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(super) enum Kind { $($kind),* }

        impl Kind {
            /// All of them, in the order of the documentation.
            pub(super) const ALL: &[Self] = &[$(Self::$kind),*];
        }
    };
}

kinds! {
    BacklogAgeMany,
    BacklogAge,
    Capacity,
    NoisyGroup,
    DedicatedCeiling,
    Skew,
    UpstreamBreaker,
    UpstreamAddress,
    GroupBreaker,
    RetriesOverdue,
    OrderKeys,
    FallbackShare,
    SecretEnded,
    SecretEnding,
    ClockSkew,
    DiskRefusing,
    DiskFilling,
    DiskLow,
    StoreFailing,
    StorePollAge,
    StoreAway,
    SpoolHeld,
    InvariantViolated,
    ConfigurationRefused,
}

/// What is known of a kind.
pub(super) struct Row {
    /// Its name in the API, in metrics and in messages.
    pub(super) name: &'static str,
    /// How urgent it is.
    pub(super) severity: Severity,
    /// How long its condition has to hold before it fires. Of some it is a setting, see [`super::Settings::after`].
    pub(super) after: Duration,
    /// How long its condition has to be gone before it resolves. Of some it depends on a setting, see [`super::Settings::clear`].
    pub(super) clear: Duration,
    /// The condition, for the documentation.
    pub(super) when: &'static str,
    /// What it means, for whoever is woken by it.
    pub(super) means: &'static str,
    /// What to do about it.
    pub(super) remedy: &'static str,
    /// The commands that it may bring, `GROUP`, `SOURCE` and `N` in the places of what differs.
    pub(super) press: &'static [&'static str],
}

impl Kind {
    /// Its name.
    pub(super) fn name(self) -> &'static str {
        self.row().name
    }

    /// Whether it is judged by what the driver has to be asked for, so that nothing is known while the driver does not answer.
    pub(super) fn needs_survey(self) -> bool {
        matches!(
            self,
            Self::BacklogAgeMany
                | Self::BacklogAge
                | Self::Capacity
                | Self::NoisyGroup
                | Self::DedicatedCeiling
                | Self::Skew
                | Self::UpstreamBreaker
                | Self::GroupBreaker
                | Self::RetriesOverdue
                | Self::OrderKeys
        )
    }

    /// What is known of it.
    pub(super) fn row(self) -> Row {
        use Severity::{Page, Ticket};
        match self {
            Self::BacklogAgeMany => Row {
                name: "backlog_age_many",
                severity: Page,
                after: s(0),
                clear: s(30),
                when: "more than `backlog_age.groups_over` groups have an event older than `backlog_age.group`, until 80 % of that number or \
                       fewer do; groups that are paused, or whose own breaker is open, do not count",
                means: "Many tenants wait at once, so the cause is not one of them: the upstream is down or slow, or there are too \
                        few slots.",
                remedy: "Look at the upstream first, then at who holds the slots.",
                press: &["fairlane upstream"],
            },
            Self::BacklogAge => Row {
                name: "backlog_age",
                severity: Ticket,
                after: s(0),
                clear: s(30),
                when: "one group's oldest event is older than `backlog_age.group` (each group, twenty at most; none begins while \
                       `backlog_age_many` fires; not of a group that is paused, or whose own breaker is open)",
                means: "This tenant waits; the others do not. Often it sends more than its cap or rate lets through, or its calls fail.",
                remedy: "Read why it does not run; mend what fails. A larger cap is proposed only where slots are free. Nothing is lost meanwhile.",
                press: &["fairlane groups why GROUP", "fairlane groups set GROUP --concurrency N", "fairlane upstream"],
            },
            Self::Capacity => Row {
                name: "capacity",
                severity: Ticket,
                after: s(300),
                clear: s(300),
                when: "what arrived in a minute takes more worker time than the slots have, for 5 min, until it takes 80 % or less",
                means: "More arrives than the upstream can take. Fairness shares capacity, it does not make any: backlogs grow until \
                        arrivals fall.",
                remedy: "Add workers to the upstream and raise upstream.concurrency with them, or hold back whoever sends most.",
                press: &["fairlane groups --sort seconds"],
            },
            Self::NoisyGroup => Row {
                name: "noisy_group",
                severity: Ticket,
                after: s(120),
                clear: s(60),
                when: "one group holds over half of a backlog of at least `skew.max_lag` events, for `skew.window`, until it holds 40 % or \
                       less; paused groups and their events do not count",
                means: "One tenant floods. The others do not wait for it; its own events do, and they fill the disk.",
                remedy: "Find out whether it is meant (an import) or a loop; pause it, move its queue to the dead letters (fairlane groups \
                         divert GROUP; a replay brings it back), or wait.",
                press: &["fairlane groups pause GROUP --expires 1h"],
            },
            Self::DedicatedCeiling => Row {
                name: "dedicated_ceiling",
                severity: Ticket,
                after: s(0),
                clear: s(300),
                when: "a group would get dedicated slots (`groups.dedicated`), and all such slots are taken (each group)",
                means: "This tenant demands more than it gets and will not catch up; as many others have slots of their own as may.",
                remedy: "Raise groups.dedicated.max or the upstream's slots, or hold the group back.",
                press: &["fairlane groups why GROUP"],
            },
            Self::Skew => Row {
                name: "skew",
                severity: Ticket,
                after: s(120),
                clear: s(60),
                when: "the fullest of 64 shards holds more than `skew.ratio` times the median, is more than `skew.max_lag` events ahead of \
                       it and has an event older than `skew.max_age`, for `skew.window`; not while one group holds over half of the \
                       shard or of all, nor where over half of the shards are empty; paused groups do not count",
                means: "The backlog lies in few shards. One node serves them all alike; over several nodes, theirs would have most to do.",
                remedy: "See which groups are largest; a finer key, or a second level (within), spreads them.",
                press: &["fairlane groups --sort depth"],
            },
            Self::UpstreamBreaker => Row {
                name: "upstream_breaker",
                severity: Page,
                after: s(0),
                clear: s(30),
                when: "the upstream's breaker is open or half open",
                means: "The upstream fails for several tenants, so nearly nothing is delivered. Events are kept and go when it is back.",
                remedy: "Mend the upstream. The gateway tries by itself; nothing has to be done here.",
                press: &["fairlane upstream"],
            },
            Self::UpstreamAddress => Row {
                name: "upstream_address",
                severity: Ticket,
                after: s(0),
                clear: s(60),
                when: "one of several addresses (`upstream.urls`) is left out: it failed too often in a row, or fails its checks",
                means: "The other addresses take its share, so nothing is lost and nobody waits longer while they are enough. With none \
                        left all are used.",
                remedy: "Mend what listens there. It is used again by itself, with a share that grows.",
                press: &["fairlane upstream"],
            },
            Self::GroupBreaker => Row {
                name: "group_breaker",
                severity: Ticket,
                after: s(60),
                clear: s(120),
                when: "a group's breaker is not closed for 1 min (each group, twenty at most; none begins while the upstream's is not closed)",
                means: "The upstream fails for this tenant's events alone. They are retried; the others go on.",
                remedy: "Read the last answer of the upstream to one of its events.",
                press: &["fairlane events --group GROUP --status retrying"],
            },
            Self::RetriesOverdue => Row {
                name: "retries_overdue",
                severity: Ticket,
                after: s(60),
                clear: s(60),
                when: "`fairlane_retries_overdue` is above 0 for 1 min",
                means: "Retries could go and do not: a fault of the gateway, not of the upstream.",
                remedy: "Report it with the log. A restart takes up every retry again.",
                press: &["fairlane groups --sort age"],
            },
            Self::OrderKeys => Row {
                name: "order_keys",
                severity: Ticket,
                after: s(0),
                clear: s(60),
                when: "a lane has 10,000 order keys under way, as many as may be (each group, twenty at most)",
                means: "So many of this tenant's ordered events fail that the lane takes up no further ones until some are settled.",
                remedy: "Mend what fails; events that can never succeed are given up after order_max_hold, or at once by fairlane events skip ID.",
                press: &["fairlane events --group GROUP --status retrying"],
            },
            Self::FallbackShare => Row {
                name: "fallback_share",
                severity: Ticket,
                after: s(0),
                clear: s(60),
                when: "of the events of a source with a key rule more than `fallback_share` had no key: of those of the last 10 min, at \
                       least of the last 100; until 80 % of that share or less had none",
                means: "Events without a key share one lane, so one tenant can delay another there.",
                remedy: "Try the key rule on stored traffic; a provider may have changed its payload.",
                press: &["fairlane events --group '~fallback' --source SOURCE --limit 5"],
            },
            Self::SecretEnded => Row {
                name: "secret_ended",
                severity: Page,
                after: s(0),
                clear: s(0),
                when: "a secret's `until` has passed, senders used it to the end, and requests are refused for their signature since",
                means: "Senders still sign with a secret that is not tried any more. Their requests are refused, and many never repeat.",
                remedy: "Set a later `until` for it at once, then change the secret at the sender.",
                press: &["fairlane rejections --source SOURCE --limit 5"],
            },
            Self::SecretEnding => Row {
                name: "secret_ending",
                severity: Ticket,
                after: s(0),
                clear: s(0),
                when: "a secret's `until` is less than 7 days away and a request of the last 24 h matched it",
                means: "When it ends, whoever still signs with it is refused.",
                remedy: "Change the secret at the sender, or set a later `until`.",
                press: &["fairlane sources"],
            },
            Self::ClockSkew => Row {
                name: "clock_skew",
                severity: Ticket,
                after: s(60),
                clear: s(300),
                when: "the median of a source's last 20 signed times is more than 1 min from this machine's clock, for 1 min, until it is \
                       80 % of that or less",
                means: "This machine's clock is wrong, or the sender's is, or its requests are held up on their way. Beyond the tolerance \
                        they are refused as stale.",
                remedy: "Check that this machine's time is kept by NTP; if it is, the sender's is wrong.",
                press: &["fairlane rejections --source SOURCE --limit 5"],
            },
            Self::DiskRefusing => Row {
                name: "disk_refusing",
                severity: Page,
                after: s(0),
                clear: s(60),
                when: "room falls below 1.5 × `min_free`: the groups that hold most are refused with 429; below 1 × everybody is, with 503",
                means: "Events are refused for want of room, and many senders never repeat. What was accepted is still delivered.",
                remedy: "Free space, give the disk more, or shorten store.retention; pausing nobody helps, delivering does.",
                press: &["fairlane groups --sort depth"],
            },
            Self::DiskFilling => Row {
                name: "disk_filling",
                severity: Page,
                after: s(60),
                clear: s(300),
                when: "at the rate of the last 5 to 10 min new events would be refused within an hour, until it is two",
                means: "The disk fills faster than it is emptied.",
                remedy: "See who sends most, whether deliveries go, and what else writes to this disk.",
                press: &["fairlane groups --sort rate"],
            },
            Self::DiskLow => Row {
                name: "disk_low",
                severity: Ticket,
                after: s(0),
                clear: s(60),
                when: "room falls below 2 × `min_free`: the oldest delivered history goes before its retention is over",
                means: "The disk is nearly full. Nothing is refused yet; history gets shorter.",
                remedy: "Give the disk more room, or shorten store.retention.",
                press: &["fairlane doctor"],
            },
            Self::StoreFailing => Row {
                name: "store_failing",
                severity: Page,
                after: s(0),
                clear: s(10),
                when: "the last new events could not be written to the disk (it is full, or read-only), or have been on their way for 4 s, or the \
                       data folder is no longer where it was (deleted, moved, replaced); \
                       until new events can be written for 10 s",
                means: "New events get 503, and many senders never repeat. What cannot be written down cannot be delivered either, so \
                        deliveries may stand still. Nothing that was answered 200 is lost.",
                remedy: "Look at the disk: is it full, was it remounted read-only, does it hang? (dmesg says.) Nothing has to be done here: \
                         it is tried again every second. Was the data folder deleted or moved? Put it back. Where it is gone for good, what \
                         waits is in the process alone: let it be delivered before you stop it.",
                press: &["fairlane doctor"],
            },
            Self::StorePollAge => Row {
                name: "store_poll_age",
                severity: Page,
                after: s(0),
                clear: s(10),
                when: "the delivery loop made no turn for 10 s",
                means: "Nothing is stored or delivered: the machine is starved, its disk hangs, or the gateway has a fault.",
                remedy: "Look at the machine's load and disk; /healthz is red, so a supervisor may restart the process. A restart is safe.",
                press: &["fairlane doctor"],
            },
            Self::StoreAway => Row {
                name: "store_away",
                severity: Page,
                after: s(0),
                clear: s(10),
                when: "Redis did not answer this node for 10 s (`fairlane_store_poll_age_seconds`)",
                means: "Nothing is delivered: what is queued is in Redis. With a spool (`store.redis.spool`) new events are kept on this \
                        node and answered 200, but for those of sources with `order`, which get 503; without one, or when it is full, \
                        all of them do.",
                remedy: "Bring Redis back: is it running, can this machine reach it, is it loading its data, has a failover ended? Nothing \
                         has to be done here: the node connects by itself, and what is in the spool goes to Redis in its order. Keep the \
                         spool's folder if this node has to be replaced meanwhile.",
                press: &["fairlane doctor"],
            },
            Self::SpoolHeld => Row {
                name: "spool_held",
                severity: Ticket,
                after: s(300),
                clear: s(10),
                when: "events are in the spool for 5 min although Redis answers this node",
                means: "These events were answered 200 and wait where nobody delivers them: a shard of Redis is away or has no memory \
                        left, their group has as many events waiting as it may, or they cannot be read.",
                remedy: "See which groups they are of (the API marks such events `spooled`) and whether those have reached their backlog; \
                         look at the memory and the shards of Redis, and into the log for damaged events.",
                press: &["fairlane events --status queued --json", "fairlane doctor"],
            },
            Self::InvariantViolated => Row {
                name: "invariant_violated",
                severity: Page,
                after: s(0),
                clear: s(0),
                when: "`fairlane_invariant_violations_total` grew within the last hour",
                means: "The gateway found its own books wrong and put them right: a fault of the gateway.",
                remedy: "Report it with the log of that minute.",
                press: &["fairlane doctor"],
            },
            Self::ConfigurationRefused => Row {
                name: "configuration_refused",
                severity: Ticket,
                after: s(0),
                clear: s(0),
                when: "the file on disk cannot be applied (`fairlane_config_ok` is 0)",
                means: "What ran before goes on; a restart would fail.",
                remedy: "Read what is wrong with the file and mend it; it is applied when it is saved.",
                press: &["fairlane check"],
            },
        }
    }
}

/// All kinds as `docs/alerts.md` lists them: a Markdown table.
#[must_use]
pub fn reference() -> String {
    let rows = Kind::ALL.iter().map(|kind| {
        let Row { name, severity, when, means, remedy, press, .. } = kind.row();
        let press: Vec<String> = press.iter().map(|command| format!("`{command}`")).collect();
        format!("| `{name}` | {} | {when} | {means} | {remedy} {} |\n", severity.as_str(), press.join(" · "))
    });
    let head = "| name | kind | fires when | what it means | what to do |\n| --- | --- | --- | --- | --- |\n";
    std::iter::once(head.to_owned()).chain(rows).collect()
}
