//! Every field of the configuration, as data: its name, what it takes, its default, what it is for. The checker walks this
//! table, `fairlane schema` prints it, the effective configuration is written from it: they cannot disagree.
//!
//! A new field is a row here and a line in `settings.rs` that reads it.

use std::time::Duration;

use super::text::{self, Text};

/// One field.
pub(super) struct Field {
    /// Its name in the map that holds it.
    pub(super) name: &'static str,
    /// What it takes.
    pub(super) kind: Kind,
    /// What stands there when nothing is written.
    pub(super) default: Default,
    /// What it is for, one sentence or two.
    pub(super) doc: &'static str,
}

/// What stands in a field that is not given.
pub(super) enum Default {
    /// It has to be given.
    Required,
    /// A map whose own fields have defaults.
    Parts,
    /// This, as it would be written.
    Is(&'static str),
    /// This, where `null` is not written: that means something of its own.
    OrNull(&'static str),
}

/// What a field takes. With the default `null`, and beside one that may be `null`, it takes `null` as well.
pub(super) enum Kind {
    /// Named fields.
    Map(&'static Map),
    /// Any number of the same, at least so many.
    List(&'static Kind, usize),
    /// Names that the user chooses, each with a value: header lines.
    Dict {
        /// What a name has to be.
        name: &'static Text,
        /// What a value has to be.
        value: &'static Kind,
    },
    /// `true` or `false`.
    Bool,
    /// A whole number in these bounds.
    Int(u64, u64),
    /// A number in these bounds.
    Number(f64, f64),
    /// A length of time in these bounds.
    Duration(Duration, Duration),
    /// A number of bytes in these bounds.
    Size(u64, u64),
    /// Events per time.
    Rate,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Text of a form of its own.
    Text(&'static Text),
    /// Text that is never shown; `file:/path` reads a file. The form is checked, if there is one.
    Secret(Option<&'static Text>),
    /// A key expression, a list of them, or `{ join: [...] }`.
    Key,
    /// `group`, or what a key takes.
    Order,
    /// The name of a provider, or of a scheme of our own.
    Provider,
}

/// A map's fields.
pub(super) struct Map {
    /// Its fields, in the order of the documentation.
    pub(super) fields: &'static [Field],
    /// The field that a plain value in place of the map is meant for.
    pub(super) short: Option<&'static str>,
    /// Whether even a wrong name in it could be a secret that slipped.
    pub(super) secret: bool,
}

impl Map {
    /// The field of this name.
    pub(super) fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|f| f.name == name)
    }
}

const fn map(fields: &'static [Field]) -> Map {
    Map { fields, short: None, secret: false }
}

const fn field(name: &'static str, default: Default, kind: Kind, doc: &'static str) -> Field {
    Field { name, kind, default, doc }
}

const NULL: Default = Default::Is("null");
const REQUIRED: Default = Default::Required;
const PARTS: Default = Default::Parts;

const fn is(text: &'static str) -> Default {
    Default::Is(text)
}

const fn time(min_ms: u64, max_ms: u64) -> Kind {
    Kind::Duration(Duration::from_millis(min_ms), Duration::from_millis(max_ms))
}

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

const COUNT: Kind = Kind::Int(1, 1_000_000_000);
const SLOTS: Kind = Kind::Int(1, 100_000);
const SHARE: Kind = Kind::Number(0.0, 1.0);
/// A group of weight 0 would never be served; beyond a thousandfold the small one waits as if it were 0.
const WEIGHT: Kind = Kind::Number(0.01, 1_000.0);

/// The whole file.
pub(super) static ROOT: Map = map(&[
    field("listen", PARTS, Kind::Map(&LISTEN), "The listener that senders reach."),
    field("admin", PARTS, Kind::Map(&ADMIN), "The listener for API, metrics and health."),
    field(
        "upstream",
        PARTS,
        Kind::Map(&UPSTREAM),
        "The one receiver that events are delivered to; a plain URL is enough.",
    ),
    field("groups", PARTS, Kind::Map(&GROUPS), "Fairness between groups (tenants)."),
    field("sources", REQUIRED, Kind::List(&Kind::Map(&SOURCE), 1), "The inlets, at least one."),
    field("store", PARTS, Kind::Map(&STORE), "What survives a crash: embedded, or redis."),
    field("shutdown", PARTS, Kind::Map(&SHUTDOWN), "How the process ends."),
    field("replay", PARTS, Kind::Map(&REPLAY), "Delivering stored events once more."),
    field("log", PARTS, Kind::Map(&LOG), "The log on standard error."),
    field(
        "otlp",
        NULL,
        Kind::Text(&text::COLLECTOR),
        "Where traces go: a collector that takes OTLP over gRPC, e.g. http://127.0.0.1:4317. Null: none are made.",
    ),
    field(
        "tenant_pages",
        PARTS,
        Kind::Map(&TENANT_PAGES),
        "Pages for tenants on a listener of their own, off unless set.",
    ),
    field("alerts", PARTS, Kind::Map(&ALERTS), "What an operator is told."),
]);

static LISTEN: Map = map(&[
    field(
        "address",
        is("0.0.0.0:8080"),
        Kind::Text(&text::ADDRESS),
        "Where to listen; an inherited socket (LISTEN_FDS) takes precedence.",
    ),
    field("tls", NULL, Kind::Map(&TLS), "Serve TLS with these files; they are read again when they change."),
    field("h2c", is("false"), Kind::Bool, "Take HTTP/2 without TLS (prior knowledge)."),
    field(
        "trusted_proxies",
        is("[]"),
        Kind::List(&Kind::Text(&text::NETWORK), 0),
        "Networks whose X-Forwarded-* headers count.",
    ),
    field("limits", PARTS, Kind::Map(&LIMITS), "What is too much, and too slow."),
    field("rejections", is("1000"), Kind::Int(0, 100_000), "Records of refused requests kept in memory, per source."),
]);

static TLS: Map = map(&[
    field("cert", REQUIRED, Kind::Text(&text::FILE), "The certificate chain, PEM."),
    field("key", REQUIRED, Kind::Text(&text::FILE), "Its private key, PEM."),
    field(
        "client_ca",
        NULL,
        Kind::Text(&text::FILE),
        "Certificates that may sign a client's, PEM; with it clients must show one.",
    ),
]);

static LIMITS: Map = map(&[
    field("body", is("26MiB"), Kind::Size(1, GIB), "Bytes of a body. GitHub sends up to 25 MB and never repeats."),
    // Less than 8 KiB is below what the HTTP parser itself works with.
    field("headers", is("64KiB"), Kind::Size(8 * KIB, MIB), "Bytes of a request's head."),
    field("connections", is("10000"), Kind::Int(1, 1_000_000), "Open connections."),
    field(
        "connections_per_ip",
        is("1000"),
        Kind::Int(1, 1_000_000),
        "Open connections of one address that had no verified request yet; trusted proxies are exempt.",
    ),
    field(
        "buffered",
        is("256MiB"),
        Kind::Size(1, TIB),
        "Bytes of all bodies in memory that are not stored yet; above 80 % large new ones get 503.",
    ),
    field("header_timeout", is("10s"), time(1, HOUR), "For a whole head."),
    field(
        "body_timeout",
        is("30s"),
        time(1, HOUR),
        "For a whole body, which must also bring at least 1 KiB/s after 5 s.",
    ),
    field("idle_timeout", is("75s"), time(1, DAY), "Between requests of one connection."),
    field(
        "answer_timeout",
        NULL,
        time(1, 10 * MINUTE),
        "How long a commit may take before the sender gets 503. Null: the provider's limit less half a second, else 4s.",
    ),
]);

static ADMIN: Map = map(&[
    field("address", is("127.0.0.1:8081"), Kind::Text(&text::ADDRESS), "Where to listen."),
    field(
        "hosts",
        is("[]"),
        Kind::List(&Kind::Text(&text::HOST), 0),
        "Names that the Host header may carry besides IP addresses and localhost.",
    ),
    field(
        "token",
        NULL,
        Kind::Secret(Some(&text::TOKEN)),
        "The bearer token. Null: made at first start and kept, readable by the owner alone, in the data directory.",
    ),
    field("open_metrics", is("true"), Kind::Bool, "/metrics without the token, then without any group label."),
]);

/// Where an application listens that nobody told another port.
pub(super) const UPSTREAM_URL: &str = "http://127.0.0.1:3000";

static UPSTREAM: Map = Map {
    fields: &[
        field("url", is(UPSTREAM_URL), Kind::Text(&text::UPSTREAM_URL), "Where events are delivered to."),
        field(
            "urls",
            NULL,
            Kind::List(&Kind::Map(&WEIGHTED_URL), 1),
            "Several addresses of the same receiver, in place of url.",
        ),
        field(
            "sticky",
            NULL,
            Kind::Choice(&["group"]),
            "group: a group's events go to the same address of urls while it is healthy. Null: by turns and weight.",
        ),
        field(
            "health",
            NULL,
            Kind::Map(&HEALTH),
            "Asks the addresses of urls how they are. Null: they are judged by their answers alone.",
        ),
        field(
            "tls",
            NULL,
            Kind::Map(&UPSTREAM_TLS),
            "For addresses that begin with https; the files are read again when they change.",
        ),
        field("concurrency", is("64"), SLOTS, "Slots: requests in flight at one time."),
        field("rate", NULL, Kind::Rate, "Requests per time, e.g. 500/s or 10000/m."),
        field("timeout", is("30s"), time(1, HOUR), "One deadline over name lookup, connect, head and body."),
        field(
            "idle",
            is("4s"),
            time(1, HOUR),
            "Idle connections are closed after this, before the usual 5 s of the other side.",
        ),
        field(
            "headers",
            is("{}"),
            Kind::Dict { name: &text::HEADER_NAME, value: &Kind::Secret(Some(&text::HEADER_VALUE)) },
            "Header lines added to every attempt.",
        ),
        field(
            "signing_secret",
            NULL,
            Kind::Secret(None),
            "Adds Fairlane-Signature, which the libraries of Standard Webhooks verify.",
        ),
        field("breaker", PARTS, Kind::Map(&BREAKER), "When to hold back."),
        field("retry", PARTS, Kind::Map(&RETRY), "When to try again."),
    ],
    short: Some("url"),
    secret: false,
};

static WEIGHTED_URL: Map = Map {
    fields: &[
        field("url", REQUIRED, Kind::Text(&text::UPSTREAM_URL), "One address."),
        field("weight", is("1"), Kind::Int(1, 1_000), "Its share."),
    ],
    short: Some("url"),
    secret: false,
};

static HEALTH: Map = map(&[
    field(
        "path",
        is("/up"),
        Kind::Text(&text::PATH),
        "What is asked for (GET), from the root of the host; 2xx and 3xx are well.",
    ),
    field("interval", is("5s"), time(1, HOUR), "How long after one round the next one begins."),
    field("timeout", is("2s"), time(1, HOUR), "How long an answer may take."),
    field("failures", is("2"), Kind::Int(1, 1_000), "Bad answers in a row, and the address is left out."),
    field("successes", is("1"), Kind::Int(1, 1_000), "Good answers in a row, and it is used again."),
]);

static UPSTREAM_TLS: Map = map(&[
    field("ca", NULL, Kind::Text(&text::FILE), "Certificates to trust, as PEM, in place of the operating system's."),
    field(
        "cert",
        NULL,
        Kind::Text(&text::FILE),
        "The certificate to show, as PEM, with those between it and its root.",
    ),
    field("key", NULL, Kind::Text(&text::FILE), "Its private key, as PEM."),
]);

static BREAKER: Map = map(&[
    field(
        "upstream",
        PARTS,
        Kind::Map(&BREAKER_UPSTREAM),
        "For all groups: no answer (refused, reset, timeout, TLS, DNS) and every 5xx count.",
    ),
    field(
        "group",
        PARTS,
        Kind::Map(&BREAKER_GROUP),
        "For one group: failed attempts in a row count, 4xx answers do not.",
    ),
    field(
        "address",
        PARTS,
        Kind::Map(&BREAKER_ADDRESS),
        "For one of several addresses: it is left out, never all of them. No connection counts, whoever's event it was; a 5xx, a reset, a \
         silence or nonsense when it is not one group's alone.",
    ),
]);

static BREAKER_UPSTREAM: Map = map(&[
    field("failures", is("20"), COUNT, "Opens at so many failures in the window,"),
    field("ratio", is("0.5"), SHARE, "that are at least this share of the attempts"),
    field("groups", is("3"), COUNT, "and come from so many groups."),
    field("window", is("10s"), time(1, HOUR), "Over how long failures count."),
    field("open", is("5s"), time(1, HOUR), "How long it stays open at first; doubles from there"),
    field("open_max", is("60s"), time(1, DAY), "up to this."),
]);

static BREAKER_GROUP: Map = map(&[
    field("failures", is("10"), COUNT, "Opens at so many failures in a row"),
    field("window", is("60s"), time(1, HOUR), "within this."),
    field("open", is("5s"), time(1, HOUR), "How long it stays open at first; doubles from there"),
    field("open_max", is("60s"), time(1, DAY), "up to this."),
]);

static BREAKER_ADDRESS: Map = map(&[
    field("failures", is("5"), COUNT, "Left out at so many failures in a row."),
    field("open", is("5s"), time(1, HOUR), "How long at first; doubles from there"),
    field("open_max", is("60s"), time(1, DAY), "up to this."),
    field("slow_start", is("30s"), time(0, HOUR), "How long its share grows afterwards, from a tenth to the whole."),
]);

static RETRY: Map = map(&[
    field(
        "attempts",
        is("12"),
        Kind::Int(1, 1_000),
        "Attempts that may end in a 4xx other than 408, 425 and 429; all else counts only against max_age.",
    ),
    field(
        "max_age",
        is("3d"),
        time(1, 365 * DAY),
        "From the first attempt, or from the replay; waiting in a lane ages nobody out.",
    ),
    field(
        "backoff",
        PARTS,
        Kind::Map(&BACKOFF),
        "After the n-th failure a uniform part of 0.5 to 1 of min(initial × factor^(n−1), max).",
    ),
    field(
        "never",
        is("[410]"),
        Kind::List(&Kind::Int(100, 599), 0),
        "Statuses that go straight to the dead letters. 2xx is success and can never be retried.",
    ),
    field("concurrency", NULL, SLOTS, "Slots that retries may hold together. Null: a quarter of all, at least 1."),
]);

static BACKOFF: Map = map(&[
    field("initial", is("5s"), time(1, DAY), "After the first failure."),
    field("factor", is("2"), Kind::Number(1.0, 100.0), "What each further one multiplies it by."),
    field("max", is("1h"), time(1, 30 * DAY), "The longest."),
]);

static GROUPS: Map = map(&[
    field("key", NULL, Kind::Key, "The key of sources without one whose provider has no natural key."),
    field("defaults", PARTS, Kind::Map(&GROUP_DEFAULTS), "What holds for a group unless overrides says otherwise."),
    field("fallback", PARTS, Kind::Map(&FALLBACK), "The lane that all events without a key share."),
    field(
        "overrides",
        is("[]"),
        Kind::List(&Kind::Map(&OVERRIDE), 0),
        "Groups that differ; the first match counts, null takes the default.",
    ),
    field(
        "charge",
        is("time"),
        Kind::Choice(&["time", "events"]),
        "What a turn costs: the upstream's time, or 1 an event.",
    ),
    field(
        "burst",
        is("500ms"),
        time(0, HOUR),
        "Worker time that a quiet group is served ahead of the backlogged ones; ten events with charge: events.",
    ),
    field("slow", PARTS, Kind::Map(&SLOW), "Groups whose calls take long share a part of the slots."),
    field(
        "max_active",
        is("1000000"),
        Kind::Int(1, 100_000_000),
        "Lanes in memory at most; further groups share 64 overflow lanes.",
    ),
    field(
        "new_groups",
        NULL,
        Kind::Rate,
        "New groups of one source, only for keys from unsigned parts and after 24 h of known traffic; beyond it they share the source's overflow lanes. Null: as many as come.",
    ),
    field(
        "shed",
        is("false"),
        Kind::Bool,
        "429 at ingest for what a group has outgrown: promoted, or with no lane free, its backlog grew for another promote_after.",
    ),
    field(
        "dedicated",
        PARTS,
        Kind::Map(&DEDICATED),
        "Slots of its own for a group that keeps growing; off with max: 0.",
    ),
]);

static GROUP_DEFAULTS: Map = map(&[
    field("weight", is("1"), WEIGHT, "The group's share where groups compete for slots."),
    field("concurrency", NULL, SLOTS, "Slots that a group may hold. Null: an eighth of all, at least 1."),
    field("rate", NULL, Kind::Rate, "Deliveries per time."),
    field(
        "backlog",
        NULL,
        COUNT,
        "Events that may wait, fresh and retrying; beyond it the sender gets 429. Null: no cap.",
    ),
]);

static FALLBACK: Map = map(&[
    field("weight", is("1"), WEIGHT, "Its share where groups compete for slots."),
    field("concurrency", NULL, SLOTS, "Slots that it may hold. Null: as any group."),
]);

static OVERRIDE: Map = map(&[
    field("match", REQUIRED, Kind::Text(&text::GLOB), "Which groups, on the written form; * stands for any text."),
    field("weight", NULL, WEIGHT, "Their share where groups compete for slots."),
    field("concurrency", NULL, SLOTS, "Slots that each may hold. A group whose cap is chosen gets no dedicated slots."),
    field("rate", NULL, Kind::Rate, "Deliveries per time, each."),
    field("backlog", NULL, COUNT, "Events that may wait, each."),
]);

static SLOW: Map = map(&[
    field("after", is("1s"), time(1, HOUR), "Slow is what takes longer than this"),
    field("factor", is("4"), Kind::Number(1.0, 1_000.0), "and than so many times the upstream's median."),
    field("slots", is("0.5"), SHARE, "The share of the slots that all slow lanes hold together at most."),
]);

static DEDICATED: Map = map(&[
    field(
        "max",
        is("0"),
        Kind::Int(0, 8),
        "Groups that may have slots of their own at one time; max × concurrency is at most half of the slots.",
    ),
    field(
        "concurrency",
        is("8"),
        SLOTS,
        "Slots of each, taken out of the total; no fewer than groups.defaults.concurrency.",
    ),
    field("promote_share", is("0.30"), SHARE, "Promotes a group that demands this share of the capacity"),
    field("demote_share", is("0.10"), SHARE, "Demotes one that demands less than this"),
    field("promote_after", is("15m"), time(SECOND, 30 * DAY), "for so long while its backlog grows."),
    field("demote_after", is("1h"), time(SECOND, 30 * DAY), "for so long."),
]);

/// Fields of one source; `name` is what reload tells sources apart by.
pub(super) static SOURCE: Map = map(&[
    field(
        "path",
        REQUIRED,
        Kind::Text(&text::PATTERN),
        "Exactly this path, with or without a trailing slash; /x/* takes /x and all below; /hooks/{store} names a segment.",
    ),
    field("name", NULL, Kind::Text(&text::NAME), "Its name in metrics, headers and lists. Null: the path."),
    field(
        "namespace",
        NULL,
        Kind::Text(&text::NAMESPACE),
        "Put before the group's key as a part of its own: gh~77. Presets whose natural key is a bare number bring one, for that key only.",
    ),
    field("methods", is("[POST]"), Kind::List(&Kind::Text(&text::METHOD), 1), "Methods it takes."),
    field("verify", REQUIRED, Kind::Map(&VERIFY), "Who may send to it; a plain value is the provider."),
    field("key", NULL, Kind::Key, "Whose an event is. Null: the provider's natural key, else groups.key."),
    field("within", NULL, Kind::Key, "Splits a group's lane, e.g. headers.x-shopify-topic."),
    field(
        "order",
        NULL,
        Kind::Order,
        "Events of a lane with the same order key go one after another, e.g. body.id; group: all of a group, which takes no within.",
    ),
    field(
        "order_max_hold",
        is("1h"),
        time(1, 30 * DAY),
        "How long a failing event may hold its order key before it is dead-lettered; only time in which the upstream works counts.",
    ),
    field("dedupe", NULL, Kind::Map(&DEDUPE), "Keeps a sender's repeats from being delivered."),
    field(
        "forward_path",
        NULL,
        Kind::Text(&text::PATH),
        "Replaces the matched path towards the upstream. Null: the path is kept as it came.",
    ),
    field(
        "respond",
        is("accepted"),
        Kind::Choice(&["accepted", "upstream"]),
        "Answer at once, or hold the request and relay the upstream's answer.",
    ),
    field(
        "respond_timeout",
        NULL,
        time(1, HOUR),
        "For respond: upstream. Null: the provider's limit less half a second, else upstream.timeout.",
    ),
    field("ack", PARTS, Kind::Map(&ACK), "The answer to an accepted request."),
    field("answers", PARTS, Kind::Map(&ANSWERS), "Statuses of refusals."),
]);

static DEDUPE: Map = map(&[
    field("key", REQUIRED, Kind::Key, "What two repeats share, e.g. headers.x-shopify-webhook-id."),
    field("window", is("24h"), time(1, 30 * DAY), "How long a repeat counts as one."),
]);

static ACK: Map = map(&[
    field("status", is("200"), Kind::Int(200, 299), "Its status."),
    field("body", is("\"\""), Kind::Text(&text::ANY), "Its body."),
    field(
        "headers",
        is("{}"),
        Kind::Dict { name: &text::ANSWER_HEADER_NAME, value: &Kind::Text(&text::HEADER_VALUE) },
        "Its header lines.",
    ),
]);

const REFUSAL: Kind = Kind::Int(400, 599);

static ANSWERS: Map = map(&[
    field("bad_signature", is("401"), REFUSAL, "Bad, missing or stale signature."),
    field("shed", is("429"), REFUSAL, "The group is shed, or over its backlog."),
    field("unavailable", is("503"), REFUSAL, "The store is down, full or slow, or the process is ending."),
]);

/// The fields that say who one sender is, with others behind them.
macro_rules! sender_fields {
    ($($further:expr),* $(,)?) => {
        &[
            field(
                "provider",
                NULL,
                Kind::Provider,
                "A provider by name (`fairlane providers` lists them), or none: anybody may send. One of provider, hmac, token, bearer, basic and none says how requests are verified.",
            ),
            field("secret", NULL, Kind::Map(&SECRET), "The one secret."),
            field(
                "secrets",
                is("[]"),
                Kind::List(&Kind::Map(&SECRET), 0),
                "Several, tried in order, in place of secret: the new one and the one it replaces.",
            ),
            field(
                "webhook_id",
                NULL,
                Kind::Text(&text::SHORT),
                "PayPal's id of the webhook, which is what a secret is elsewhere.",
            ),
            field(
                "tolerance",
                NULL,
                time(1, 30 * DAY),
                "How far a signed time may be from ours. Null: the provider's own, 300 s both ways where it names none.",
            ),
            field(
                "public_url",
                NULL,
                Kind::Text(&text::PUBLIC_URL),
                "Scheme, host, port and prefix as configured at the provider, for those that sign the URL.",
            ),
            field(
                "verify_token",
                NULL,
                Kind::Secret(None),
                "The word agreed on for handshakes alone: Meta's verify token, eBay's verification token.",
            ),
            field(
                "topics",
                is("[]"),
                Kind::List(&Kind::Text(&text::SHORT), 0),
                "The topics that may send: ARNs of SNS, which needs them, addresses of WebSub.",
            ),
            field(
                "handshake",
                is("answer"),
                Kind::Choice(&["answer", "open", "off"]),
                "Handshakes that give nothing away are answered; open: those too in which a provider hands its secret over or has a subscription confirmed; off: none.",
            ),
            field(
                "resign",
                is("false"),
                Kind::Bool,
                "True: each attempt carries a fresh signature of the same scheme, made with the first secret, in place of the one that came.",
            ),
            field("hmac", NULL, Kind::Map(&HMAC), "A keyed hash over a text made of the request."),
            field("token", NULL, Kind::Map(&TOKEN), "A header that equals the secret."),
            field("bearer", NULL, Kind::Map(&BEARER), "Authorization: Bearer and the secret. Written bearer: {}."),
            field("basic", NULL, Kind::Map(&BASIC), "HTTP Basic."),
            field("none", is("false"), Kind::Bool, "True: anybody may send."),
            $($further),*
        ]
    };
}

/// One who may send.
pub(super) static SENDER: Map = Map { fields: sender_fields!(), short: Some("provider"), secret: false };

static VERIFY: Map = Map {
    fields: sender_fields!(
        field(
            "any_of",
            is("[]"),
            Kind::List(&Kind::Map(&SENDER), 0),
            "Several who may send to one path, in place of all the fields above; the first for whom a request is genuine has it, and its key.",
        ),
        field(
            "allow_ips",
            is("[]"),
            Kind::List(&Kind::Text(&text::NETWORK), 0),
            "Networks that requests may come from; others are refused before the signature. Empty: any."
        ),
        field("enforce", is("true"), Kind::Bool, "False: what fails is let through, marked, in the lane ~unverified."),
        field(
            "forward_handshake",
            is("false"),
            Kind::Bool,
            "Handshakes, which are answered here, are delivered to the upstream as well.",
        ),
    ),
    short: Some("provider"),
    secret: false,
};

static HMAC: Map = map(&[
    field("header", REQUIRED, Kind::Text(&text::HEADER), "The header that holds the signature."),
    field(
        "algorithm",
        is("sha256"),
        Kind::Choice(&[
            "sha256",
            "sha1",
            "sha384",
            "sha512",
            "plain-sha256",
            "plain-sha1",
            "plain-sha384",
            "plain-sha512",
        ]),
        "The hash; plain-…: no HMAC, the template holds {secret}.",
    ),
    field("encoding", is("hex"), Kind::Choice(&["hex", "base64", "base64url"]), "How the signature is written."),
    field("prefix", NULL, Kind::Text(&text::SHORT), "What stands before each signature, e.g. \"sha256=\"."),
    field(
        "template",
        is("\"{body}\""),
        Kind::Text(&text::SHORT),
        "What is signed: {body} {ts} {id} {url} {method} {secret} {hdr:Name}; {{ and }} are braces.",
    ),
    field("key", is("text"), Kind::Choice(&["text", "hex", "base64", "whsec"]), "What the secret's text stands for."),
    field("separator", NULL, Kind::Text(&text::SHORT), "Any of its characters cuts the header into items."),
    field("pair", NULL, Kind::Text(&text::SHORT), "What stands between an item's name and its value."),
    field("take", is("[]"), Kind::List(&Kind::Text(&text::SHORT), 0), "The names of the items that are signatures."),
    field(
        "timestamp",
        NULL,
        Kind::Map(&TIMESTAMP),
        "The signed time: one of header, item and body says where it stands.",
    ),
    field("id", NULL, Kind::Map(&SIGNED_ID), "The signed id, {id} in the template."),
]);

static TIMESTAMP: Map = map(&[
    field("header", NULL, Kind::Text(&text::HEADER), "In this header."),
    field("item", NULL, Kind::Text(&text::SHORT), "In the item of this name; first: the first of a list without pair."),
    field("body", NULL, Kind::Text(&text::SHORT), "In this member of the body, e.g. event.sent_at."),
    field("unit", is("s"), Kind::Choice(&["s", "ms", "rfc3339", "http-date"]), "How it is written."),
    field("tolerance", is("300s"), time(1, 30 * DAY), "How old it may be."),
    field("future", NULL, Kind::Text(&text::FUTURE), "How far ahead it may be, or any. Null: as tolerance."),
]);

static SIGNED_ID: Map = map(&[field("header", REQUIRED, Kind::Text(&text::HEADER), "The header that holds it.")]);

static TOKEN: Map = map(&[
    field("header", REQUIRED, Kind::Text(&text::HEADER), "The header."),
    field("prefix", is("\"\""), Kind::Text(&text::SHORT), "What stands before the secret in it."),
]);

static BEARER: Map = map(&[]);

static BASIC: Map = map(&[field(
    "user",
    NULL,
    Kind::Text(&text::SHORT),
    "The user, whose passwords the secrets are. Null: each secret is user:password.",
)]);

static SECRET: Map = Map {
    fields: &[
        field("value", REQUIRED, Kind::Secret(Some(&text::KEY)), "The secret."),
        field("until", NULL, Kind::Text(&text::MOMENT), "When it ends: RFC 3339, or a date (its first moment, UTC)."),
    ],
    short: Some("value"),
    secret: true,
};

static STORE: Map = map(&[
    field("embedded", PARTS, Kind::Map(&EMBEDDED), "A log and an index in a directory of this machine."),
    field("redis", NULL, Kind::Map(&REDIS), "Redis, shared by many nodes, in place of embedded."),
    field("retention", PARTS, Kind::Map(&RETENTION), "How long ended events stay readable."),
]);

static EMBEDDED: Map = map(&[
    field("path", is("./fairlane-data"), Kind::Text(&text::FILE), "The data directory; made when it does not exist."),
    field(
        "durability",
        is("fsync"),
        Kind::Choice(&["fsync", "os"]),
        "Acknowledge after fdatasync, or from the page cache (os: a power cut loses events).",
    ),
    field(
        "max_bytes",
        NULL,
        Kind::Size(MIB, 1024 * TIB),
        "Bytes that the store may take, 256 MiB and the margin of min_free (at most an eighth of it) or more. Null: what the disk has.",
    ),
    field(
        "min_free",
        is("2GiB"),
        Kind::Size(0, 1024 * TIB),
        "Free bytes below which new events get 503; history is given up at twice of it.",
    ),
]);

static REDIS: Map = Map {
    fields: &[
        field(
            "url",
            is("redis://127.0.0.1:6379"),
            Kind::Secret(Some(&text::REDIS_URL)),
            "Where it is, with user and password: redis://, rediss:// (TLS) or unix://. The server itself, a node of the cluster, or a Sentinel.",
        ),
        field("cluster", is("false"), Kind::Bool, "Whether it is a cluster."),
        field(
            "sentinel",
            NULL,
            Kind::Map(&SENTINEL),
            "What the Sentinels at url and others call the master. Null: there are none. User and password of url are the servers'.",
        ),
        field(
            "others",
            is("[]"),
            Kind::List(&Kind::Text(&text::HOST_PORT), 0),
            "Further nodes of the cluster, or Sentinels, for when the one of url does not answer.",
        ),
        field(
            "tls",
            NULL,
            Kind::Map(&REDIS_TLS),
            "Certificates for rediss://; read anew at every connection. Null: the system's authorities, and none of our own.",
        ),
        field(
            "namespace",
            is("fairlane"),
            Kind::Text(&text::REDIS_NAMESPACE),
            "What all keys begin with: nodes of one namespace share their work.",
        ),
        field(
            "shards",
            is("64"),
            Kind::Int(1, 1_023),
            "Slices of the groups that move between nodes: more than there will ever be nodes. Fixed once there are events.",
        ),
        field(
            "ack",
            is("aof"),
            Kind::Text(&text::REDIS_ACK),
            "Acknowledge from the disk (aof: Redis 7.2 or later, or one with appendfsync always), from replicas(n), or from memory.",
        ),
        field("lease", is("10s"), time(SECOND, HOUR), "How long a node that is silent keeps its shards."),
        field(
            "max_bytes",
            NULL,
            Kind::Size(MIB, 1024 * TIB),
            "Bytes of Redis's memory that the store may take. Null: what its maxmemory allows.",
        ),
        field(
            "spool",
            Default::OrNull("./fairlane-spool"),
            Kind::Text(&text::FILE),
            "Where events go while Redis is away, and where the node keeps its name and token. Null: no event, they get 503 then.",
        ),
        field(
            "spool_max_bytes",
            NULL,
            Kind::Size(256 * MIB, 1024 * TIB),
            "Bytes that the spool may take, 96 MiB of them before the first event; beyond it events get 503 while Redis is away. Null: all of its disk but 1 GiB.",
        ),
        field(
            "advertise",
            NULL,
            Kind::Text(&text::URL),
            "Where the other nodes reach this one's admin side, e.g. http://10.0.0.5:8081. Null: at admin.address.",
        ),
    ],
    short: Some("url"),
    secret: false,
};

static SENTINEL: Map = Map {
    fields: &[
        field("master", REQUIRED, Kind::Text(&text::NAME), "What the Sentinels call the master, e.g. mymaster."),
        field("user", NULL, Kind::Text(&text::SHORT), "Who we are to the Sentinels. Null: whoever needs no name."),
        field("password", NULL, Kind::Secret(None), "The password that goes with it. Null: none."),
    ],
    short: Some("master"),
    secret: true,
};

static REDIS_TLS: Map = map(&[
    field(
        "ca",
        NULL,
        Kind::Text(&text::FILE),
        "The authorities that sign the servers' certificates, PEM. Null: the system's.",
    ),
    field("cert", NULL, Kind::Text(&text::FILE), "Our own certificate, PEM, where the servers ask for one."),
    field("key", NULL, Kind::Text(&text::FILE), "Its key, PEM."),
]);

static RETENTION: Map = map(&[
    field("delivered", is("7d"), time(0, 3_650 * DAY), "Delivered and discarded ones."),
    field("dead", is("30d"), time(0, 3_650 * DAY), "Dead ones."),
    field("suppressed", is("24h"), time(0, 3_650 * DAY), "Duplicates that were kept from delivery."),
]);

static SHUTDOWN: Map =
    map(&[field("drain", is("10s"), time(0, HOUR), "How long requests and attempts in flight may take to finish.")]);

static REPLAY: Map = map(&[field(
    "share",
    is("0.1"),
    SHARE,
    "The part of the slots that replays may hold together, at least one. In a lane with other events at least every 10th attempt is a replay.",
)]);

static LOG: Map = map(&[
    field("format", is("auto"), Kind::Choice(&["auto", "text", "json"]), "auto: text on a terminal, json elsewhere."),
    field("level", is("info"), Kind::Choice(&["error", "warn", "info", "debug", "trace"]), "What is worth a line."),
]);

static TENANT_PAGES: Map = map(&[
    field("address", NULL, Kind::Text(&text::ADDRESS), "Where to listen; null: tenants have no pages."),
    field(
        "secret",
        NULL,
        Kind::Secret(None),
        "Signs the links. With another one, links that were given out before are dead.",
    ),
    field(
        "previous_secret",
        NULL,
        Kind::Secret(None),
        "Signs nothing, but its links still open: the secret of before, while links are exchanged.",
    ),
    field("base_url", NULL, Kind::Text(&text::PUBLIC_URL), "What the links begin with; null: http and the address."),
]);

static ALERTS: Map = map(&[
    field(
        "webhook",
        NULL,
        Kind::Secret(Some(&text::URL)),
        "Where alerts are posted to as JSON, in a form that Slack takes too; each is also a metric.",
    ),
    field(
        "backlog_age",
        PARTS,
        Kind::Map(&BACKLOG_AGE),
        "Pages only on many groups; one old group is a ticket, named.",
    ),
    field(
        "fallback_share",
        is("0.05"),
        SHARE,
        "Of the events of sources that have a key rule, over at least 100 events.",
    ),
    field(
        "skew",
        PARTS,
        Kind::Map(&SKEW),
        "Between shards; one group with over half of the backlog is a ticket, named.",
    ),
]);

static BACKLOG_AGE: Map = map(&[
    field("group", is("5m"), time(1, 30 * DAY), "A group is late when its oldest event is older."),
    field("groups_over", is("10"), COUNT, "More late groups than this page."),
]);

static SKEW: Map = map(&[
    field("max_lag", is("5000"), COUNT, "Events that the largest shard is ahead."),
    field("max_age", is("5m"), time(1, 30 * DAY), "Age of its oldest event."),
    field("ratio", is("5"), Kind::Number(1.0, 1_000_000.0), "Largest to median."),
    field("window", is("2m"), time(1, DAY), "For how long."),
]);
