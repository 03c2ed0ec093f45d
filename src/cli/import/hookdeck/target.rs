//! Destinations: the one address that the gateway delivers to, and what else is said of it there.

use http::Uri;

use super::super::page::{Page, plain, quoted};
use super::fields::Fields;
use super::rules::Retry;

/// A destination, taken apart.
#[derive(Debug)]
pub(super) struct Target {
    /// Its name.
    pub(super) name: String,
    /// `HTTP`, `CLI`, `MOCK_API`.
    pub(super) kind: String,
    /// Scheme, host and port; none where it has no address to deliver to.
    pub(super) origin: Option<String>,
    /// The path of its address.
    pub(super) path: String,
    query: Option<String>,
    user: bool,
    /// Paths below the source's address go below this one.
    pub(super) forwards_paths: bool,
    method: Option<String>,
    limit: Option<(u64, String)>,
    auth_type: String,
    auth: Fields,
    description: Option<String>,
    /// It takes no events.
    pub(super) disabled: bool,
    left: Vec<String>,
}

impl Target {
    /// Takes a destination apart: `config` and `auth` since 2025, all of it beside the name before.
    pub(super) fn of(mut fields: Fields) -> Self {
        let mut config = fields.object("config").unwrap_or_default();
        let kind = fields.text("type");
        let mut either = |name: &str| config.text(name).or_else(|| fields.text(name));
        let url = either("url");
        let method = either("http_method");
        let period = either("rate_limit_period");
        let cli = either("cli_path").or_else(|| either("path"));
        let auth_type = either("auth_type");
        let limit = config.whole("rate_limit").or_else(|| fields.whole("rate_limit"));
        let disabled_paths =
            config.truth("path_forwarding_disabled").or_else(|| fields.truth("path_forwarding_disabled"));
        let mut old = fields.object("auth_method").unwrap_or_default();
        let auth = config.object("auth").or_else(|| old.object("config")).unwrap_or_default();
        let address = url.as_deref().and_then(|url| url.parse::<Uri>().ok());
        let authority = address.as_ref().and_then(Uri::authority).map(|authority| authority.as_str().to_owned());
        let bare = authority.as_deref().map(|authority| authority.rsplit('@').next().unwrap_or_default());
        let origin = address.as_ref().and_then(Uri::scheme_str).filter(|scheme| ["http", "https"].contains(scheme));
        let id = fields.text("id");
        fields.drop(&["team_id", "project_id", "created_at", "updated_at"]);
        let kind = kind.unwrap_or_else(|| if url.is_none() && cli.is_some() { "CLI" } else { "HTTP" }.to_owned());
        Self {
            origin: origin.zip(bare).map(|(scheme, host)| format!("{scheme}://{host}")).filter(|_| kind == "HTTP"),
            path: address.as_ref().map_or("/", Uri::path).to_owned(),
            query: address.as_ref().and_then(Uri::query).map(str::to_owned),
            user: authority.is_some_and(|authority| authority.contains('@')),
            kind,
            forwards_paths: disabled_paths != Some(true),
            method,
            limit: limit.zip(Some(period.unwrap_or_else(|| "second".to_owned()))),
            auth_type: auth_type.or_else(|| old.text("type")).unwrap_or_default(),
            auth,
            description: fields.text("description"),
            disabled: fields.text("disabled_at").is_some() | fields.text("archived_at").is_some(),
            name: fields.text("name").or(id).unwrap_or_else(|| "without a name".to_owned()),
            left: [fields.left(), config.left(), old.left()].concat(),
        }
    }
}

/// Writes `upstream`: the address, and of the destinations there what a gateway can say once.
pub(super) fn write(origin: &str, targets: &[&Target], retry: Option<&Retry>, page: &mut Page) {
    page.line(0, "");
    page.line(0, "upstream:");
    page.line(1, &format!("url: {}", quoted(origin)));
    for target in targets {
        let description = target.description.as_deref().map(|text| format!(": {}", plain(text))).unwrap_or_default();
        page.say(
            1,
            &format!("destination {}, {}{}{description}", quoted(&target.name), plain(origin), plain(&target.path)),
        );
        about(target, page);
    }
    limits(targets, page);
    sign(targets, page);
    if let Some(retry) = retry {
        retry.write(1, page);
    } else {
        page.differs(1, "no connection has a retry rule; here failed events are tried again (upstream.retry)");
    }
}

