#!/usr/bin/env python3
"""Makes own.jsonl beside this file, the project's own signature vectors: `python3 make.py`.

Nothing is shared with the Rust code: each provider's recipe is written out here a second time, from
its documentation, so that one misreading does not confirm itself. Bodies and secrets are made up
here. Every provider gets requests that are right and requests that differ from a right one in one
thing. Signatures with private keys need the package `cryptography`; without it the lines that hold
them are kept as they are. The keys are made of fixed seeds, so that every run gives the same lines.
"""
import base64
import hashlib
import hmac
import json
import pathlib
import random
import sys
import unicodedata
import urllib.parse
import zlib
from datetime import datetime, timedelta, timezone

try:
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
    from cryptography.x509.oid import NameOID
except ImportError:
    ec = None

FILE = pathlib.Path(__file__).with_name("own.jsonl")
LINES = []

NOW = 1_767_225_600  # 2026-01-01T00:00:00Z
BODY = '{"store":"Möwe & Söhne","order":9007199254740993,"lines":[1, 2]}\r\n'.encode()
URL = "https://hooks.example.com/in/store-7?v=2&x=%2F"


def hexed(raw):
    return raw.hex()


def b64(raw):
    return base64.b64encode(raw).decode()


def b64url(raw):
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def text_key(secret):
    return secret.encode()


def whsec_key(secret):
    return base64.b64decode(secret.removeprefix("whsec_"))


def rfc3339(seconds):
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.123456789Z")


class Sender:
    """One provider. `text(r)` is the signed text, `write(sig, r)` the headers it sends."""

    def __init__(self, name, text, write, alg="sha256", enc=hexed, key=text_key, secret=None, other=None,
                 plain=False, old=None, future=None, body=BODY, covers="body"):
        self.name, self.text, self.write, self.alg, self.enc, self.key = name, text, write, alg, enc, key
        self.secret = secret or "own-secret-of-" + name
        self.other = other or "another-secret-of-" + name
        self.plain, self.old, self.future, self.body, self.covers = plain, old, future, body, covers

    def sign(self, request, secret):
        text = self.text(request, secret)
        if self.plain:
            return hashlib.new(self.alg, text).digest()
        return hmac.new(self.key(secret), text, self.alg).digest()

    def headers(self, request, secret):
        return self.write(self.enc(self.sign(request, secret)), request)


class PublicSender(Sender):
    """A provider that signs with a private key; its secrets are the public halves of `keys`."""

    def __init__(self, name, text, write, make_key, sign_with, show, **more):
        super().__init__(name, text, write, **more)
        if ec is None:
            return
        self.keys = {show(key): key for key in (make_key(name + str(n)) for n in range(3))}
        self.secret, self.other, self.stranger = self.keys
        self.sign_with = sign_with

    def sign(self, request, secret):
        return self.sign_with(self.keys[secret or self.stranger], self.text(request, secret))


def seeded(seed):
    return random.Random("fairlane " + seed)


def ed25519_key(seed):
    return ed25519.Ed25519PrivateKey.from_private_bytes(seeded(seed).randbytes(32))


def ed25519_sign(key, text):
    return key.sign(text)


def ed25519_raw(key):
    return key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def p256_key(seed):
    return ec.derive_private_key(seeded(seed).getrandbits(255) + 1, ec.SECP256R1())


def p256_sign(key, text):
    return key.sign(text, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))


def p256_sign_sha1(key, text):
    return key.sign(text, ec.ECDSA(hashes.SHA1(), deterministic_signing=True))


def envelope(raw):
    inner = {"alg": "ecdsa", "kid": "b2f6c6a0-own", "signature": b64(raw), "digest": "SHA1"}
    return b64(json.dumps(inner, separators=(",", ":")).encode())


def rsa_key(seed):
    numbers = seeded(seed)
    p, q, e = prime(numbers), prime(numbers), 65537
    d = pow(e, -1, (p - 1) * (q - 1))
    public = rsa.RSAPublicNumbers(e, p * q)
    return rsa.RSAPrivateNumbers(p, q, d, d % (p - 1), d % (q - 1), pow(q, -1, p), public).private_key()


def prime(numbers):
    """A probable prime of 1024 bits, its two highest bits set (Miller and Rabin)."""
    while True:
        n = numbers.getrandbits(1024) | 3 << 1022 | 1
        if all(n % small for small in (3, 5, 7, 11, 13, 17, 19, 23)) and n % 65537 != 1:
            r = (n - 1 & 1 - n).bit_length() - 1
            if all(probably(n, r, numbers.randrange(2, n - 1)) for _ in range(20)):
                return n


def probably(n, r, base):
    x = pow(base, n - 1 >> r, n)
    if x in (1, n - 1):
        return True
    for _ in range(r - 1):
        x = x * x % n
        if x == n - 1:
            return True
    return False


def rsa_sign(key, text):
    return key.sign(text, padding.PKCS1v15(), hashes.SHA256())


def spki(key):
    return b64(key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo))


def pem(key):
    return key.public_key().public_bytes(serialization.Encoding.PEM,
                                         serialization.PublicFormat.SubjectPublicKeyInfo).decode()


def stamped(signature, stamp):
    return lambda sig, r: [[stamp, str(r["now"])], [signature, sig]]


def request(sender, **changes):
    base = {"body": sender.body, "method": "POST", "url": URL, "now": NOW, "id": "msg_own_1"}
    return {**base, **changes}


def one(header, prefix=""):
    return lambda sig, r: [[header, prefix + sig]]


def body_only(r, secret):
    return r["body"]


def simple(name, header, prefix="", **more):
    return Sender(name, body_only, one(header, prefix), **more)


def dotted(stamp):
    return lambda r, secret: stamp(r["now"]).encode() + b"." + r["body"]


def seconds(now):
    return str(now)


def millis(now):
    return str(now * 1000 + 7)


def paired(header, stamp, ts="t", sig_name="v1", join=","):
    return lambda sig, r: [[header, f"{ts}={stamp(r['now'])}{join}{sig_name}={sig}"]]


def standard(name, lead="webhook", key=whsec_key, secret="whsec_" + b64(b"own standard key, 32 bytes long."),
             other="whsec_" + b64(b"another standard key of 32 bytes")):
    def text(r, secret):
        return f"{r['id']}.{r['now']}.".encode() + r["body"]

    def write(sig, r):
        return [[lead + "-id", r["id"]], [lead + "-timestamp", str(r["now"])], [lead + "-signature", "v1," + sig]]

    return Sender(name, text, write, enc=b64, key=key, secret=secret, other=other, old=300, future=300,
                  covers="body id")


def v0(name, signature, stamp, old=None, future=None):
    return Sender(name, lambda r, secret: f"v0:{r['now']}:".encode() + r["body"],
                  lambda sig, r: [[stamp, str(r["now"])], [signature, "v0=" + sig]], old=old, future=future)


def hubspot_url(url):
    """The address with those escapes undone that HubSpot's documentation lists."""
    for c in ":/?@!$'()*,;":
        url = url.replace(f"%{ord(c):02X}", c)
    return url


HEX_KEY, HEX_OTHER = "00ff10A0" * 8, "01ff10A0" * 8
LINEAR = b'{"type":"Issue","webhookTimestamp":%d,"data":{"webhookTimestamp":1}}'

