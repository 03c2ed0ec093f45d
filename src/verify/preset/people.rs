//! Messages, meetings, forms, customers: what people do with each other.

use http::HeaderName;

use super::Preset;
use super::row::{basic, form, hmac, inside, jwt, row, s, token};
use crate::verify::encoding::KeyForm;
use crate::verify::form::FormText;
use crate::verify::inside::{Each, Inside, Proof};
use crate::verify::jwt::{BodyClaim, Jwt};
use crate::verify::mac::Hash;
use crate::verify::public::PublicAlg;
use crate::verify::scheme::{Place, Signed, Time, Unit};

pub(super) fn rows() -> Vec<Preset> {
    vec![
        // docs.slack.dev, "Verifying requests from Slack"; slackapi/python-slack-sdk
        Preset {
            natural_key: &[
                "body.team_id",
                "body.team.id",
                "body.payload | json | team.id",
                "body.payload | json | user.team_id",
            ],
            key_signed: true,
            event_id: Some("body.event_id"),
            event_type: Some("body.event.type"),
            answer_limit: s(3),
            repeats: Some(true),
            ..row(
                "slack",
                "Slack",
                v0_hex("x-slack-signature", "x-slack-request-timestamp").both(300),
                "commands and interactions want their answer from the application",
            )
            .secret("the app's signing secret")
            .failures("repeats 3 times")
        },
        // zoom/webhook-sample; devsupport.zoom.us. It names no window.
        Preset {
            natural_key: &["body.payload.account_id"],
            key_signed: true,
            event_id: Some("headers.x-zm-trackingid"),
            event_type: Some("body.event"),
            answer_limit: s(3),
            repeats: Some(true),
            ..row(
                "zoom",
                "Zoom",
                v0_hex("x-zm-signature", "x-zm-request-timestamp"),
                "checks the address from time to time",
            )
            .secret("the app's secret token")
            .failures("repeats after 5, 20 and 60 minutes")
            .ack("200 or 204")
        },
        // developers.facebook.com, Graph API webhooks, getting started
        Preset {
            natural_key: &["body.entry.0.id"],
            namespace: Some("meta"),
            key_signed: true,
            event_type: Some("body.object"),
            ..row(
                "meta",
                "Meta (Facebook, Instagram, WhatsApp)",
                hmac("x-hub-signature-256").prefix("sha256="),
                "one body may hold entries of several accounts: it follows the first",
            )
            .secret("the app secret")
        },
        // developers.line.biz, "Verify webhook signature"
        Preset {
            natural_key: &["body.destination"],
            key_signed: true,
            event_id: Some("body.events.0.webhookEventId"),
            event_type: Some("body.events.0.type"),
            ..row("line", "LINE", hmac("x-line-signature").base64(), "signs the raw body, no time")
                .secret("the channel secret")
                .failures("sending may be suspended after failing for long")
        },
        // docs.x.com, Account Activity, securing webhooks
        Preset {
            natural_key: &["body.for_user_id"],
            namespace: Some("x"),
            key_signed: true,
            ..row(
                "x",
                "X (Twitter)",
                hmac("x-twitter-webhooks-signature").base64().prefix("sha256="),
                "checks the address hourly",
            )
            .secret("the app's consumer secret")
            .failures("a redirect, a TLS error or a wrong answer to its check makes the webhook invalid")
        },
        // dev.twitch.tv, EventSub, "Verifying the event message"
        Preset {
            natural_key: &["body.subscription.condition.broadcaster_user_id"],
            namespace: Some("twitch"),
            key_signed: true,
            event_id: Some("headers.twitch-eventsub-message-id"),
            event_type: Some("body.subscription.type"),
            ..row(
                "twitch",
                "Twitch EventSub",
                hmac("twitch-eventsub-message-signature")
                    .prefix("sha256=")
                    .over("{id}{ts}{body}")
                    .id("twitch-eventsub-message-id")
                    .time_header("twitch-eventsub-message-timestamp", Unit::Rfc3339)
                    .old(600),
                "signs id, time and body",
            )
            .secret("the secret of your subscription, 10 to 100 characters")
            .failures("a subscription whose deliveries fail is revoked")
            .ack("2xx")
        },
        // core.telegram.org/bots/api#setwebhook
        row("telegram", "Telegram", token("x-telegram-bot-api-secret-token"), "it proves nothing about the body")
            .secret("the secret_token given to setWebhook"),
        // twilio.com/docs/usage/security, webhooks connection overrides; twilio-python, -java, -php validators
        Preset {
            natural_key: &["body.AccountSid"],
            key_signed: true,
            event_id: Some("headers.i-twilio-idempotency-token"),
            answer_limit: s(15),
            repeats: Some(false),
            ..row(
                "twilio",
                "Twilio",
                form("x-twilio-signature", Hash::Sha1, FormText::Twilio),
                "signs the address, so set `public_url`; many endpoints want TwiML from the application \
                 (`respond: upstream`)",
            )
            .secret("the account's auth token")
            .failures("repeats once, and only what could not connect")
        },
        // mailchimp.com/developer/transactional, "Authenticating webhook requests"; evendis/mandrill-rails
        Preset {
            event_id: Some("body.mandrill_events | json | 0._id"),
            event_type: Some("body.mandrill_events | json | 0.event"),
            ..row(
                "mandrill",
                "Mandrill (Mailchimp Transactional)",
                form("x-mandrill-signature", Hash::Sha1, FormText::Mandrill),
                "signs the address, so set `public_url`; one body holds many events",
            )
            .secret("the webhook's key")
        },
        // documentation.mailgun.com, "Securing webhooks"; mailgun/mailgun-go webhooks_test.go. It names no window.
        Preset {
            event_id: Some("body.\"event-data\".id"),
            event_type: Some("body.\"event-data\".event"),
            repeats: Some(true),
            ..row(
                "mailgun",
                "Mailgun",
                Inside {
                    time: Some(Time {
                        place: Place::Body(vec!["signature".into(), "timestamp".into()]),
                        unit: Unit::Seconds,
                        window: None,
                    }),
                    ..inside(&["signature", "signature"], &[&["signature", "timestamp"], &["signature", "token"]])
                },
                "the event's data are not signed, only a time and a token",
            )
            .secret("the webhook signing key")
            .failures("repeats for 8 hours, never after 406")
            .ack("200")
        },
        // plivo/plivo-python utils/signature_v3.py
        row(
            "plivo",
            "Plivo",
            form(
                "x-plivo-signature-v3",
                Hash::Sha256,
                FormText::Plivo { nonce: HeaderName::from_static("x-plivo-signature-v3-nonce") },
            ),
            "signs the address, so set `public_url`; many endpoints want XML from the application \
                 (`respond: upstream`)",
        )
        .secret("the account's auth token"),
        // discord/discord-api-docs, interactions overview, webhook events. It names no window.
        Preset {
            natural_key: &["body.guild_id", "body.application_id"],
            namespace: Some("discord"),
            key_signed: true,
            event_id: Some("body.id"),
            event_type: Some("body.type"),
            answer_limit: s(3),
            ..row(
                "discord",
                "Discord",
                hmac("x-signature-ed25519")
                    .public(PublicAlg::Ed25519, KeyForm::Hex)
                    .over("{ts}{body}")
                    .time_header("x-signature-timestamp", Unit::Seconds),
                "now and then it signs wrong on purpose and wants 401; interactions want their answer from \
                 the application",
            )
            .secret("the application's public key, hexadecimal")
            .failures("stops after many failures")
        },
        // team-telnyx/telnyx-python webhook_verification.py
        Preset {
            event_id: Some("body.data.id"),
            event_type: Some("body.data.event_type"),
            ..row(
                "telnyx",
                "Telnyx",
                hmac("telnyx-signature-ed25519")
                    .public(PublicAlg::Ed25519, KeyForm::Base64)
                    .base64()
                    .over("{ts}|{body}")
                    .time_header("telnyx-timestamp", Unit::Seconds)
                    .both(300),
                "signs time and body",
            )
            .secret("the account's public key, base64")
        },
        // sendgrid/sendgrid-python test/unit/test_eventwebhook.py. It names no window.
        Preset {
            event_id: Some("$[0].sg_event_id"),
            event_type: Some("$[0].event"),
            answer_limit: s(10),
            repeats: Some(true),
            ..row(
                "sendgrid",
                "SendGrid Event Webhook",
                hmac("x-twilio-email-event-webhook-signature")
                    .public(PublicAlg::EcdsaP256, KeyForm::Pem)
                    .base64()
                    .over("{ts}{body}")
                    .time_header("x-twilio-email-event-webhook-timestamp", Unit::Seconds),
                "one body holds many events",
            )
            .secret("the verification key shown beside the webhook, base64")
            .failures("repeats for 24 hours")
            .ack("2xx")
        },
        // developer.zendesk.com, "Verifying webhooks". It names no window.
        Preset {
            natural_key: &["body.account_id"],
            namespace: Some("zendesk"),
            key_signed: true,
            event_id: Some("headers.x-zendesk-webhook-invocation-id"),
            event_type: Some("body.type"),
            ..row(
                "zendesk",
                "Zendesk",
                hmac("x-zendesk-webhook-signature")
                    .base64()
                    .over("{ts}{body}")
                    .time_header("x-zendesk-webhook-signature-timestamp", Unit::Rfc3339),
                "its test button signs with one fixed public secret",
            )
        },
        // intercom developer hub, "Signed notifications"
        Preset {
            natural_key: &["body.app_id"],
            key_signed: true,
            event_id: Some("body.id"),
            event_type: Some("body.topic"),
            answer_limit: s(5),
            ..row("intercom", "Intercom", hmac("x-hub-signature").prefix("sha1=").sha1(), "HMAC-SHA1")
                .secret("the app's client secret")
        },
        // HubSpot/hubspot-api-python tests/spec/utils/test_signature.py
        hubspot("hubspot-v1", hmac("x-hubspot-signature").digest().over("{secret}{body}")),
        hubspot("hubspot-v2", hmac("x-hubspot-signature").digest().over("{secret}{method}{url}{body}")),
        hubspot(
            "hubspot-v3",
            hmac("x-hubspot-signature-v3")
                .base64()
                .over_hubspot_v3()
                .time_header("x-hubspot-request-timestamp", Unit::Millis)
                .old(300),
        ),
        // typeform.com/developers/webhooks/secure-your-webhooks
        Preset {
            repeats: Some(true),
            answer_limit: s(30),
            ..row(
                "typeform",
                "Typeform",
                hmac("typeform-signature").base64().prefix("sha256="),
                "base64 after `sha256=`",
            )
            .failures("repeats after 408, 423, 429 and 503 only")
        },
        // community.calendly.com 386 (staff): three minutes
        Preset {
            natural_key: &["body.created_by"],
            key_signed: true,
            event_type: Some("body.event"),
            ..row(
                "calendly",
                "Calendly",
                hmac("calendly-webhook-signature")
                    .pairs(",", "=", "v1")
                    .over("{ts}.{body}")
                    .time_item("t", Unit::Seconds)
                    .old(180),
                "the time is good for three minutes",
            )
            .failures("silently disabled after repeated failures")
        },
        // cal.com
        row("cal-com", "Cal.com", hmac("x-cal-signature-256"), "signs the raw body, no time"),
        // developers.notion.com webhooks; makenotion/notion-sdk-js
        Preset {
            natural_key: &["body.workspace_id"],
            key_signed: true,
            ..row(
                "notion",
                "Notion",
                hmac("x-notion-signature").prefix("sha256="),
                "the secret comes once, in its first, unsigned request: take it from there",
            )
            .secret("the verification_token of its first request")
        },
        // airtable.com/developers/web/api/webhooks-overview
        Preset {
            natural_key: &["body.base.id"],
            key_signed: true,
            ..row(
                "airtable",
                "Airtable",
                hmac("x-airtable-content-mac").prefix("hmac-sha256=").key(KeyForm::Base64),
                "a body only says that something changed",
            )
            .secret("macSecretBase64; decoded first")
            .ack("200 or 204 with an empty body")
        },
        // messagebird/go-rest-api signature_jwt
        row(
            "messagebird-jwt",
            "Bird, MessageBird",
            Jwt {
                issuer: Some("MessageBird"),
                id: Some("jti"),
                body: Some(BodyClaim { name: "payload_hash", absent_when_empty: true }),
                url: Some("url_hash"),
                ends: true,
                ..jwt("messagebird-signature-jwt", &[Hash::Sha256, Hash::Sha384, Hash::Sha512])
            },
            "signs the address, so set `public_url`; a token is good for a minute",
        ),
        // developer.monday.com, "Authorization header"
        Preset {
            event_type: Some("body.event.type"),
            ..row(
                "monday",
                "Monday",
                Jwt { audience: true, ends: true, ..jwt("authorization", &[Hash::Sha256]) },
                "the token is for the address, so set `public_url`, and does not cover the body; webhooks \
                 made with a personal token carry none",
            )
            .secret("the app's signing secret")
        },
        // w3c/websub, "Authenticated Content Distribution"
        row(
            "websub",
            "WebSub (YouTube and others)",
            hmac("x-hub-signature").hash_named(),
            "the hub chooses among SHA-1, 256, 384 and 512",
        )
        .secret("the hub.secret of your subscription")
        .failures("redirects are failures; 410 ends the subscription")
        .ack("2xx"),
        // box/box-python-sdk test/webhooks.py
        Preset {
            event_id: Some("headers.box-delivery-id"),
            event_type: Some("body.trigger"),
            ..row(
                "box",
                "Box",
                hmac("box-signature-primary")
                    .own_headers(&["box-signature-primary", "box-signature-secondary"])
                    .fixed("box-signature-version", "1")
                    .fixed("box-signature-algorithm", "HmacSHA256")
                    .base64()
                    .over("{body}{ts}")
                    .time_header("box-delivery-timestamp", Unit::Rfc3339)
                    .old(600),
                "the first secret is the primary key, the second the secondary one; either may be empty, and each \
                 belongs to its own header",
            )
            .secret("the app's primary and secondary signature keys")
        },
        // contentful/node-apps-toolkit src/requests
        Preset {
            natural_key: &["headers.x-contentful-space-id"],
            event_type: Some("headers.x-contentful-topic"),
            ..row(
                "contentful",
                "Contentful",
                hmac("x-contentful-signature")
                    .over_request("x-contentful-signed-headers")
                    .time_header("x-contentful-timestamp", Unit::Millis)
                    .old(30),
                "signs method, path, body and the headers that it lists; set `public_url` where a proxy \
                 changes the path",
            )
            .secret("64 characters, used as text")
        },
        // learn.microsoft.com, change notifications
        Preset {
            natural_key: &["body.value.0.tenantId"],
            event_type: Some("body.value.0.changeType"),
            ..row(
                "microsoft-graph",
                "Microsoft Graph",
                Inside {
                    proof: Proof::Equal,
                    each: Some(Each { list: "value", envelope: None }),
                    ..inside(&["clientState"], &[])
                },
                "every notification of a body must hold it; it proves nothing about the rest, and the tokens \
                 of rich notifications are not judged",
            )
            .secret("the subscription's clientState")
        },
        // dropbox.com/developers/reference/webhooks
        Preset {
            answer_limit: s(10),
            repeats: Some(true),
            ..row("dropbox", "Dropbox", hmac("x-dropbox-signature"), "one body lists several accounts")
                .secret("the app secret")
                .failures("repeats for about ten minutes")
                .ack("200")
        },
        // Asana/developer-docs, webhooks
        Preset {
            answer_limit: s(10),
            repeats: Some(true),
            ..row(
                "asana",
                "Asana",
                hmac("x-hook-signature"),
                "one secret for each webhook, sent once in its first request: take it from there",
            )
            .secret("the X-Hook-Secret of its first request")
            .failures("repeats for 24 hours")
            .ack("2xx")
        },
        // developer.atlassian.com, Trello webhooks
        row(
            "trello",
            "Trello",
            hmac("x-trello-webhook").sha1().base64().over("{body}{url}"),
            "signs the callback URL: set public_url",
        )
        .secret("the OAuth secret of the app"),
        // developers.docusign.com/platform/webhooks/connect/validate
        Preset {
            event_type: Some("body.event"),
            ..row(
                "docusign",
                "DocuSign Connect",
                hmac("x-docusign-signature-1").base64().numbered("x-docusign-signature-"),
                "one numbered header for each active key; any of them may match any secret",
            )
            .secret("each active Connect key, used as text")
        },
        // sanity-io/webhook-toolkit. It names no window.
        Preset {
            event_id: Some("headers.idempotency-key"),
            ..row(
                "sanity",
                "Sanity",
                hmac("sanity-webhook-signature")
                    .base64url()
                    .pairs(", ", "=", "v1")
                    .over("{ts}.{body}")
                    .time_item("t", Unit::Millis),
                "the time is in milliseconds",
            )
        },
        // channels.pusher.com, webhooks; pusher-http-node
        row(
            "pusher",
            "Pusher",
            hmac("x-pusher-signature"),
            "X-Pusher-Key says which key signed; all secrets are tried",
        )
        .secret("the secret of the app key"),
        row("attio", "Attio", hmac("x-attio-signature"), "signs the raw body, no time"),
        row("jobber", "Jobber", hmac("x-jobber-hmac-sha256").base64(), "signs the raw body, no time"),
        // developers.webflow.com: milliseconds, five minutes
        row(
            "webflow",
            "Webflow",
            hmac("x-webflow-signature").over("{ts}:{body}").time_header("x-webflow-timestamp", Unit::Millis).both(300),
            "the time is in milliseconds",
        ),
        row(
            "tiktok",
            "TikTok",
            hmac("tiktok-signature").pairs(",", "=", "s").over("{ts}.{body}").time_item("t", Unit::Seconds),
            "signs time and body",
        )
        .secret("the client secret"),
        // postmarkapp.com: the user and password stand in the webhook's address
        row("postmark", "Postmark", basic(), "signs nothing").secret("user:password, put into the webhook's address"),
        row(
            "google-channel",
            "Google channels (Drive, Calendar)",
            token("x-goog-channel-token"),
            "it proves nothing about the body",
        )
        .secret("the token you chose for the channel"),
    ]
}

fn v0_hex(signature: &'static str, timestamp: &'static str) -> Signed {
    hmac(signature).prefix("v0=").over("v0:{ts}:{body}").time_header(timestamp, Unit::Seconds)
}

fn hubspot(name: &'static str, signed: Signed) -> Preset {
    let title = match name {
        "hubspot-v1" => "HubSpot (v1)",
        "hubspot-v2" => "HubSpot (v2)",
        _ => "HubSpot (v3)",
    };
    Preset {
        natural_key: &["$[0].portalId", "body.portalId"],
        namespace: Some("hubspot"),
        key_signed: true,
        event_id: Some("$[0].eventId"),
        event_type: Some("$[0].subscriptionType"),
        answer_limit: s(5),
        repeats: Some(true),
        ..row(
            name,
            title,
            signed,
            "v2 and v3 sign the address: set public_url; one body may mix portals: it follows the first",
        )
        .secret("the app's client secret")
        .failures("400, 401, 403, 404 and 405 are final, it never repeats after them; 5xx and 429 are repeated")
    }
}
