//! Shops and what belongs to them.

use super::Preset;
use super::row::{hmac, row, s};
use crate::verify::encoding::{Enc, KeyForm};
use crate::verify::public::PublicAlg;
use crate::verify::scheme::Signed;

pub(super) fn rows() -> Vec<Preset> {
    vec![
        // shopify.dev, "Deliver webhooks through HTTPS"; Shopify/shopify-api-ruby webhooks/request.rb
        Preset {
            natural_key: &["headers.x-shopify-shop-domain | lower"],
            event_id: Some("headers.x-shopify-webhook-id"),
            event_type: Some("headers.x-shopify-topic"),
            answer_limit: s(5),
            repeats: Some(true),
            ..row(
                "shopify",
                "Shopify",
                hmac("x-shopify-hmac-sha256").or_header("shopify-hmac-sha256").base64(),
                "the shop domain and the topic are headers, which the signature does not cover; after a \
                 secret rotation the old one may sign for another hour: keep both",
            )
            .secret("the app's client secret")
            .failures(
                "repeats 8 times within 4 hours; a subscription made through the Admin API is deleted after 8 \
                 failures in a row",
            )
        },
        // WC_Webhook::generate_signature and ::failed_delivery
        Preset {
            natural_key: &["headers.x-wc-webhook-source"],
            event_id: Some("headers.x-wc-webhook-delivery-id"),
            event_type: Some("headers.x-wc-webhook-topic"),
            answer_limit: s(5),
            ..row(
                "woocommerce",
                "WooCommerce",
                hmac("x-wc-webhook-signature").base64(),
                "the shop is a header, which the signature does not cover",
            )
            .failures("more than 5 failures in a row disable the webhook silently")
            .ack("2xx, 301 or 302")
        },
        // developer.squareup.com/docs/webhooks/step3validate
        Preset {
            natural_key: &["body.merchant_id"],
            key_signed: true,
            event_id: Some("body.event_id"),
            event_type: Some("body.type"),
            answer_limit: s(10),
            repeats: Some(true),
            ..row(
                "square",
                "Square",
                hmac("x-square-hmacsha256-signature").base64().over("{url}{body}"),
                "signs the notification URL: set public_url",
            )
            .secret("the subscription's signature key, used as text")
            .failures("repeats for 72 hours; no 2xx for three weeks disables the subscription")
            .ack("2xx; redirects are failures")
        },
        // developers.squarespace.com, webhook subscriptions
        Preset {
            natural_key: &["body.websiteId"],
            key_signed: true,
            event_id: Some("body.id"),
            event_type: Some("body.topic"),
            ..row(
                "squarespace",
                "Squarespace",
                hmac("squarespace-signature").key(KeyForm::Hex),
                "the secret is hexadecimal and is decoded first",
            )
            .secret("hexadecimal; decoded first")
        },
        // aftership.com/docs/tracking/webhook/webhook-signature
        row("aftership", "AfterShip", hmac("aftership-hmac-sha256").base64(), "signs the raw body, no time")
            .secret("the webhook secret"),
        // docs.lemonsqueezy.com/help/webhooks/signing-requests
        Preset {
            natural_key: &["body.data.attributes.store_id"],
            namespace: Some("lemon-squeezy"),
            key_signed: true,
            event_type: Some("headers.x-event-name"),
            repeats: Some(true),
            ..row("lemon-squeezy", "Lemon Squeezy", hmac("x-signature"), "sends no id")
                .secret("the secret given when the webhook was made, 6 to 40 characters")
                .failures("repeats 3 times, after about 5, 25 and 125 seconds")
                .ack("200 alone")
        },
        // developer.ebay.com, notification API; eBay/event-notification-nodejs-sdk
        Preset {
            natural_key: &["body.notification.data.userId"],
            namespace: Some("ebay"),
            key_signed: true,
            event_id: Some("body.notification.notificationId"),
            event_type: Some("body.metadata.topic"),
            ..row(
                "ebay",
                "eBay",
                signed_by_ebay(),
                "its public keys are handed out to an application's own credentials (getPublicKey), so they are configured and not fetched",
            )
            .secret("the public key of the Notification API's getPublicKey, PEM or the base64 in it; verify_token answers the challenge")
        },
        // EasyPost/easypost-python; EasyPost/examples fixtures
        Preset {
            natural_key: &["body.user_id"],
            key_signed: true,
            event_id: Some("body.id"),
            event_type: Some("body.description"),
            ..row(
                "easypost",
                "EasyPost",
                hmac("x-hmac-signature").prefix("hmac-sha256-hex=").key(KeyForm::Nfkd),
                "the secret is normalised (Unicode NFKD) before it becomes the key",
            )
        },
        // docs.goshippo.com/docs/Tracking/WebhookSecurity
        Preset {
            event_type: Some("body.event"),
            ..row(
                "shippo",
                "Shippo",
                hmac("shippo-auth-signature")
                    .pairs(",", "=", "v1")
                    .trimmed()
                    .over("{ts}.{body}")
                    .time_item("t", crate::verify::scheme::Unit::Seconds),
                "signs only where the account manager has set HMAC up",
            )
        },
    ]
}

/// ECDSA over the body, in an envelope of JSON that also names the key.
fn signed_by_ebay() -> Signed {
    let signed = hmac("x-ebay-signature").public(PublicAlg::EcdsaP256Sha1, KeyForm::Pem);
    Signed { enc: Enc::Envelope, ..signed }
}