/// What an address cannot say here.
fn about(target: &Target, page: &mut Page) {
    if target.query.is_some() {
        page.missing(1, "the query of its address (not shown, it may be a secret): the query comes from the request");
    }
    if target.user {
        page.missing(1, "the user and password in its address: send them as a header line (upstream.headers)");
    }
    if let Some(method) = &target.method {
        page.missing(1, &format!("the method {}: events are delivered with the method they came with", quoted(method)));
    }
    for left in &target.left {
        page.missing(1, left);
    }
}

/// The lowest limit holds for all: there is one upstream.
fn limits(targets: &[&Target], page: &mut Page) {
    let limits =
        || targets.iter().filter_map(|target| target.limit.as_ref().map(|(n, period)| (*n, period.as_str(), target)));
    let several = targets.len() > 1;
    let say = |what: &str, page: &mut Page| {
        if several {
            page.differs(
                1,
                &format!("each destination has a limit of its own there; the lowest holds for all of them ({what})"),
            );
        }
    };
    let at_once = limits().filter(|(.., period, _)| *period == "concurrent").map(|(n, ..)| n).min();
    if let Some(slots) = at_once {
        say("concurrency", page);
        page.line(1, &format!("concurrency: {}", slots.clamp(1, 100_000)));
    }
    let seconds = |period: &str| match period {
        "second" => Some((1, 's')),
        "minute" => Some((60, 'm')),
        "hour" => Some((3_600, 'h')),
        _ => None,
    };
    let rates = limits().filter_map(|(n, period, _)| seconds(period).map(|(seconds, unit)| (n, seconds, unit)));
    // A lower rate has the smaller quotient; compared without dividing.
    let lowest = rates.min_by(|(a, per_a, _), (b, per_b, _)| (a * per_b).cmp(&(b * per_a)));
    if let Some((events, _, unit)) = lowest.filter(|(n, ..)| *n > 0) {
        say("rate", page);
        page.line(1, &format!("rate: {events}/{unit}"));
    }
    for (n, period, target) in
        limits().filter(|(n, period, _)| *n == 0 || (seconds(period).is_none() && *period != "concurrent"))
    {
        page.missing(1, &format!("the limit {n} per {} of {}", quoted(period), quoted(&target.name)));
    }
}

/// How the receiver tells that a request is the gateway's.
fn sign(targets: &[&Target], page: &mut Page) {
    let Some((first, rest)) = targets.split_first() else { return };
    for target in
        rest.iter().filter(|target| target.auth_type != first.auth_type || target.auth.left() != first.auth.left())
    {
        let kind = if target.auth_type.is_empty() { "HOOKDECK_SIGNATURE" } else { &target.auth_type };
        page.missing(1, &format!("the authentication {} of {}: a gateway has one", quoted(kind), quoted(&target.name)));
    }
    let mut auth = first.auth.clone();
    match first.auth_type.to_ascii_uppercase().as_str() {
        "" | "HOOKDECK_SIGNATURE" => {
            page.differs(
                1,
                "x-hookdeck-signature becomes Fairlane-Signature, which the libraries of Standard Webhooks verify \
                 (docs/delivery.md); its secret is a new one, which --env makes and your receiver needs, too",
            );
            let secret = page.own_secret(&["fairlane_signing_secret"]);
            page.line(1, &format!("signing_secret: {secret}"));
        }
        "BEARER_TOKEN" => header("Authorization", auth.text("token").map(|token| format!("Bearer {token}")), page),
        "BASIC_AUTH" => {
            use base64::Engine as _;
            let pair = auth.text("username").zip(auth.text("password"));
            let pair = pair.map(|(user, password)| base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}")));
            header("Authorization", pair.map(|pair| format!("Basic {pair}")), page);
        }
        "API_KEY" if auth.text("to").as_deref() != Some("query") => {
            let name = auth.text("key").unwrap_or_else(|| "x-api-key".to_owned());
            header(&name, auth.text("api_key"), page);
        }
        other => page.missing(
            1,
            &format!("the authentication {}: nothing is added to requests until upstream.signing_secret or upstream.headers says what", quoted(other)),
        ),
    }
    for left in auth.left() {
        page.missing(1, &format!("authentication: {left}"));
    }
}