SENDERS = [
    simple("shopify", "X-Shopify-Hmac-Sha256", enc=b64),
    Sender("stripe", dotted(seconds), paired("Stripe-Signature", seconds), secret="whsec_own+text", old=300),
    simple("github", "X-Hub-Signature-256", "sha256="),
    simple("github-sha1-legacy", "X-Hub-Signature", "sha1=", alg="sha1"),
    v0("slack", "X-Slack-Signature", "X-Slack-Request-Timestamp", old=300, future=300),
    v0("zoom", "x-zm-signature", "x-zm-request-timestamp"),
    standard("standard-webhooks"),
    standard("svix", lead="svix"),
    standard("clerk", lead="svix"),
    standard("resend", lead="svix"),
    standard("openai"),
    standard("gitlab-signing"),
    standard("etsy"),
    standard("replicate"),
    standard("bigcommerce", key=text_key, secret="own client secret", other="another client secret"),
    standard("polar", key=text_key, secret="polar_whs_own", other="polar_whs_another"),
    simple("woocommerce", "X-WC-Webhook-Signature", enc=b64),
    Sender("square", lambda r, secret: r["url"].encode() + r["body"], one("x-square-hmacsha256-signature"), enc=b64,
           covers="body url"),
    simple("squarespace", "Squarespace-Signature", key=bytes.fromhex, secret=HEX_KEY, other=HEX_OTHER),
    simple("aftership", "aftership-hmac-sha256", enc=b64),
    simple("lemon-squeezy", "X-Signature"),
    Sender("shippo", dotted(seconds), paired("Shippo-Auth-Signature", seconds)),
    simple("gitea", "X-Gitea-Signature"),
    simple("bitbucket", "X-Hub-Signature", "sha256="),
    simple("bitbucket-server", "X-Hub-Signature", "sha256="),
    simple("jira", "X-Hub-Signature", "sha256="),
    simple("sentry", "Sentry-Hook-Signature"),
    simple("pagerduty", "X-PagerDuty-Signature", "v1="),
    simple("circleci", "circleci-signature", "v1="),
    Sender("buildkite", dotted(seconds), paired("X-Buildkite-Signature", seconds, "timestamp", "signature")),
    simple("vercel", "x-vercel-signature", alg="sha1"),
    simple("heroku", "Heroku-Webhook-Hmac-SHA256", enc=b64),
    Sender("scalr", lambda r, secret: r["body"] + b"Thu 01 Jan 2026 00:00:00 UTC",
           lambda sig, r: [["Date", "Thu 01 Jan 2026 00:00:00 UTC"], ["X-Signature", sig]], alg="sha1"),
    Sender("linear", body_only, one("Linear-Signature"), body=LINEAR % (NOW * 1000 + 7), old=60, future=60),
    simple("hookdeck", "x-hookdeck-signature", enc=b64),
    simple("convoy-sha512-hex", "X-Convoy-Signature", alg="sha512"),
    simple("convoy-sha512-b64", "X-Convoy-Signature", alg="sha512", enc=b64),
    simple("meta", "X-Hub-Signature-256", "sha256="),
    simple("line", "X-Line-Signature", enc=b64),
    simple("x", "X-Twitter-Webhooks-Signature", "sha256=", enc=b64),
    Sender("twitch", lambda r, secret: r["id"].encode() + rfc3339(r["now"]).encode() + r["body"],
           lambda sig, r: [["Twitch-Eventsub-Message-Id", r["id"]],
                           ["Twitch-Eventsub-Message-Timestamp", rfc3339(r["now"])],
                           ["Twitch-Eventsub-Message-Signature", "sha256=" + sig]], old=600, covers="body id"),
    Sender("zendesk", lambda r, secret: rfc3339(r["now"]).encode() + r["body"],
           lambda sig, r: [["X-Zendesk-Webhook-Signature", sig],
                           ["X-Zendesk-Webhook-Signature-Timestamp", rfc3339(r["now"])]], enc=b64),
    simple("intercom", "X-Hub-Signature", "sha1=", alg="sha1"),
    Sender("hubspot-v1", lambda r, secret: secret.encode() + r["body"], one("X-HubSpot-Signature"), plain=True),
    Sender("hubspot-v2", lambda r, secret: (secret + r["method"] + r["url"]).encode() + r["body"],
           one("X-HubSpot-Signature"), plain=True, covers="body url method"),
    Sender("hubspot-v3",
           lambda r, secret: (r["method"] + hubspot_url(r["url"])).encode() + r["body"] + millis(r["now"]).encode(),
           lambda sig, r: [["X-HubSpot-Signature-v3", sig], ["X-HubSpot-Request-Timestamp", millis(r["now"])]],
           enc=b64, old=300, covers="body url method"),
    simple("typeform", "Typeform-Signature", "sha256=", enc=b64),
    Sender("calendly", dotted(seconds), paired("Calendly-Webhook-Signature", seconds), old=180),
    simple("cal-com", "X-Cal-Signature-256"),
    simple("notion", "X-Notion-Signature", "sha256="),
    simple("airtable", "X-Airtable-Content-MAC", "hmac-sha256=", key=base64.b64decode,
           secret=b64(b"own airtable key"), other=b64(b"another airtable")),
    simple("dropbox", "X-Dropbox-Signature"),
    simple("asana", "X-Hook-Signature"),
    Sender("trello", lambda r, secret: r["body"] + r["url"].encode(), one("x-trello-webhook"), alg="sha1", enc=b64,
           covers="body url"),
    simple("docusign", "X-DocuSign-Signature-2", enc=b64),
    Sender("sanity", dotted(millis), paired("sanity-webhook-signature", millis), enc=b64url),
    simple("pusher", "X-Pusher-Signature"),
    simple("attio", "X-Attio-Signature"),
    simple("jobber", "X-Jobber-Hmac-SHA256", enc=b64),
    Sender("webflow", lambda r, secret: millis(r["now"]).encode() + b":" + r["body"],
           lambda sig, r: [["x-webflow-signature", sig], ["x-webflow-timestamp", millis(r["now"])]],
           old=300, future=300),
    Sender("tiktok", dotted(seconds), paired("TikTok-Signature", seconds, sig_name="s")),
    Sender("paddle", lambda r, secret: f"{r['now']}:".encode() + r["body"],
           paired("Paddle-Signature", seconds, "ts", "h1", ";"), secret="pdl_ntfset_own", old=5),
    simple("razorpay", "X-Razorpay-Signature"),
    simple("paystack", "x-paystack-signature", alg="sha512"),
    simple("mollie", "X-Mollie-Signature", "sha256="),
    simple("gocardless", "Webhook-Signature"),
    simple("coinbase-commerce", "X-CC-Webhook-Signature"),
    simple("xero", "x-xero-signature", enc=b64),
    simple("adyen-header", "HmacSignature", enc=b64, key=bytes.fromhex, secret=HEX_KEY, other=HEX_OTHER),
    Sender("recurly", dotted(millis), lambda sig, r: [["recurly-signature", f"{millis(r['now'])},{sig}"]],
           old=300, future=300),
    Sender("mux", dotted(seconds), paired("Mux-Signature", seconds), old=300),
    Sender("workos", dotted(millis), paired("WorkOS-Signature", millis, join=", "), old=180),
    simple("websub", "X-Hub-Signature", "sha512=", alg="sha512"),
    simple("easypost", "X-Hmac-Signature", "hmac-sha256-hex=", secret="schlüssel-ﬁ-\u00c5",
           key=lambda secret: unicodedata.normalize("NFKD", secret).encode()),
    simple("checkr", "X-Checkr-Signature"),
]

