//! Hookdeck's projects: sources, destinations, and connections between them with rules. What is written down here follows the
//! OpenAPI description of its API of 2025-07-01 (<https://hookdeck.com/docs/api>), and of 2024-09-01, which older exports have.
//!
//! A source there becomes a source here, the address of its destination the upstream. There is one upstream: connections that go
//! elsewhere are told, with the command that makes a gateway for those.

mod export;
mod fields;
mod proof;
mod rules;
mod target;

use std::collections::BTreeSet;

use export::{Connection, Export};
use fields::{Fields, shown};
use proof::Proof;
use rules::Retry;
use target::Target;

use super::page::{Page, plain, quoted};
use crate::verify::preset;

/// The `gateway.yaml` of an export, for the address of that destination, or for the one that most connections go to.
///
/// # Errors
/// It is no export; it has no destination of that name; none of its destinations has an address.
pub(super) fn page(text: &str, destination: Option<&str>) -> Result<Page, String> {
    let Export { sources, destinations, connections, beside } = Export::read(text)?;
    let targets: Vec<Target> = destinations.into_iter().map(Target::of).collect();
    let origin = chosen(&targets, &connections, destination)?;
    let mut import = Import { page: Page::default(), targets, connections, origin, paths: BTreeSet::new() };
    import.head(&beside);
    import.page.line(0, "");
    import.page.line(0, "sources:");
    let served: Vec<Served> =
        sources.into_iter().enumerate().filter_map(|(at, source)| import.source(at, source)).collect();
    if served.is_empty() {
        return Err(format!("no source delivers to {}", import.origin));
    }
    import.rest(&served);
    Ok(import.page)
}

/// Where to deliver to.
fn chosen(targets: &[Target], connections: &[Connection], destination: Option<&str>) -> Result<String, String> {
    if let Some(name) = destination {
        let names = || targets.iter().map(|target| format!("{:?}", target.name)).collect::<Vec<_>>().join(", ");
        let target = targets.iter().find(|target| target.name == name);
        let target = target.ok_or_else(|| format!("there is no destination {name:?}; there are {}", names()))?;
        return target.origin.clone().ok_or_else(|| {
            format!("destination {name:?} is of type {}, which has no address to deliver to", target.kind)
        });
    }
    let origins =
        || connections.iter().filter(|c| !c.disabled).filter_map(|c| targets.get(c.destination)?.origin.as_ref());
    let most = origins().rev().max_by_key(|origin| origins().filter(|other| other == origin).count());
    most.cloned().ok_or_else(|| "no connection in it delivers to an HTTP address".to_owned())
}

struct Import {
    page: Page,
    targets: Vec<Target>,
    connections: Vec<Connection>,
    /// Scheme and host of the upstream.
    origin: String,
    /// The paths that are taken.
    paths: BTreeSet<String>,
}

/// A source that was written.
struct Served {
    name: String,
    /// Index of the destination.
    destination: usize,
    retry: Option<Retry>,
}

impl Import {
    fn head(&mut self, beside: &[String]) {
        let page = &mut self.page;
        page.head("Made by fairlane import hookdeck. Read what begins with NOT CARRIED OVER and with DIFFERS, say whose an event is");
        page.head("(key), then: fairlane check. What each field became: docs/hookdeck.md.");
        for what in beside {
            page.missing(0, what);
        }
    }

    /// Writes a source that delivers to the upstream; tells why of any other.
    fn source(&mut self, at: usize, mut fields: Fields) -> Option<Served> {
        let mut config = fields.object("config").unwrap_or_default();
        let id = fields.text("id");
        let name = fields.text("name").or(id).unwrap_or_else(|| format!("source-{}", at + 1));
        let its_name = quoted(&name);
        let mine: Vec<usize> =
            (0..self.connections.len()).filter(|i| self.connections.get(*i).is_some_and(|c| c.source == at)).collect();
        if fields.text("disabled_at").is_some() | fields.text("archived_at").is_some() {
            self.page.missing(1, &format!("source {its_name}: it is disabled there"));
            return None;
        }
        let (goes, elsewhere): (Vec<usize>, Vec<usize>) = mine.iter().copied().partition(|i| self.goes_here(*i));
        let Some((first, others)) = goes.split_first() else {
            let why = if mine.is_empty() { "no connection has it".to_owned() } else { self.elsewhere(&elsewhere) };
            self.page.missing(1, &format!("source {its_name}: {why}"));
            return None;
        };
        let served = self.served(&name, *first, fields, &mut config);
        for i in others.iter().chain(&elsewhere) {
            let what = self.connections.get(*i).map(|c| quoted(&c.name)).unwrap_or_default();
            let why = if others.contains(i) {
                "a second delivery of the same events: a gateway has one upstream, which may pass them on".to_owned()
            } else {
                self.elsewhere(&[*i])
            };
            self.page.missing(2, &format!("connection {what}: {why}"));
            let rules = self.connections.get(*i).map(|c| c.rules.clone()).unwrap_or_default();
            if !rules.is_empty() {
                self.page.say(2, &format!("  its rules: {}", shown("rules", &rules.into())));
            }
        }
        Some(served)
    }

    /// Whether the connection delivers to the upstream.
    fn goes_here(&self, connection: usize) -> bool {
        let Some(connection) = self.connections.get(connection) else { return false };
        let target = self.targets.get(connection.destination);
        !connection.disabled
            && target.is_some_and(|target| !target.disabled && target.origin.as_ref() == Some(&self.origin))
    }