fn header(name: &str, value: Option<String>, page: &mut Page) {
    let value = page.secret(&["upstream", name], value);
    page.line(1, &format!("headers: {{ {}: {value} }}", quoted(name)));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn target(value: serde_json::Value) -> Target {
        Target::of(Fields::of(value).unwrap())
    }

    fn written(targets: &[serde_json::Value]) -> String {
        let targets: Vec<Target> = targets.iter().cloned().map(target).collect();
        let mut page = Page::default();
        write("https://api.example.com", &targets.iter().collect::<Vec<_>>(), None, &mut page);
        page.whole() + &page.secrets("")
    }

    #[test]
    fn both_versions_of_the_api_say_the_same() {
        let new = target(
            json!({ "name": "d", "type": "HTTP", "config": { "url": "https://u:p@api.example.com:444/in?x=1",
            "rate_limit": 5, "rate_limit_period": "minute", "path_forwarding_disabled": true, "auth_type": "BEARER_TOKEN", "auth": { "token": "t" } } }),
        );
        let old = target(json!({ "name": "d", "url": "https://u:p@api.example.com:444/in?x=1", "cli_path": null,
            "rate_limit": 5, "rate_limit_period": "minute", "path_forwarding_disabled": true,
            "auth_method": { "type": "BEARER_TOKEN", "config": { "token": "t" } } }));
        for target in [new, old] {
            assert_eq!((target.origin.as_deref(), target.path.as_str()), (Some("https://api.example.com:444"), "/in"));
            assert_eq!(target.limit, Some((5, "minute".to_owned())));
            assert!(
                target.user && target.query.is_some() && !target.forwards_paths && target.left.is_empty(),
                "{target:?}"
            );
            assert_eq!(target.auth_type, "BEARER_TOKEN");
        }
        assert_eq!(target(json!({ "name": "d", "type": "CLI", "config": { "path": "/x" } })).origin, None);
    }

    #[test]
    fn the_lowest_limit_holds_for_all() {
        let limited = |n: u64, period: &str| json!({ "name": period, "config": { "rate_limit": n, "rate_limit_period": period } });
        let text = written(&[
            limited(10, "second"),
            limited(90, "minute"),
            limited(8, "concurrent"),
            limited(4, "concurrent"),
        ]);
        assert!(
            text.contains("rate: 90/m\n") && text.contains("concurrency: 4\n") && text.contains("lowest holds for all"),
            "{text}"
        );
        assert!(written(&[limited(5, "fortnight")]).contains("NOT CARRIED OVER: the limit 5 per \"fortnight\""));
    }

    #[test]
    fn what_the_receiver_is_told_by() {
        let by = |kind: &str, auth: serde_json::Value| {
            written(&[json!({ "name": "d", "config": { "auth_type": kind, "auth": auth } })])
        };
        assert!(by("HOOKDECK_SIGNATURE", json!({})).contains("signing_secret: \"${FAIRLANE_SIGNING_SECRET}\""));
        assert!(
            by("BASIC_AUTH", json!({ "username": "u", "password": "p" }))
                .contains("UPSTREAM_AUTHORIZATION='Basic dTpw'")
        );
        assert!(
            by("API_KEY", json!({ "key": "x-key", "api_key": "k" }))
                .contains("headers: { \"x-key\": \"${UPSTREAM_X_KEY}\" }")
        );
        for (kind, auth) in [
            ("API_KEY", json!({ "key": "k", "api_key": "hush", "to": "query" })),
            ("AWS_SIGNATURE", json!({ "secret_access_key": "hush" })),
        ] {
            let text = by(kind, auth);
            assert!(
                text.contains(&format!("NOT CARRIED OVER: the authentication \"{kind}\"")) && !text.contains("hush"),
                "{text}"
            );
        }
    }
}