STANDARD = standard("standard-webhooks-ed25519")
PUBLIC = [
    PublicSender("discord", lambda r, secret: str(r["now"]).encode() + r["body"],
                 stamped("X-Signature-Ed25519", "X-Signature-Timestamp"),
                 ed25519_key, ed25519_sign, lambda key: ed25519_raw(key).hex()),
    PublicSender("telnyx", lambda r, secret: f"{r['now']}|".encode() + r["body"],
                 stamped("telnyx-signature-ed25519", "telnyx-timestamp"),
                 ed25519_key, ed25519_sign, lambda key: b64(ed25519_raw(key)), enc=b64, old=300, future=300),
    PublicSender("standard-webhooks-ed25519", STANDARD.text,
                 lambda sig, r: [[n, v.replace("v1,", "v1a,")] for n, v in STANDARD.write(sig, r)],
                 ed25519_key, ed25519_sign, lambda key: "whpk_" + b64(ed25519_raw(key)), enc=b64, old=300, future=300,
                 covers="body id"),
    PublicSender("sendgrid", lambda r, secret: str(r["now"]).encode() + r["body"],
                 stamped("X-Twilio-Email-Event-Webhook-Signature", "X-Twilio-Email-Event-Webhook-Timestamp"),
                 p256_key, p256_sign, spki, enc=b64),
    PublicSender("ebay", body_only, one("X-EBAY-SIGNATURE"), p256_key, p256_sign_sha1, spki, enc=envelope),
    PublicSender("wise", body_only, one("X-Signature-SHA256"), rsa_key, rsa_sign, pem, enc=b64),
]

TOKENS = {
    "gitlab-token": "X-Gitlab-Token",
    "telegram": "X-Telegram-Bot-Api-Secret-Token",
    "okta": "Authorization",
    "google-channel": "X-Goog-Channel-Token",
    "flutterwave-v3": "verif-hash",
}
BASICS = ["postmark", "chargebee"]


def line(name, case, expected, headers, secrets, r=None, **more):
    r = r or {"body": BODY, "method": "POST", "url": URL, "now": NOW}
    fields = {"id": f"own-{name}/{case}", "provider": name, "scheme": name, "kind": "delivery", "expected": expected,
              "method": r["method"], "url": r["url"], "headers": headers,
              "body_b64": base64.b64encode(r["body"]).decode(), "secrets": secrets, "now": r["now"], **more}
    LINES.append(json.dumps(fields, ensure_ascii=False))


def change_last(headers, change):
    """The same headers, the one with the signature changed: it is the longest value."""
    at = max(range(len(headers)), key=lambda i: len(headers[i][1]))
    return [[n, change(v) if i == at else v] for i, (n, v) in enumerate(headers)]


def swap(value):
    """Another character of the same alphabet in the middle of the signature."""
    at = len(value) - 12
    return value[:at] + ("0" if value[at] != "0" else "1") + value[at + 1:]


def signed(sender):
    r = request(sender)
    good, secret = sender.headers(r, sender.secret), sender.secret

    def emit(case, expected, headers=good, secrets=(secret,), r=r, **more):
        line(sender.name, case, expected, headers, list(secrets), r, **more)

    emit("right", "valid")
    for case, body in [("empty-body", b""), ("binary-body", bytes(range(256)))]:
        if sender.name != "linear":
            emit(case, "valid", sender.headers(request(sender, body=body), secret), r=request(sender, body=body))
    emit("second-secret", "valid", secrets=[sender.other, secret])
    emit("names-in-upper-case", "valid", [[n.upper(), v] for n, v in good])
    emit("other-secret", "invalid", secrets=[sender.other])
    emit("body-changed", "invalid", r=request(sender, body=sender.body.replace(b"1", b"2", 1)))
    emit("body-trimmed", "invalid", r=request(sender, body=sender.body[:-1]))
    emit("signature-changed", "invalid", change_last(good, swap))
    emit("signature-cut", "invalid", change_last(good, lambda v: v[:-4]))
    emit("signature-longer", "invalid", change_last(good, lambda v: v.rstrip("=") + "0000"))
    for name, _ in good:
        emit("without-" + name.lower(), "invalid", [h for h in good if h[0] != name])
        emit("empty-" + name.lower(), "invalid", [[n, "" if n == name else v] for n, v in good])
    if sender.name != "docusign":  # whose headers may be several
        emit("signature-twice-differing", "invalid", good + change_last(good, swap))
    emit("no-secret-of-ours", "invalid", sender.headers(r, ""))
    if "url" in sender.covers:
        emit("other-host", "invalid", r=request(sender, url=URL.replace("hooks.", "proxy.")))
        undone = "valid" if sender.name == "hubspot-v3" else "invalid"
        emit("query-decoded", undone, r=request(sender, url=URL.replace("%2F", "/")))
    if "method" in sender.covers:
        emit("other-method", "invalid", r=request(sender, method="PUT"))
    if "id" in sender.covers.split():
        emit("other-id", "invalid", [[n, v.replace("own_1", "own_2")] for n, v in good])
    if sender.old:
        emit("just-in-time", "valid", r=request(sender, now=NOW + sender.old - 1))
        emit("stale", "invalid", r=request(sender, now=NOW + sender.old + 2))
        emit("stale-by-years", "invalid", r=request(sender, now=NOW + 10 ** 8))
        emit("longer-tolerance", "valid", r=request(sender, now=NOW + sender.old + 2), tolerance_s=sender.old + 60)
        expected = "invalid" if sender.future else "valid"
        ahead = sender.future or 10 ** 6
        emit("from-the-future", expected, r=request(sender, now=NOW - ahead - 2))
    if sender.name == "linear":
        for case, body in [("no-time", b"{}"), ("time-is-text", b'{"webhookTimestamp":"%d"}' % (NOW * 1000)),
                           ("not-json", b"x"), ("time-is-float", b'{"webhookTimestamp":%d.5}' % (NOW * 1000))]:
            emit(case, "invalid", sender.headers(request(sender, body=body), secret), r=request(sender, body=body))


def shared_word(name, header):
    secret = "own-Token-of-" + name
    for case, expected, headers in [
        ("right", "valid", [[header, secret]]),
        ("other-token", "invalid", [[header, "another-token"]]),
        ("other-case", "invalid", [[header, secret.lower()]]),
        ("only-its-beginning", "invalid", [[header, secret[:-1]]]),
        ("longer", "invalid", [[header, secret + "x"]]),
        ("missing", "invalid", []),
        ("empty", "invalid", [[header, ""]]),
        ("twice-differing", "invalid", [[header, secret], [header, "x"]]),
    ]:
        line(name, case, expected, headers, [secret])
    line(name, "second-secret", "valid", [[header, secret]], ["another", secret])


def basic(name):
    def value(text):
        return [["Authorization", "Basic " + b64(text.encode())]]

    secret = "own-user:pass:with:colons"
    for case, expected, headers in [
        ("right", "valid", value(secret)),
        ("scheme-in-lower-case", "valid", [["authorization", value(secret)[0][1].replace("Basic", "basic")]]),
        ("other-password", "invalid", value("own-user:pass")),
        ("other-user", "invalid", value("own-use:r:pass:with:colons")),
        ("no-colon", "invalid", value("own-user")),
        ("not-base64", "invalid", [["Authorization", "Basic " + secret]]),
        ("other-scheme", "invalid", [["Authorization", value(secret)[0][1].replace("Basic", "Bearer")]]),
        ("missing", "invalid", []),
        ("empty", "invalid", [["Authorization", ""]]),
    ]:
        line(name, case, expected, headers, [secret])


