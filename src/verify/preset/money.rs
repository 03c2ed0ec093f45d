//! Payments, billing, accounting, checks.

use super::Preset;
use super::row::{basic, fetched, hmac, inside, row, s, token};
use crate::verify::encoding::{Enc, KeyForm};
use crate::verify::fetched::{Of, PAYPAL_TIME};
use crate::verify::inside::{Each, Inside, Proof};
use crate::verify::mac::Hash;
use crate::verify::posted::Posted;
use crate::verify::public::PublicAlg;
use crate::verify::scheme::{Place, Scheme, Unit};

pub(super) fn rows() -> Vec<Preset> {
    vec![
        // developer.paypal.com, webhooks, "Verify the webhook signature"; it repeats for three days
        Preset {
            event_id: Some("body.id"),
            event_type: Some("body.event_type"),
            repeats: Some(true),
            secret: Some("the webhook's id, as the app's webhooks show it: `webhook_id`"),
            ..row(
                "paypal",
                "PayPal",
                fetched(Of::PayPal, Place::Header(vec![PAYPAL_TIME]), 3 * 24 * 3_600 + 300),
                "the secret is the webhook's id; of the body a CRC-32 is signed, which does not keep it from being changed; \
                 repeats 25 times in three days",
            )
        },
        // docs.stripe.com/webhooks; stripe/stripe-python tests/test_webhook.py
        Preset {
            natural_key: &["body.account", "body.context"],
            reserved_lane: Some("platform"),
            key_signed: true,
            event_id: Some("body.id"),
            event_type: Some("body.type"),
            repeats: Some(true),
            ..row(
                "stripe",
                "Stripe",
                hmac("stripe-signature")
                    .pairs(",", "=", "v1")
                    .over("{ts}.{body}")
                    .time_item("t", Unit::Seconds)
                    .old(300),
                "events of your own account name none and share the lane ~platform",
            )
            .secret("the endpoint's secret, used whole, whsec_ included")
            .failures("repeats for up to 3 days")
        },
        // PaddleHQ/paddle-node-sdk: five seconds
        Preset {
            event_id: Some("body.event_id"),
            event_type: Some("body.event_type"),
            ..row(
                "paddle",
                "Paddle Billing",
                hmac("paddle-signature")
                    .pairs(";", "=", "h1")
                    .over("{ts}:{body}")
                    .time_item("ts", Unit::Seconds)
                    .old(5),
                "five seconds of tolerance leave little room for a slow clock: raise `tolerance` if it refuses",
            )
            .secret("the notification destination's secret, pdl_ntfset_ included")
        },
        // razorpay.com/docs/webhooks/faqs
        Preset {
            natural_key: &["body.account_id"],
            key_signed: true,
            event_id: Some("headers.x-razorpay-event-id"),
            event_type: Some("body.event"),
            repeats: Some(true),
            ..row(
                "razorpay",
                "Razorpay",
                hmac("x-razorpay-signature"),
                "repeats are still signed with the secret from before a change: keep the old one for a day",
            )
            .secret("the webhook's secret")
            .failures("repeats for 24 hours")
            .ack("2xx")
        },
        Preset {
            event_type: Some("body.event"),
            ..row("paystack", "Paystack", hmac("x-paystack-signature").sha512(), "HMAC-SHA512")
                .secret("the API secret key")
        },
        // mollie/mollie-api-php SignatureValidator.php
        Preset {
            event_id: Some("body.id"),
            event_type: Some("body.type"),
            ..row(
                "mollie",
                "Mollie (next-gen webhooks)",
                hmac("x-mollie-signature").maybe_prefix("sha256="),
                "classic webhooks carry no signature by design and are refused here",
            )
        },
        // gocardless/gocardless-pro-python
        Preset {
            event_id: Some("body.events.0.id"),
            ..row("gocardless", "GoCardless", hmac("webhook-signature"), "one body holds many events")
        },
        // coinbase/coinbase-commerce-python
        Preset {
            event_id: Some("body.event.id"),
            event_type: Some("body.event.type"),
            repeats: Some(true),
            ..row(
                "coinbase-commerce",
                "Coinbase Commerce",
                hmac("x-cc-webhook-signature"),
                "signs the raw body, no time",
            )
            .failures("repeats for up to 3 days, with gaps of at most an hour")
        },
        // developer.xero.com/documentation/webhooks/configuring-your-server
        Preset {
            natural_key: &["body.events.0.tenantId"],
            key_signed: true,
            answer_limit: s(5),
            repeats: Some(true),
            ..row(
                "xero",
                "Xero",
                hmac("x-xero-signature").base64(),
                "now and then it signs with a wrong key and wants 401; one body may mix tenants: it follows \
                 the first",
            )
            .secret("the webhook key, used as text though it looks like base64")
            .failures("repeats for 24 hours, then disables")
            .ack("200 with an empty body and no cookies")
        },
        // docs.adyen.com, platform webhooks
        Preset {
            answer_limit: s(10),
            repeats: Some(true),
            ..row(
                "adyen-header",
                "Adyen (platform webhooks)",
                hmac("hmacsignature").base64().key(KeyForm::Hex),
                "one key signs at a time; keep the previous one for a while after a change",
            )
            .secret("the HMAC key, hexadecimal; decoded first")
        },
        // docs.adyen.com, "Verify HMAC signatures"; Adyen/adyen-node-api-library hmacValidator.spec.ts
        Preset {
            natural_key: &["body.notificationItems.0.NotificationRequestItem.merchantAccountCode"],
            key_signed: true,
            event_id: Some("body.notificationItems.0.NotificationRequestItem.pspReference"),
            event_type: Some("body.notificationItems.0.NotificationRequestItem.eventCode"),
            answer_limit: s(10),
            repeats: Some(true),
            ..row(
                "adyen-payload",
                "Adyen (standard notifications)",
                Inside {
                    proof: Proof::Hmac(Hash::Sha256, Enc::Base64),
                    key: KeyForm::Hex,
                    each: Some(Each { list: "notificationItems", envelope: Some("NotificationRequestItem") }),
                    between: ":",
                    ..inside(
                        &["additionalData", "hmacSignature"],
                        &[
                            &["pspReference"],
                            &["originalReference"],
                            &["merchantAccountCode"],
                            &["merchantReference"],
                            &["amount", "value"],
                            &["amount", "currency"],
                            &["eventCode"],
                            &["success"],
                        ],
                    )
                },
                "every item must be signed right, its other members are not signed; keep the previous key for \
                 a while after a change",
            )
            .secret("the HMAC key, hexadecimal; decoded first")
            .failures("repeats 3 times at once, then from a queue for up to 30 days")
            .ack("older set-ups want the text [accepted]: set `ack`")
        },
        // recurly/recurly-client-ruby spec/recurly/webhooks_spec.rb
        Preset {
            natural_key: &["body.site_id"],
            key_signed: true,
            event_type: Some("body.event_type"),
            ..row(
                "recurly",
                "Recurly",
                hmac("recurly-signature").over("{ts}.{body}").time_first(",", Unit::Millis).both(300),
                "the first item is the time in milliseconds, the others are signatures",
            )
        },
        // transferwise/digital-signatures-examples; docs.wise.com, event handling
        Preset {
            natural_key: &["body.data.resource.profile_id"],
            namespace: Some("wise"),
            key_signed: true,
            event_id: Some("headers.x-delivery-id"),
            event_type: Some("body.event_type"),
            answer_limit: s(5),
            repeats: Some(true),
            ..row(
                "wise",
                "Wise",
                hmac("x-signature-sha256").public(PublicAlg::RsaPkcs1, KeyForm::Pem).base64(),
                "another key for the sandbox",
            )
            .secret("Wise's public key, PEM")
            .failures("at most 25 tries within two weeks")
            .ack("2xx")
        },
        // muxinc/mux-elixir
        Preset {
            event_id: Some("body.id"),
            event_type: Some("body.type"),
            ..row(
                "mux",
                "Mux",
                hmac("mux-signature").pairs(",", "=", "v1").over("{ts}.{body}").time_item("t", Unit::Seconds).old(300),
                "as Stripe signs",
            )
        },
        // workos/workos-node signature-provider.ts: milliseconds, three minutes
        Preset {
            event_id: Some("body.id"),
            event_type: Some("body.event"),
            ..row(
                "workos",
                "WorkOS",
                hmac("workos-signature")
                    .pairs(",", "=", "v1")
                    .trimmed()
                    .over("{ts}.{body}")
                    .time_item("t", Unit::Millis)
                    .old(180),
                "the time is in milliseconds",
            )
        },
        // braintree/braintree_python webhook_notification_gateway
        row(
            "braintree",
            "Braintree",
            Scheme::Posted(Posted { signature: "bt_signature", payload: "bt_payload" }),
            "the payload is XML in base64, in which no key expression looks",
        )
        .secret("`public key:private key`"),
        // checkr/webhook-verification-examples
        row("checkr", "Checkr", hmac("x-checkr-signature"), "signs the raw body, no time").secret("the API key"),
        row("chargebee", "Chargebee", basic(), "signs nothing").secret("user:password, as set up for the webhook"),
        row(
            "flutterwave-v3",
            "Flutterwave (v3)",
            token("verif-hash"),
            "it stands in the header as it is and proves nothing about the body",
        )
        .secret("the secret hash"),
    ]
}
