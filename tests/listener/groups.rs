//! Real bodies find the lane of their tenant with no `key:` written.

use std::fs;
use std::path::Path;

use fairlane::event::KeySource;
use serde_json::{Value, json};

use super::bench::Bench;
use super::sent::{Sending, secrets_of};
use super::shared;

/// A folder of bodies, its preset, and where a person finds the tenant in them.
const PROVIDERS: &[(&str, &str, Tenant)] = &[
    ("shopify", "shopify", Tenant::Header("X-Shopify-Shop-Domain")),
    ("woocommerce", "woocommerce", Tenant::Header("X-WC-Webhook-Source")),
    ("stripe", "stripe", Tenant::Members(&["/account", "/context"])),
    ("github", "github", Tenant::Members(&["/installation/id", "/organization/id", "/repository/owner/id"])),
    ("gitlab", "gitlab-token", Tenant::Members(&["/project/id"])),
    ("bigcommerce", "bigcommerce", Tenant::Members(&["/producer"])),
    ("square", "square", Tenant::Members(&["/merchant_id"])),
    ("slack", "slack", Tenant::Members(&["/team_id", "/payload/team/id"])),
    ("twilio", "twilio", Tenant::Members(&["/AccountSid"])),
    ("adyen", "adyen-payload", Tenant::Members(&["/notificationItems/0/NotificationRequestItem/merchantAccountCode"])),
    // Its events name customers and subscriptions of one seller; there is no tenant in them.
    ("paddle", "paddle", Tenant::None),
];

enum Tenant {
    /// In this header, which the test sends.
    Header(&'static str),
    /// The first of these members that is there.
    Members(&'static [&'static str]),
    /// The provider's events name none.
    None,
}

#[test]
fn real_bodies_are_grouped_by_their_tenant_with_no_key_written() {
    let Some(folder) = shared("payloads") else { return };
    let bench = Bench::new();
    let mut grouped = Vec::new();
    for (name, preset, tenant) in PROVIDERS {
        let verify = json!({ "provider": preset, "secrets": secrets_of(preset) });
        bench.serve(&json!([{ "path": "/in", "verify": verify }])).unwrap();
        let mut files: Vec<_> = fs::read_dir(folder.join(name)).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        assert!(!files.is_empty(), "{name}");
        for file in files {
            let shown = format!("{name}/{}", file.file_name().unwrap().to_string_lossy());
            // A question that is answered, and no event.
            if shown == "slack/url_verification.json" {
                continue;
            }
            grouped.push((shown.clone(), one(&bench, preset, tenant, &file)));
        }
    }
    println!("{grouped:#?}");
    let providers = fs::read_dir(&folder).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count();
    assert_eq!(providers, PROVIDERS.len(), "every folder of bodies is tried");
}

/// Sends one body; gives the group that it found, which must be the tenant's.
fn one(bench: &Bench, preset: &str, tenant: &Tenant, file: &Path) -> String {
    let body = fs::read(file).unwrap();
    let is_form = file.extension().is_some_and(|ending| ending == "form");
    let mut sending = Sending::new(preset, &body, is_form);
    if let Tenant::Header(name) = tenant {
        sending.header(name, "Quiet-Store.example");
    }
    let answer = sending.post(bench).unwrap();
    assert_eq!(answer.status, 200, "{}: {}", file.display(), answer.text);
    let record = bench.newest();
    let read: Value = if is_form { form(&body) } else { serde_json::from_slice(&body).unwrap() };
    let wanted = match tenant {
        Tenant::Header(_) if preset == "shopify" => Some("quiet-store.example".to_owned()),
        Tenant::Header(_) => Some("Quiet-Store.example".to_owned()),
        Tenant::Members(places) => places.iter().find_map(|place| text(read.pointer(place)?)),
        Tenant::None => None,
    };
    let group = record.lane.group.to_string();
    match wanted {
        // A namespace stands before bare numbers.
        Some(wanted) => {
            assert!(matches!(record.key_source, KeySource::Rule { .. }), "{}: {:?}", file.display(), record.key_source);
            assert_eq!(group.rsplit('~').next(), Some(&*wanted.replace('/', "%2F")), "{}", file.display());
        }
        None => assert!(group.starts_with('~'), "{}: {group}", file.display()),
    }
    group
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A form as an object; a field that holds JSON as what it holds.
fn form(body: &[u8]) -> Value {
    form_urlencoded::parse(body)
        .map(|(name, value)| {
            let inside = serde_json::from_str(&value).ok().filter(Value::is_object);
            (name.into_owned(), inside.unwrap_or_else(|| Value::String(value.into_owned())))
        })
        .collect::<serde_json::Map<_, _>>()
        .into()
}