FORM_TYPE = ["Content-Type", "application/x-www-form-urlencoded"]
# A name that is another's beginning, an empty value, a repeated pair, letters of two bytes, both ways to write a blank.
FIELDS = [("To", "+18005551212"), ("Body", "Möwe & Söhne = 1"), ("BodyX", "a b"), ("AccountSid", "AC1"), ("Empty", ""),
          ("To", "+18005551212"), ("a", "2"), ("B", "1")]


def form_body(fields=FIELDS):
    return urllib.parse.urlencode(fields).encode()


def joined(fields):
    return "".join(k + v for k, v in sorted(fields))


def twilio_text(url, fields):
    return url + joined(set(fields))


def mandrill_text(url, fields):
    return url + joined(fields)


def plivo_text(url, fields):
    base, _, query = url.partition("?")
    query = "&".join(f"{k}={v}" for k, v in sorted(urllib.parse.parse_qsl(query, keep_blank_values=True)))
    head = base + ("?" if query or fields else "") + query + ("." if query and fields else "")
    return head + joined(fields) + ".nonce-1"


def form(name, header, alg, text, extra=()):
    secret, other = "own-token-of-" + name, "another-token-of-" + name

    def headers(url, fields, key=secret):
        sig = b64(hmac.new(key.encode(), text(url, fields).encode(), alg).digest())
        return [[header, sig], FORM_TYPE, *extra]

    def emit(case, expected, lines, body=form_body(), url=URL, secrets=(secret,)):
        line(name, case, expected, lines, list(secrets), {"body": body, "method": "POST", "url": url, "now": NOW})

    good = headers(URL, FIELDS)
    emit("right", "valid", good)
    emit("second-secret", "valid", good, secrets=[other, secret])
    emit("names-in-upper-case", "valid", [[n.upper(), v] for n, v in good])
    emit("other-order", "valid", good, form_body(FIELDS[::-1]))
    emit("empty", "valid", headers(URL, []), b"")
    emit("blanks-as-percent-20", "valid", good, form_body().replace(b"+", b"%20"))
    emit("other-secret", "invalid", good, secrets=[other])
    emit("no-secret-of-ours", "invalid", headers(URL, FIELDS, ""))
    emit("field-added", "invalid", good, form_body() + b"&Extra=1")
    emit("field-dropped", "invalid", good, form_body(FIELDS[1:-1]))
    emit("value-changed", "invalid", good, form_body().replace(b"AC1", b"AC2"))
    emit("body-dropped", "invalid", good, b"")
    emit("query-changed", "invalid", good, url=URL.replace("v=2", "v=3"))
    emit("query-dropped", "invalid", good, url=URL.partition("?")[0])
    emit("other-host", "invalid", good, url=URL.replace("hooks.", "proxy."))
    emit("http", "invalid", good, url=URL.replace("https:", "http:"))
    emit("signature-changed", "invalid", [[header, swap(good[0][1])], *good[1:]])
    emit("signature-cut", "invalid", [[header, good[0][1][:-4]], *good[1:]])
    emit("without-signature", "invalid", good[1:])
    emit("empty-signature", "invalid", [[header, ""], *good[1:]])
    emit("signature-twice-differing", "invalid", [[header, swap(good[0][1])], *good])
    emit("hex", "invalid", [[header, base64.b64decode(good[0][1]).hex()], *good[1:]])
    emit("too-many-fields", "invalid", headers(URL, [("a", "1")] * 2000), b"a=1&" * 2000)
    return emit, headers, good


def twilio():
    emit, headers, good = form("twilio", "X-Twilio-Signature", "sha1", twilio_text)
    host = "https://hooks.example.com"
    for case, ours, theirs in [("signed-with-443", host, host + ":443"), ("seen-with-443", host + ":443", host),
                               ("other-port-left-out", host + ":8443", host), ("other-port", host + ":8443", host + ":8443"),
                               ("credentials", "https://u:80@hooks.example.com", "https://u:80@hooks.example.com:443")]:
        emit(case, "valid", headers(URL.replace(host, theirs), FIELDS), url=URL.replace(host, ours))
    emit("other-scheme-s-port", "invalid", headers(URL.replace(host, host + ":80"), FIELDS))
    emit("credentials-left-out", "invalid", good, url=URL.replace("//", "//u:p@"))
    emit("repeats-dropped", "valid", good, form_body(FIELDS[:5] + FIELDS[6:]))
    emit("unsorted", "invalid", [[n, b64(hmac.new(b"own-token-of-twilio", (URL + "".join(k + v for k, v in FIELDS)).encode(),
                                                   "sha1").digest()) if n.startswith("X") else v] for n, v in good])
    digest = hashlib.sha256(BODY).hexdigest()
    url, json_type = f"{URL}&bodySHA256={digest}", ["Content-Type", "application/json"]
    json_headers = [headers(url, [])[0], json_type]
    emit("json", "valid", json_headers, BODY, url)
    emit("json-body-changed", "invalid", json_headers, BODY + b" ", url)
    emit("json-without-hash", "invalid", [headers(URL, [])[0], json_type], BODY, URL)
    emit("json-hash-renewed", "invalid", json_headers, b"{}", f"{URL}&bodySHA256={hashlib.sha256(b'{}').hexdigest()}")
    emit("json-hash-is-no-hash", "invalid", [headers(URL + "&bodySHA256=x", [])[0], json_type], BODY, URL + "&bodySHA256=x")
    emit("no-content-type", "invalid", good[:1])


def mandrill():
    emit, headers, good = form("mandrill", "X-Mandrill-Signature", "sha1", mandrill_text)
    emit("repeats-dropped", "invalid", good, form_body(FIELDS[:5] + FIELDS[6:]))
    emit("signed-with-443", "invalid", headers(URL.replace(".com", ".com:443"), FIELDS))


def plivo():
    nonce = ["X-Plivo-Signature-V3-Nonce", "nonce-1"]
    emit, headers, good = form("plivo", "X-Plivo-Signature-V3", "sha256", plivo_text, [nonce])
    bare = URL.partition("?")[0]
    emit("no-query", "valid", headers(bare, FIELDS), url=bare)
    emit("neither-query-nor-fields", "valid", headers(bare, []), b"", bare)
    emit("several-signatures", "valid", [[good[0][0], "AAAA, " + good[0][1]], *good[1:]])
    emit("too-many-signatures", "invalid", [[good[0][0], "AAAA," * 8 + good[0][1]], *good[1:]])
    emit("other-nonce", "invalid", [*good[:2], [nonce[0], "nonce-2"]])
    emit("without-nonce", "invalid", good[:2])