    /// Why these connections do not deliver to the upstream.
    fn elsewhere(&self, connections: &[usize]) -> String {
        let why = |i: &usize| {
            let connection = self.connections.get(*i)?;
            let target = self.targets.get(connection.destination)?;
            let name = quoted(&target.name);
            Some(match &target.origin {
                _ if connection.disabled => format!("connection {} is disabled there", quoted(&connection.name)),
                _ if target.disabled => format!("destination {name} is disabled there"),
                None => {
                    format!("destination {name} is of type {}, which has no address to deliver to", plain(&target.kind))
                }
                Some(origin) => format!(
                    "destination {name} is at {}, and a gateway has one upstream; make another one with --destination {name}",
                    plain(origin)
                ),
            })
        };
        connections.iter().filter_map(why).collect::<Vec<_>>().join("; ")
    }

    fn served(&mut self, name: &str, connection: usize, mut fields: Fields, config: &mut Fields) -> Served {
        let path = self.path(name);
        let (page, connections) = (&mut self.page, &self.connections);
        let connection = connections.get(connection).expect("the caller counts within the connections");
        let target =
            self.targets.get(connection.destination).expect("the export is read with its ends within the lists");
        page.line(0, "");
        let url = fields.text("url").map(|url| format!(", {}", plain(&url))).unwrap_or_default();
        page.say(
            1,
            &format!(
                "source {}{url}; connection {}, destination {}",
                quoted(name),
                quoted(&connection.name),
                quoted(&target.name)
            ),
        );
        for text in [fields.text("description"), connection.description.clone()].into_iter().flatten() {
            page.say(1, &plain(&text));
        }
        page.line(1, &format!("- path: {path}"));
        page.line(2, &format!("name: {}", path.trim_start_matches("/webhooks/")));
        let proof = Proof::take(&mut fields, config);
        let (provider, generic) = (proof.provider().and_then(preset), proof.is_generic());
        proof.write(name, 2, page);
        if provider.is_none_or(|preset| preset.natural_key.is_empty()) {
            page.say(2, "whose an event is, in place of the one lane for all that has no key (docs/keys.md):");
            page.say(2, "key: body.tenant");
        }
        page.line(2, &format!("forward_path: {}", quoted(&target.path)));
        answer(&mut fields, config, generic, page);
        let rules = rules::write(connection, provider.and_then(|preset| preset.event_id), 2, page);
        if connection.paused {
            page.differs(
                2,
                "the connection is paused there; here deliveries begin with the first event (fairlane upstream pause)",
            );
        }
        fields.drop(&["team_id", "project_id", "created_at", "updated_at"]);
        for left in [fields.left(), config.left(), connection.left.clone()].concat() {
            page.missing(2, &left);
        }
        Served { name: name.to_owned(), destination: connection.destination, retry: rules.retry }
    }

    /// A path of its own for a source's name.
    fn path(&mut self, name: &str) -> String {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let name: String = name.chars().map(|c| if fits(c) { c } else { '-' }).collect();
        let mut path = format!("/webhooks/{name}");
        while !self.paths.insert(path.clone()) {
            path.push_str("-2");
        }
        path
    }

    /// The upstream, and what of the sources' rules has to agree there.
    fn rest(&mut self, served: &[Served]) {
        let used: BTreeSet<usize> = served.iter().map(|source| source.destination).collect();
        let targets: Vec<&Target> = used.iter().filter_map(|at| self.targets.get(*at)).collect();
        let retry = served.iter().filter_map(|source| source.retry.as_ref()).max_by_key(|retry| retry.lasts_ms());
        let page = &mut self.page;
        target::write(&self.origin, &targets, retry, page);
        for source in served.iter().filter(|source| source.retry.as_ref() != retry) {
            let name = quoted(&source.name);
            match source.retry {
                Some(_) => page
                    .differs(1, &format!("the retry rule of {name} is another one there; the longest holds for all")),
                None => page.differs(1, &format!("{name} has no retry rule there; the longest holds for all")),
            }
        }
        if targets.iter().any(|target| target.forwards_paths) {
            page.differs(
                1,
                "paths below a source's address were put behind the destination's path there; here a source takes its path alone \
                 (a path of /x/* takes all below, and forward_path: null keeps it as it came)",
            );
        }
    }
}

/// Methods and the answer to an accepted request.
fn answer(fields: &mut Fields, config: &mut Fields, generic: bool, page: &mut Page) {
    let methods = config.list("allowed_http_methods").or_else(|| fields.list("allowed_http_methods"));
    let methods: Vec<String> =
        methods.unwrap_or_default().iter().filter_map(|method| method.as_str().map(quoted)).collect();
    if !methods.is_empty() {
        page.line(2, &format!("methods: [{}]", methods.join(", ")));
    } else if generic {
        page.say(2, "what it takes there unless told otherwise");
        page.line(2, "methods: [POST, PUT, PATCH, DELETE]");
    }
    let Some(mut custom) = config.object("custom_response").or_else(|| fields.object("custom_response")) else {
        return;
    };
    let kind = custom.text("content_type");
    let mime = match kind.as_deref() {
        Some("json") => "application/json",
        Some("xml") => "application/xml",
        _ => "text/plain",
    };
    let body = custom.text("body").unwrap_or_default();
    page.line(2, &format!("ack: {{ body: {}, headers: {{ content-type: {mime} }} }}", quoted(&body)));
    for left in custom.left() {
        page.missing(2, &format!("custom_response: {left}"));
    }
}
