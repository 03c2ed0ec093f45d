//! `make screenshots`: the main pages during a flood, as they are shown in README and docs.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::browser::{Browser, browse};
use crate::support::upstream::{Received, answer, upstream};
use crate::support::{self, Gateway, gateway, post};

/// A picture that a page of the documentation loads; larger ones make it slow.
const BYTES_MAX: usize = 150 << 10;

const NOISY: &str = "acme-outdoor.myshopify.com";
const QUIET: [&str; 6] = [
    "bergmann-tools.myshopify.com",
    "cafe-luna.myshopify.com",
    "green-thumb.myshopify.com",
    "hanami.myshopify.com",
    "north-shore.myshopify.com",
    "paperie.myshopify.com",
];
const HUNG: &str = "hung-imports.myshopify.com";
const FAILING: &str = "bad-mapping.myshopify.com";

/// Points that a chart has before it is drawn: a minute and a half.
const POINTS: usize = 18;

fn rule(request: &Received) -> support::upstream::Answer {
    match request.group() {
        HUNG => answer(200).after(Duration::from_secs(20)),
        FAILING => answer(422).body("{\"error\":\"no such order\"}").after(Duration::from_millis(30)),
        _ => answer(200).after(Duration::from_millis(40)),
    }
}

fn send(gateway: &Gateway, shop: &str, number: usize) {
    let body = json!({
        "id": 820_982_911_946_154_508_u64 + number as u64, "email": "jon@example.com", "total_price": "199.00", "currency": "EUR",
        "line_items": [{ "id": 466_157_049, "title": "Sneakers", "price": "199.00", "quantity": 1 }],
    });
    let sent = post("/webhooks/shopify", body.to_string().as_bytes()).shopify(shop);
    let sent = sent.without("X-Shopify-Webhook-Id").header("X-Shopify-Webhook-Id", format!("{}-{number}", &shop[..5]));
    assert_eq!(gateway.client().send(&sent).status, 200);
}

#[test]
#[ignore = "make screenshots: writes docs/images"]
fn screenshots() {
    let receiver = upstream(rule);
    let yaml = format!(
        "upstream: {{ url: \"{}\", concurrency: 32 }}\nsources:\n  - path: /webhooks/shopify\n    verify: {{ provider: shopify, secret: {} }}\n",
        receiver.url(),
        support::SHOPIFY_SECRET
    );
    let gateway = gateway(&yaml).start();
    (0..60).for_each(|number| send(&gateway, HUNG, number));
    (0..8).for_each(|number| send(&gateway, FAILING, number));
    (0..3_000).for_each(|number| send(&gateway, NOISY, number));
    browse(&gateway, async |browser| {
        browser.sign_in(&gateway, "/").await;
        let mut number = 3_000;
        while points(browser).await < POINTS {
            QUIET.iter().for_each(|shop| send(&gateway, shop, number));
            (0..40).for_each(|more| send(&gateway, NOISY, number + more));
            number += 40;
        }
        keep(browser, "overview", "/", 1_080).await;
        keep(browser, "groups", "/groups", 620).await;
        keep(browser, "group", &format!("/group?name={NOISY}"), 980).await;
        let failing = gateway.events(&format!("group={FAILING}"));
        keep(browser, "event", &format!("/events/{}", failing[0]["id"].as_str().unwrap()), 1_000).await;
    });
}

/// Points of the first chart.
async fn points(browser: &Browser) -> usize {
    let script = "const line = document.querySelector('.chart polyline[stroke=\"#010101\"]');\
                  return line ? line.getAttribute('points').trim().split(' ').length : 0";
    browser.client.execute(script, vec![]).await.unwrap().as_u64().unwrap() as usize
}

async fn keep(browser: &Browser, name: &str, path: &str, height: u32) {
    browser.client.set_window_size(1_280, height).await.unwrap();
    browser.open_page(path).await;
    browser.see("main h1").await;
    let picture = browser.picture().await;
    assert!(picture.len() <= BYTES_MAX, "{name} has {} bytes, and {BYTES_MAX} is the most", picture.len());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/images");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{name}.png")), picture).unwrap();
}