def braintree():
    public, private = "own_public_key", "own:private:key"
    payload = base64.encodebytes(b"<notification><kind>check</kind></notification>" * 4).decode()

    def sig(text, key=private):
        return hmac.new(hashlib.sha1(key.encode()).digest(), text.encode(), "sha1").hexdigest()

    def emit(case, expected, signature, text=payload, secrets=(f"{public}:{private}",), fields=None):
        fields = fields or [("bt_signature", signature), ("bt_payload", text)]
        r = {"body": form_body(fields), "method": "POST", "url": URL, "now": NOW}
        line("braintree", case, expected, [FORM_TYPE], list(secrets), r)

    good = f"{public}|{sig(payload)}"
    emit("right", "valid", good)
    emit("signed-with-a-newline", "valid", f"{public}|{sig(payload)}", payload[:-1])
    emit("second-secret", "valid", good, secrets=["other_public:x", f"{public}:{private}"])
    emit("second-signature", "valid", f"other_public|{'0' * 40}&{public}|{'0' * 40}&{good}")
    emit("other-private-key", "invalid", good, secrets=[f"{public}:own"])
    emit("other-public-key", "invalid", good.replace("own_", "our_"))
    emit("longer-public-key", "invalid", good.replace("_key|", "_key2|"))
    emit("payload-changed", "invalid", good, payload.replace("P", "Q", 1))
    emit("signature-changed", "invalid", swap(good))
    emit("signature-cut", "invalid", good[:-2])
    emit("signed-with-the-key-itself", "invalid",
         f"{public}|{hmac.new(private.encode(), payload.encode(), 'sha1').hexdigest()}")
    emit("illegal-characters", "invalid", f"{public}|{sig('<x/>')}", "<x/>")
    emit("blank-in-payload", "invalid", f"{public}|{sig('a b')}", "a b")
    emit("empty-payload", "invalid", f"{public}|{sig('')}", "")
    emit("no-signature", "invalid", "", fields=[("bt_payload", payload)])
    emit("no-payload", "invalid", "", fields=[("bt_signature", good)])
    emit("no-pair", "invalid", sig(payload))
    emit("too-many-signatures", "invalid", f"a|{'0' * 40}&" * 64 + good)
    emit("secret-is-no-pair", "invalid", good, secrets=[private.replace(":", "-")])


def emitter(name, headers, body=BODY, secrets=(), method="POST", **more):
    """Writes lines of one provider; what a case does not change is as given here."""
    def emit(case, expected, headers=headers, body=body, secrets=secrets, url=URL, now=NOW, method=method, **fields):
        r = {"body": body, "method": method, "url": url, "now": now}
        line(name, case, expected, headers, list(secrets), r, **{**more, **fields})
    return emit


def without(headers, name):
    return [h for h in headers if h[0] != name]


def replaced(headers, name, change):
    return [[n, change(v) if n == name else v] for n, v in headers]


def box():
    first, second = "own-primary-key", "own-secondary-key"
    stamp = datetime.fromtimestamp(NOW, timezone(timedelta(hours=-7))).isoformat()

    def sig(key, body=BODY, stamp=stamp):
        return b64(hmac.new(key.encode(), body + stamp.encode(), "sha256").digest())

    def headers(primary=sig(first), secondary=sig(second)):
        return [["box-delivery-timestamp", stamp], ["box-signature-version", "1"],
                ["box-signature-algorithm", "HmacSHA256"], ["box-signature-primary", primary],
                ["box-signature-secondary", secondary]]

    good = headers()
    emit = emitter("box", good, secrets=[first, second])
    emit("right", "valid")
    emit("empty-body", "valid", headers(sig(first, b""), sig(second, b"")), b"")
    emit("only-primary", "valid", without(good, "box-signature-secondary"), secrets=[first, ""])
    emit("only-secondary", "valid", without(good, "box-signature-primary"), secrets=["", second])
    emit("one-key-configured", "valid", secrets=[first])
    emit("primary-changed", "valid", headers("AAAA" + sig(first)[4:]))
    emit("secondary-is-no-base64", "valid", headers(secondary="%"))
    emit("both-changed", "invalid", headers(swap(sig(first)), swap(sig(second))))
    emit("headers-swapped", "invalid", headers(sig(second), sig(first)))
    emit("keys-swapped", "invalid", secrets=[second, first])
    emit("key-of-the-missing-header", "invalid", without(good, "box-signature-primary"), secrets=[first, ""])
    emit("no-signature", "invalid", good[:3])
    emit("empty-signatures", "invalid", headers("", ""))
    emit("body-changed", "invalid", body=BODY + b" ")
    emit("other-keys", "invalid", secrets=["x", "y"])
    emit("no-keys", "invalid", secrets=["", ""])
    emit("three-keys", "invalid", secrets=[first, second, "third"])
    for name, other in [("box-signature-version", "2"), ("box-signature-algorithm", "HmacSHA1")]:
        emit("other-" + name, "invalid", replaced(good, name, lambda _: other))
        emit("without-" + name, "invalid", without(good, name))
    emit("same-moment-other-text", "invalid", replaced(good, "box-delivery-timestamp",
                                                       lambda _: rfc3339(NOW).replace(".123456789", "")))
    emit("without-time", "invalid", good[1:])
    emit("just-in-time", "valid", now=NOW + 599)
    emit("stale", "invalid", now=NOW + 602)
    emit("from-the-future", "valid", now=NOW - 10 ** 6)


def contentful():
    secret, listed = "own-contentful-secret", "X-Topic,x-contentful-signed-headers,x-contentful-timestamp"
    names = [["X-Topic", "Entry.publish"], ["x-contentful-timestamp", millis(NOW)]]

    def headers(listed=listed, url=URL, body=BODY, method="POST", key=secret, names=names):
        sent = [*names, ["x-contentful-signed-headers", listed]]
        values = {n.lower(): v for n, v in sent}
        path, _, query = url.removeprefix("https://hooks.example.com").partition("?")
        target = urllib.parse.quote(path, safe="/~!@#$&*()=:,;?+'-_.")
        if query:
            target += "?" + urllib.parse.quote(query, safe="-_.!~*'()").replace("%", "%25")
        lines = ";".join(n.lower() + ":" + values[n.lower()] for n in listed.split(","))
        text = f"{method}\n{target}\n{lines}\n".encode() + body
        return [*sent, ["x-contentful-signature", hmac.new(key.encode(), text, "sha256").hexdigest()]]

    good = headers()
    emit = emitter("contentful", good, secrets=[secret])
    emit("right", "valid")
    emit("second-secret", "valid", secrets=["other", secret])
    emit("names-in-upper-case", "valid", [[n.upper(), v] for n, v in good])
    emit("empty-body", "valid", headers(body=b""), b"")
    emit("binary-body", "valid", headers(body=bytes(range(256))), bytes(range(256)))
    bare = "https://hooks.example.com/in/a;b=c/é"
    emit("no-query", "valid", headers(url=bare), url=bare)
    emit("other-host", "valid", url=URL.replace("hooks.", "proxy."))
    emit("unlisted-header-added", "valid", [*good, ["X-Other", "1"]])
    emit("other-secret", "invalid", secrets=["other"])
    emit("body-changed", "invalid", body=BODY + b" ")
    emit("other-path", "invalid", url=URL.replace("/in/", "/out/"))
    emit("query-decoded", "invalid", url=URL.replace("%2F", "/"))
    emit("other-method", "invalid", method="PUT")
    emit("listed-header-changed", "invalid", replaced(good, "X-Topic", lambda _: "Entry.delete"))
    emit("list-in-other-order", "invalid", replaced(good, "x-contentful-signed-headers",
                                                    lambda _: ",".join(listed.split(",")[::-1])))
    for name, _ in good:
        emit("without-" + name.lower(), "invalid", without(good, name))
        emit("empty-" + name.lower(), "invalid", replaced(good, name, lambda _: ""))
    emit("time-not-listed", "invalid", headers("x-topic,x-contentful-signed-headers"))
    emit("list-not-listed", "invalid", headers("x-topic,x-contentful-timestamp"))
    emit("signature-changed", "invalid", replaced(good, "x-contentful-signature", swap))
    emit("just-in-time", "valid", now=NOW + 29)
    emit("stale", "invalid", now=NOW + 32)
    emit("longer-tolerance", "valid", now=NOW + 59, tolerance_s=60)
    emit("from-the-future", "valid", now=NOW - 10 ** 6)


