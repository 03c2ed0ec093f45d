//! Standard Webhooks, and those who send it.

use super::Preset;
use super::row::{row, s, standard};
use crate::verify::encoding::KeyForm;
use crate::verify::public::PublicAlg;
use crate::verify::scheme::Signed;

/// The names of the specification.
fn webhook() -> Signed {
    standard(&["webhook-id"], &["webhook-timestamp"], &["webhook-signature"])
}

/// Svix's own names, or those of the specification.
fn svix() -> Signed {
    standard(
        &["svix-id", "webhook-id"],
        &["svix-timestamp", "webhook-timestamp"],
        &["svix-signature", "webhook-signature"],
    )
}

const SVIX_ID: Option<&str> = Some("headers.svix-id");
const WEBHOOK_ID: Option<&str> = Some("headers.webhook-id");

pub(super) fn rows() -> Vec<Preset> {
    let sent = |name, title, signed: Signed, id, note| Preset {
        event_id: id,
        event_type: Some("body.type"),
        repeats: Some(true),
        ..row(name, title, signed, note)
    };
    vec![
        // standard-webhooks/standard-webhooks spec
        Preset {
            answer_limit: s(15),
            ..sent(
                "standard-webhooks",
                "Standard Webhooks",
                webhook(),
                WEBHOOK_ID,
                "senders are advised to wait 15 to 30 seconds; 410 makes them disable the endpoint",
            )
            .secret("whsec_ and base64")
            .failures("410 makes senders disable the endpoint; schedules are their own")
        },
        // the same specification, its asymmetric signatures
        Preset {
            answer_limit: s(15),
            ..sent(
                "standard-webhooks-ed25519",
                "Standard Webhooks (Ed25519)",
                webhook().public(PublicAlg::Ed25519, KeyForm::Whpk).take("v1a"),
                WEBHOOK_ID,
                "v1a signatures count, v1 ones are ignored",
            )
            .secret("the sender's public key, whpk_ and base64")
            .failures("410 makes senders disable the endpoint; schedules are their own")
        },
        // svix/svix-webhooks
        Preset {
            answer_limit: s(15),
            ..sent("svix", "Svix", svix(), SVIX_ID, "its own header names, or those of Standard Webhooks")
                .secret("the endpoint's secret, whsec_ and base64")
                .failures(
                    "repeats after 5 s, 5 min, 30 min, 2 h, 5 h, 10 h and 10 h, then disables the endpoint after \
                 days of failures",
                )
        },
        sent("clerk", "Clerk", svix(), SVIX_ID, "sends through Svix").secret("whsec_ and base64").failures("as Svix"),
        sent("resend", "Resend", svix(), SVIX_ID, "sends through Svix").secret("whsec_ and base64").failures("as Svix"),
        // openai/openai-python tests/lib/test_webhooks.py
        Preset {
            repeats: None,
            ..sent(
                "openai",
                "OpenAI",
                webhook().key(KeyForm::WhsecOrText),
                WEBHOOK_ID,
                "a secret without whsec_ is used as text",
            )
            .secret("whsec_ and base64; another text is used as it is")
        },
        // gitlab-org/gitlab merge requests 230944, 231325
        Preset {
            natural_key: &["body.project.id", "body.project_id", "body.group_id"],
            namespace: Some("gitlab"),
            key_signed: true,
            event_type: Some("headers.x-gitlab-event"),
            answer_limit: s(10),
            repeats: None,
            ..sent(
                "gitlab-signing",
                "GitLab (signing token)",
                webhook(),
                WEBHOOK_ID,
                "32 bytes of secret; nothing but the new signing token, not the old secret token",
            )
            .secret("the signing token, whsec_ and base64")
            .failures("4 failures in a row, 4xx too, switch the webhook off for a minute, doubling; 40 for good")
        },
        // bigcommerce/docs, https-webhook-overview
        Preset {
            natural_key: &["body.producer"],
            key_signed: true,
            event_id: WEBHOOK_ID,
            event_type: Some("body.scope"),
            ..sent(
                "bigcommerce",
                "BigCommerce",
                webhook().key(KeyForm::Text),
                WEBHOOK_ID,
                "the secret is used as text, unlike what Standard Webhooks says",
            )
            .secret("the app's client secret")
            .failures(
                "under 90 % success in two minutes the whole domain is blocked for three; repeats for up to \
                 48 hours, then deactivates the webhook",
            )
            .ack("200")
        },
        // developers.etsy.com, webhooks
        Preset {
            natural_key: &["body.shop_id"],
            namespace: Some("etsy"),
            key_signed: true,
            event_type: Some("body.event_type"),
            ..sent("etsy", "Etsy", webhook(), WEBHOOK_ID, "signs as Standard Webhooks")
                .secret("whsec_ and base64")
                .failures("repeats after 5 s, 5 min, 30 min, 2 h, 5 h, 10 h and 10 h")
        },
        // polarsource/polar-python
        Preset {
            repeats: None,
            ..sent("polar", "Polar", webhook().key(KeyForm::Text), WEBHOOK_ID, "signs as Standard Webhooks")
                .secret("used as text, unlike what Standard Webhooks says")
        },
        Preset {
            repeats: None,
            ..sent("replicate", "Replicate", webhook(), WEBHOOK_ID, "as Standard Webhooks").secret("whsec_ and base64")
        },
    ]
}
