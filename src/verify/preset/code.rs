//! Where code lives, is built and is watched.

use super::Preset;
use super::row::{fetched, hmac, jwt, row, s, token};
use crate::verify::fetched::Of;
use crate::verify::jwt::{BodyClaim, Jwt};
use crate::verify::mac::Hash;
use crate::verify::scheme::{Place, Signed, Unit};

const GITHUB_KEY: &[&str] = &[
    "body.installation.id",
    "body.organization.id",
    "body.repository.owner.id",
    "body.payload | json | installation.id",
    "body.payload | json | organization.id",
    "body.payload | json | repository.owner.id",
];

/// `X-Hub-Signature` with SHA-256, unlike old GitHub's and Intercom's.
fn hub_sha256() -> Signed {
    hmac("x-hub-signature").prefix("sha256=")
}

pub(super) fn rows() -> Vec<Preset> {
    vec![
        // github/docs, "Validating webhook deliveries", "Handling failed webhook deliveries"
        github("github", "GitHub", hmac("x-hub-signature-256").prefix("sha256=")),
        github("github-sha1-legacy", "GitHub (legacy SHA-1)", hmac("x-hub-signature").prefix("sha1=").sha1()),
        // docs.gitlab.com, webhooks, "Secret token"
        Preset {
            natural_key: &["body.project.id", "body.project_id", "body.group_id"],
            namespace: Some("gitlab"),
            event_id: Some("headers.idempotency-key"),
            event_type: Some("headers.x-gitlab-event"),
            answer_limit: s(10),
            ..row(
                "gitlab-token",
                "GitLab (secret token)",
                token("x-gitlab-token"),
                "the token proves the sender and nothing about the body",
            )
            .secret("the secret token entered for the webhook")
            .failures("4 failures in a row, 4xx too, switch the webhook off for a minute, doubling; 40 for good")
        },
        // docs.aws.amazon.com/sns, "Verifying the signatures of Amazon SNS messages", "Message delivery retries": it signs
        // once and repeats for up to an hour
        Preset {
            natural_key: &["body.TopicArn"],
            key_signed: true,
            event_id: Some("body.MessageId"),
            secret: Some("none; `topics` names the ARNs of your topics"),
            failures: Some("repeats 3 times 20 s apart unless told otherwise, for an hour at most"),
            event_type: Some("headers.x-amz-sns-message-type"),
            answer_limit: s(15),
            repeats: Some(true),
            ..row(
                "aws-sns",
                "Amazon SNS",
                fetched(Of::Sns, Place::Body(vec!["Timestamp".into()]), 3_900),
                "needs topics: it signs for everybody's; not with raw message delivery, which is not signed; repeats for up to \
                 an hour",
            )
        },
        // go-playground/webhooks gitea
        Preset {
            natural_key: &["body.repository.owner.id"],
            namespace: Some("gitea"),
            key_signed: true,
            event_id: Some("headers.x-gitea-delivery"),
            event_type: Some("headers.x-gitea-event"),
            ..row("gitea", "Gitea, Forgejo", hmac("x-gitea-signature"), "bare hex without a prefix")
        },
        // support.atlassian.com/bitbucket-cloud, "Manage webhooks", "Troubleshoot webhooks"
        Preset {
            event_type: Some("headers.x-event-key"),
            answer_limit: s(10),
            repeats: Some(true),
            ..row(
                "bitbucket",
                "Bitbucket Cloud",
                hub_sha256(),
                "bodies over 256 KB are silently not sent; without a secret at its side it sends no signature",
            )
            .secret("the secret entered for the webhook")
            .failures("repeats twice, and only after 5xx")
        },
        // confluence.atlassian.com, bitbucketserver event payload
        Preset {
            event_type: Some("headers.x-event-key"),
            ..row(
                "bitbucket-server",
                "Bitbucket Data Center",
                hub_sha256(),
                "the signature's header has no -256 in its name and is SHA-256 nevertheless",
            )
            .failures("5 failures: the webhook is skipped for 10 seconds, growing to 10 hours")
        },
        // Atlassian, "Secure admin webhooks"
        Preset {
            event_type: Some("body.webhookEvent"),
            repeats: Some(true),
            ..row(
                "jira",
                "Jira Cloud (admin webhooks)",
                hub_sha256(),
                "for admin webhooks; those of Connect apps carry a token instead",
            )
            .failures("repeats after 408, 409, 425, 429, 5xx and time-outs only")
        },
        // docs.sentry.io, integration platform, webhooks
        Preset {
            natural_key: &["body.installation.uuid"],
            key_signed: true,
            event_id: Some("headers.request-id"),
            event_type: Some("headers.sentry-hook-resource"),
            ..row(
                "sentry",
                "Sentry (integration platform)",
                hmac("sentry-hook-signature"),
                "its time header is not signed and is not looked at",
            )
            .secret("the integration's client secret")
        },
        // PagerDuty/developer-docs webhooks/04-Signatures.md, 02-Behavior.md
        Preset {
            event_id: Some("body.event.id"),
            event_type: Some("body.event.event_type"),
            answer_limit: s(5),
            repeats: Some(true),
            ..row(
                "pagerduty",
                "PagerDuty",
                hmac("x-pagerduty-signature").pairs(",", "=", "v1").trimmed(),
                "later events of the same resource wait while one is repeated",
            )
            .secret("used as text although it looks encoded")
            .failures("repeats for up to 48 hours")
            .ack("2xx")
        },
        // circleci/circleci-docs, outbound webhooks
        Preset {
            event_type: Some("headers.circleci-event-type"),
            repeats: Some(true),
            ..row(
                "circleci",
                "CircleCI",
                hmac("circleci-signature").pairs(",", "=", "v1"),
                "v1 is the newest version there is; others are ignored",
            )
            .failures("repeats what was not answered with 2xx")
            .ack("2xx")
        },
        // buildkite/docs, "Verifying HMAC signatures"; five minutes are only its example
        Preset {
            event_type: Some("headers.x-buildkite-event"),
            ..row(
                "buildkite",
                "Buildkite",
                hmac("x-buildkite-signature")
                    .pairs(",", "=", "signature")
                    .over("{ts}.{body}")
                    .time_item("timestamp", Unit::Seconds),
                "its other way, X-Buildkite-Token, is a `token` scheme",
            )
            .secret("the webhook's token")
        },
        row("vercel", "Vercel", hmac("x-vercel-signature").sha1(), "HMAC-SHA1 in bare hex"),
        // docs.netlify.com, "Deploy notifications", payload signature
        row(
            "netlify",
            "Netlify",
            Jwt {
                issuer: Some("netlify"),
                body: Some(BodyClaim { name: "sha256", absent_when_empty: false }),
                ..jwt("x-webhook-signature", &[Hash::Sha256])
            },
            "a token holds the body's hash; it names no time",
        ),
        row("heroku", "Heroku", hmac("heroku-webhook-hmac-sha256").base64(), "signs the raw body, no time"),
        // adnanh/webhook hook tests
        row(
            "scalr",
            "Scalr",
            hmac("x-signature").sha1().over("{body}{hdr:date}"),
            "signs the Date header's text, whose age is not judged",
        ),
        // linear/linear packages/sdk
        Preset {
            natural_key: &["body.organizationId"],
            key_signed: true,
            event_id: Some("headers.linear-delivery"),
            event_type: Some("headers.linear-event"),
            repeats: Some(true),
            ..row(
                "linear",
                "Linear",
                hmac("linear-signature").time_member("webhookTimestamp", Unit::Millis).both(60),
                "the time that counts is a member of the signed body",
            )
            .failures("repeats with growing gaps")
        },
        // hookdeck webhook-skills
        Preset {
            event_id: Some("headers.x-hookdeck-eventid"),
            ..row("hookdeck", "Hookdeck", hmac("x-hookdeck-signature").base64(), "signs the raw body, no time")
        },
        // frain-dev/convoy pkg/verifier
        row(
            "convoy-sha512-hex",
            "Convoy (SHA-512, hex)",
            hmac("x-convoy-signature").sha512(),
            "the header's name can be changed in Convoy; then write an `hmac` scheme",
        ),
        row(
            "convoy-sha512-b64",
            "Convoy (SHA-512, base64)",
            hmac("x-convoy-signature").sha512().base64(),
            "the header's name can be changed in Convoy; then write an `hmac` scheme",
        ),
        // okta-developer-docs, event hooks
        Preset {
            natural_key: &["body.source"],
            event_id: Some("body.eventId"),
            event_type: Some("body.data.events.0.eventType"),
            answer_limit: s(3),
            repeats: Some(true),
            ..row("okta", "Okta event hooks", token("authorization"), "nothing is signed: the header is the proof")
                .secret("the whole header value given at registration")
                .failures("repeats once, never after 4xx")
                .ack("200 or 204 with an empty body")
        },
    ]
}

fn github(name: &'static str, title: &'static str, signed: Signed) -> Preset {
    Preset {
        natural_key: GITHUB_KEY,
        namespace: Some("github"),
        key_signed: true,
        event_id: Some("headers.x-github-delivery"),
        event_type: Some("headers.x-github-event"),
        answer_limit: s(10),
        repeats: Some(false),
        ..row(name, title, signed, "from a form content type the raw form text is signed, not the JSON in it")
            .secret("the secret entered for the webhook")
            .failures("never sends again what was not accepted in time")
    }
}