def mailgun():
    secret, token = "own-mailgun-signing-key", "a8ce0edb2dd8301dee6c2405235584e45aa91d1e9f979f3de0"

    def body(key=secret, stamp=str(NOW), token=token, event="opened", **changes):
        sig = hmac.new(key.encode(), f"{stamp}{token}".encode(), "sha256").hexdigest()
        signature = {"timestamp": stamp, "token": token, "signature": sig, **changes}
        return json.dumps({"signature": signature, "event-data": {"event": event, "id": "x"}}).encode()

    emit = emitter("mailgun", [["Content-Type", "application/json"]], body(), [secret])
    emit("right", "valid")
    emit("time-as-number", "valid", body=body(stamp=NOW))
    emit("second-secret", "valid", secrets=["other", secret])
    emit("event-data-changed", "valid", body=body(event="delivered"), note="the event's data are not signed")
    emit("other-secret", "invalid", secrets=["other"])
    emit("other-time", "invalid", body=body(timestamp=str(NOW + 1)))
    emit("other-token", "invalid", body=body(token="b" + token[1:], **{"signature": "0" * 64}))
    emit("token-and-time-cut-elsewhere", "invalid", body=body(stamp=str(NOW) + "a", token=token[1:]), now=NOW,
         tolerance_s=300)
    emit("signature-cut", "invalid", body=body(signature="00"))
    emit("signature-missing", "invalid", body=body(signature=""))
    emit("signature-null", "invalid", body=body(signature=None))
    emit("signature-is-a-list", "invalid", body=body(signature=[secret]))
    emit("token-is-an-object", "invalid", body=body(token={}))
    emit("no-members", "invalid", body=b"{}")
    emit("not-json", "invalid", body=b"signature=1")
    emit("just-in-time", "valid", now=NOW + 299, tolerance_s=300)
    emit("stale", "invalid", now=NOW + 302, tolerance_s=300)
    emit("from-the-future", "invalid", now=NOW - 302, tolerance_s=300)


def adyen_payload():
    secret, old = HEX_KEY, HEX_OTHER

    def item(key=secret, sign=True, **changes):
        data = {"pspReference": "7914073381342284", "originalReference": "", "merchantAccountCode": "OwnMerchant",
                "merchantReference": "Möwe:1\\2", "amount": {"value": 1130, "currency": "EUR"},
                "eventCode": "AUTHORISATION", "success": "true", "eventDate": "2026-01-01T00:00:00Z", **changes}
        amount = data.get("amount") or {}
        parts = [data.get("pspReference"), data.get("originalReference"), data.get("merchantAccountCode"),
                 data.get("merchantReference"), amount.get("value"), amount.get("currency"), data.get("eventCode"),
                 data.get("success")]
        text = ":".join("" if part is None else str(part) for part in parts)
        sig = b64(hmac.new(bytes.fromhex(key), text.encode(), "sha256").digest())
        return {**data, "additionalData": {"hmacSignature": sig}} if sign else data

    def body(*items, **json_style):
        items = [{"NotificationRequestItem": one} for one in items]
        return json.dumps({"live": "false", "notificationItems": items}, **json_style).encode()

    good = item()
    emit = emitter("adyen-payload", [["Content-Type", "application/json"]], body(good), [secret])
    emit("right", "valid")
    emit("second-secret", "valid", secrets=[old, secret])
    emit("spaced-and-not-escaped", "valid", body=body(good, indent=1, ensure_ascii=False))
    emit("two-items", "valid", body=body(good, item(pspReference="2", success="false")))
    emit("two-items-by-two-secrets", "valid", body=body(good, item(old)), secrets=[secret, old])
    emit("members-missing-and-null", "valid", body=body(item(originalReference=None, amount=None)))
    emit("unsigned-member-changed", "valid", body=body({**good, "eventDate": "x"}), note="not among the signed members")
    emit("other-secret", "invalid", secrets=[old])
    for name, value in [("pspReference", "1"), ("originalReference", "1"), ("merchantAccountCode", "Other"),
                        ("merchantReference", ""), ("amount", {"value": 1131, "currency": "EUR"}),
                        ("amount", {"value": 1130, "currency": "USD"}), ("eventCode", "REFUND"), ("success", "false")]:
        case = name if not isinstance(value, dict) else f"amount-{value['value']}-{value['currency']}"
        emit("other-" + case, "invalid", body=body({**good, name: value}))
    emit("second-item-wrong", "invalid", body=body(good, {**good, "success": "false"}))
    emit("second-item-unsigned", "invalid", body=body(good, item(sign=False)))
    emit("no-items", "invalid", body=body())
    emit("no-list", "invalid", body=b"{}")
    emit("no-envelope", "invalid", body=json.dumps({"notificationItems": [good]}).encode())
    emit("signature-missing", "invalid", body=body(item(sign=False)))
    emit("signature-empty", "invalid", body=body({**good, "additionalData": {"hmacSignature": ""}}))
    emit("member-is-an-object", "invalid", body=body({**good, "pspReference": {"a": 1}}))
    emit("success-twice", "invalid", body=body(good).replace(b'"success": "true"', b'"success": "true", "success": "false"'))
    emit("not-json", "invalid", body=b"x")
    emit("too-many-items", "invalid", body=body(*[good] * 1001))


def microsoft_graph():
    secret = "own-client-state"

    def body(*states):
        return json.dumps({"value": [{"clientState": s, "tenantId": "t", "changeType": "updated"} for s in states]}).encode()

    emit = emitter("microsoft-graph", [["Content-Type", "application/json"]], body(secret), [secret])
    emit("right", "valid")
    emit("several", "valid", body=body(secret, secret))
    emit("second-secret", "valid", secrets=["other", secret])
    emit("other-state", "invalid", body=body("other"))
    emit("one-of-several-differs", "invalid", body=body(secret, "other"))
    emit("only-its-beginning", "invalid", body=body(secret[:-1]))
    emit("other-case", "invalid", body=body(secret.upper()))
    emit("state-missing", "invalid", body=b'{"value":[{"tenantId":"t"}]}')
    emit("state-null", "invalid", body=body(None))
    emit("no-notification", "invalid", body=body())
    emit("not-json", "invalid", body=b"")


HS = {"HS256": "sha256", "HS384": "sha384", "HS512": "sha512", "HS1": "sha1"}


def token(claims, secret, alg="HS256", head=None):
    part = lambda value: b64url(json.dumps(value).encode())
    text = part(head or {"alg": alg, "typ": "JWT"}) + "." + part(claims)
    return text + "." + b64url(hmac.new(secret.encode(), text.encode(), HS.get(alg, "sha256")).digest())


def hashed(data):
    return hashlib.sha256(data if isinstance(data, bytes) else data.encode()).hexdigest()


def tokens(name, header, claims):
    """Cases that every token has; gives what further ones need."""
    secret, other = "own-secret-of-" + name, "another-secret-of-" + name
    good = token(claims, secret)
    emit = emitter(name, [[header, good]], secrets=[secret])
    send = lambda case, expected, value, **more: emit(case, expected, [[header, value]], **more)
    head, body, sig = good.split(".")
    emit("right", "valid")
    emit("second-secret", "valid", secrets=[other, secret])
    emit("names-in-upper-case", "valid", [[header.upper(), good]])
    send("further-claims", "valid", token({**claims, "x": [1, {"y": None}]}, secret))
    emit("other-secret", "invalid", secrets=[other])
    send("none", "invalid", token(claims, secret, "none"))
    send("none-unsigned", "invalid", token(claims, secret, "none").rpartition(".")[0] + ".")
    send("sha1", "invalid", token(claims, secret, "HS1"))
    send("rs256", "invalid", token(claims, secret, "RS256"))
    send("no-algorithm", "invalid", token(claims, secret, head={"typ": "JWT"}))
    send("critical-extension", "invalid", token(claims, secret, head={"alg": "HS256", "crit": ["x"], "x": 1}))
    send("claims-replaced", "invalid", f"{head}.{b64url(json.dumps({**claims, 'x': 1}).encode())}.{sig}")
    send("signature-changed", "invalid", swap(good))
    send("signature-cut", "invalid", good[:-4])
    send("padded", "invalid", good + "=")
    send("two-parts", "invalid", f"{head}.{body}")
    send("four-parts", "invalid", good + "." + sig)
    send("no-token", "invalid", secret)
    send("claims-are-a-list", "invalid", token([claims], secret))
    send("empty", "invalid", "")
    emit("missing", "invalid", [])
    emit("twice-differing", "invalid", [[header, good], [header, swap(good)]])
    return emit, send, secret


def messagebird():
    claims = {"iss": "MessageBird", "jti": "own-1", "nbf": NOW, "exp": NOW + 60, "url_hash": hashed(URL),
              "payload_hash": hashed(BODY)}
    emit, send, secret = tokens("messagebird-jwt", "MessageBird-Signature-JWT", claims)
    bare = {n: v for n, v in claims.items() if n != "payload_hash"}
    for alg in ("HS384", "HS512"):
        send(alg, "valid", token(claims, secret, alg))
    send("no-body", "valid", token(bare, secret), body=b"")
    send("body-not-hashed", "invalid", token(bare, secret))
    send("empty-body-hashed", "invalid", token({**bare, "payload_hash": hashed(b"")}, secret), body=b"")
    emit("body-changed", "invalid", body=BODY + b" ")
    emit("body-dropped", "invalid", body=b"")
    emit("other-host", "invalid", url=URL.replace("hooks.", "proxy."))
    emit("query-changed", "invalid", url=URL.replace("v=2", "v=3"))
    for name in claims:
        send("without-" + name, "valid" if name == "nbf" else "invalid",
             token({n: v for n, v in claims.items() if n != name}, secret))
    send("other-issuer", "invalid", token({**claims, "iss": "messagebird"}, secret))
    send("no-time", "invalid", token({**claims, "exp": "soon"}, secret))
    emit("slack", "valid", now=NOW - 1)
    emit("early", "invalid", now=NOW - 2)
    emit("last-moment", "valid", now=NOW + 61)
    emit("late", "invalid", now=NOW + 62)


def netlify():
    claims = {"iss": "netlify", "sha256": hashed(BODY)}
    emit, send, secret = tokens("netlify", "X-Webhook-Signature", claims)
    send("empty-body", "valid", token({**claims, "sha256": hashed(b"")}, secret), body=b"")
    emit("body-changed", "invalid", body=BODY + b" ")
    emit("body-dropped", "invalid", body=b"")
    send("no-hash", "invalid", token({"iss": "netlify"}, secret))
    send("no-hash-empty-body", "invalid", token({"iss": "netlify"}, secret), body=b"")
    send("no-issuer", "invalid", token({"sha256": hashed(BODY)}, secret))
    send("other-issuer", "invalid", token({**claims, "iss": "Netlify"}, secret))
    send("ended", "invalid", token({**claims, "exp": NOW - 2}, secret))
    send("hs512", "invalid", token(claims, secret, "HS512"))


def monday():
    claims = {"accountId": 1, "userId": 2, "aud": URL, "iat": NOW, "exp": NOW + 300}
    emit, send, secret = tokens("monday", "Authorization", claims)
    emit("body-changed", "valid", body=b"{}", note="the token does not cover the body")
    send("no-audience", "valid", token({"exp": NOW + 300}, secret))
    send("other-audience", "invalid", token({**claims, "aud": "https://other.example.com/"}, secret))
    send("audience-is-a-list", "invalid", token({**claims, "aud": ["https://other.example.com/"]}, secret))
    emit("other-address", "invalid", url=URL.replace("hooks.", "proxy."))
    send("without-end", "invalid", token({"aud": URL}, secret))
    emit("last-moment", "valid", now=NOW + 301)
    emit("late", "invalid", now=NOW + 302)
    send("bearer", "invalid", "Bearer " + token(claims, secret))


def certificate(key, names, begins=NOW - 86_400, ends=NOW + 86_400):
    """A certificate that signs itself, as PEM."""
    at = lambda seconds: datetime.fromtimestamp(seconds, timezone.utc)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    alternative = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    made = (x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
            .serial_number(7).not_valid_before(at(begins)).not_valid_after(at(ends)).add_extension(alternative, False))
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


SNS_TOPIC = "arn:aws:sns:eu-central-1:123456789012:orders"
SNS_CERT = "https://sns.eu-central-1.amazonaws.com/SimpleNotificationService-0123456789abcdef0123456789abcdef.pem"


def sns_message(key, version="2", names=None, **more):
    message = {"Type": "Notification", "MessageId": "m-1", "TopicArn": SNS_TOPIC, "Subject": "a \"subject\"",
               "Message": "Möwe\n& Söhne", "Timestamp": "2026-01-01T00:00:00.123Z", "SignatureVersion": version,
               "SigningCertURL": SNS_CERT, **more}
    message = {name: value for name, value in message.items() if value is not None}
    default = ["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"]
    text = "".join(f"{name}\n{message[name]}\n" for name in names or default if name in message)
    hashed_by = {"1": hashes.SHA1()}.get(version, hashes.SHA256())
    message["Signature"] = b64(key.sign(text.encode(), padding.PKCS1v15(), hashed_by))
    return message


def aws_sns():
    if ec is None:
        return LINES.extend(kept("aws-sns"))
    key, other = rsa_key("sns"), rsa_key("sns other")
    pem = certificate(key, ["sns.amazonaws.com"])

    def send(case, expected, message, now=NOW, pem=pem, url=SNS_CERT, **more):
        body = message if isinstance(message, bytes) else json.dumps(message, ensure_ascii=False).encode()
        r = {"body": body, "method": "POST", "url": None, "now": now}
        more = {"topics": [SNS_TOPIC], **more}
        line("aws-sns", case, expected, [], [], r, keys=[{"url": url, "pem": pem}], **more)

    good = sns_message(key)
    send("version-2", "valid", good)
    send("version-1", "valid", sns_message(key, "1"))
    send("without-subject", "valid", sns_message(key, Subject=None))
    confirmation = {"Type": "SubscriptionConfirmation", "Token": "abc", "Subject": None,
                    "SubscribeURL": "https://sns.eu-central-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn="
                    + SNS_TOPIC + "&Token=abc"}
    names = ["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"]
    send("confirmation", "valid", sns_message(key, names=names, **confirmation))
    china = SNS_CERT.replace(".com/", ".com.cn/")
    send("in-china", "valid", sns_message(key, SigningCertURL=china), url=china)
    send("repeated-for-an-hour", "valid", good, now=NOW + 3_900)
    send("unsigned-member-changed", "valid", {**good, "UnsubscribeURL": "https://example.com/"})
    send("other-topic", "invalid", good, topics=[SNS_TOPIC + "-2"])
    send("topic-changed", "invalid", {**good, "TopicArn": SNS_TOPIC + "-2"}, topics=[SNS_TOPIC + "-2"])
    send("other-key", "invalid", sns_message(other))
    send("version-swapped", "invalid", {**good, "SignatureVersion": "1"})
    send("version-3", "invalid", {**good, "SignatureVersion": "3"})
    send("message-changed", "invalid", {**good, "Message": "another"})
    send("subject-added", "invalid", {**sns_message(key, Subject=None), "Subject": "x"})
    send("subject-dropped", "invalid", {name: value for name, value in good.items() if name != "Subject"})
    send("type-changed", "invalid", {**good, "Type": "Other"})
    send("too-old", "invalid", good, now=NOW + 3_902)
    send("to-come", "invalid", good, now=NOW - 301)
    send("certificate-not-yet", "invalid", good, pem=certificate(key, ["sns.amazonaws.com"], begins=NOW + 60))
    send("certificate-ended", "invalid", good, pem=certificate(key, ["sns.amazonaws.com"], ends=NOW - 60))
    send("no-certificate", "invalid", good, pem="<html>")
    for case, url in [("http", SNS_CERT.replace("https", "http")), ("port", SNS_CERT.replace(".com/", ".com:443/")),
                      ("user", SNS_CERT.replace("https://", "https://sns.eu.amazonaws.com@example.com/")),
                      ("host-before", SNS_CERT.replace("//sns", "//x-sns")), ("path", SNS_CERT.replace("/Simple", "/a/Simple")),
                      ("host-behind", SNS_CERT.replace(".com/", ".com.example.com/")), ("query", SNS_CERT + "?x=.pem"),
                      ("region", SNS_CERT.replace("eu-central-1", "example.com/eu")), ("not-pem", SNS_CERT[:-4])]:
        send("certificate-address-" + case, "invalid", sns_message(key, SigningCertURL=url), url=url)
    send("not-fetched", "invalid", good, url=SNS_CERT.replace("0123", "3210"))
    for name in ("Message", "MessageId", "Timestamp", "TopicArn", "Type", "Signature", "SigningCertURL", "SignatureVersion"):
        send("without-" + name.lower(), "invalid", {own: value for own, value in good.items() if own != name})
    send("number-for-text", "invalid", {**good, "MessageId": 1})
    send("not-json", "invalid", b"Hello world")
    send("empty", "invalid", b"")


def paypal():
    if ec is None:
        return LINES.extend(kept("paypal"))
    key, host = rsa_key("paypal"), "messageverificationcerts.paypal.com"
    url, webhook = "https://api.paypal.com/v1/notifications/certs/CERT-360caa42-fca2a594-a5cafa77", "4JH86294D6297924G"
    pem = certificate(key, [host])

    def send(case, expected, secrets=(webhook,), body=BODY, now=NOW, pem=pem, cert_url=url, fetched=None, sent=None,
             signed=webhook, algorithm="SHA256withRSA", drop=None, key=key, signature=None):
        time = "2026-01-01T00:00:00Z"
        text = f"9f1a|{time}|{signed}|{zlib.crc32(BODY)}".encode()
        signature = signature or b64(key.sign(text, padding.PKCS1v15(), hashes.SHA256()))
        headers = [["PAYPAL-TRANSMISSION-ID", "9f1a"], ["PAYPAL-TRANSMISSION-TIME", sent or time],
                   ["PAYPAL-CERT-URL", cert_url], ["PAYPAL-AUTH-ALGO", algorithm], ["PAYPAL-TRANSMISSION-SIG", signature]]
        headers = [header for header in headers if header[0] != drop]
        r = {"body": body, "method": "POST", "url": None, "now": now}
        line("paypal", case, expected, headers, list(secrets), r, keys=[{"url": fetched or cert_url, "pem": pem}])

    send("right", "valid")
    send("second-webhook", "valid", ["other", webhook])
    send("repeated-for-days", "valid", now=NOW + 86_000 )
    sandbox = url.replace("api.", "api.sandbox.")
    send("sandbox", "valid", cert_url=sandbox, pem=certificate(key, [host.replace("certs.", "certs.sandbox.")]))
    send("other-webhook", "invalid", ["other"])
    send("body-changed", "invalid", body=BODY + b" ")
    send("time-changed", "invalid", sent="2026-01-01T00:00:01Z")
    send("no-date", "invalid", sent="yesterday")
    send("too-old", "invalid", now=NOW + 3 * 86_400 + 301, pem=certificate(key, [host], ends=NOW + 9 * 86_400))
    send("to-come", "invalid", now=NOW - 301)
    send("other-key", "invalid", key=rsa_key("paypal other"))
    send("other-name", "invalid", pem=certificate(key, ["example.com"]))
    send("sandbox-for-live", "invalid", pem=certificate(key, [host.replace("certs.", "certs.sandbox.")]))
    send("certificate-ended", "invalid", pem=certificate(key, [host], ends=NOW - 60))
    send("sha1", "invalid", algorithm="SHA1withRSA")
    send("not-base64", "invalid", signature="%%%%")
    send("not-fetched", "invalid", fetched=url + "x")
    for case, cert_url in [("host", url.replace(".com/", ".com.example.com/")), ("http", url.replace("https", "http")),
                           ("other-host", url.replace("api.", "www.")), ("path", url.replace("/certs/", "/certs/../")),
                           ("query", url + "?x=1"), ("user", url.replace("//", "//api.paypal.com@example.com/"))]:
        send("certificate-address-" + case, "invalid", cert_url=cert_url)
    for name in ("ID", "TIME", "SIG"):
        send("without-" + name.lower(), "invalid", drop="PAYPAL-TRANSMISSION-" + name)
    for name in ("CERT-URL", "AUTH-ALGO"):
        send("without-" + name.lower(), "invalid", drop="PAYPAL-" + name)


def kept(name):
    """The lines of a provider as they stand in the file."""
    return [text for text in FILE.read_text().splitlines() if json.loads(text)["scheme"] == name]


def main():
    for sender in SENDERS:
        signed(sender)
    for sender in PUBLIC:
        if ec is None:
            LINES.extend(kept(sender.name))
            print(f"{sender.name}: kept, the package cryptography is missing", file=sys.stderr)
        else:
            signed(sender)
    for name, header in TOKENS.items():
        shared_word(name, header)
    for name in BASICS:
        basic(name)
    for special in (twilio, mandrill, plivo, braintree, box, contentful, mailgun, adyen_payload, microsoft_graph,
                    messagebird, netlify, monday, aws_sns, paypal):
        special()
    FILE.write_text("\n".join(LINES) + "\n")


if __name__ == "__main__":
    sys.exit(main())
