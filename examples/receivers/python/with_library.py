#!/usr/bin/env python3
"""The same receiver, verifying with the package `standardwebhooks` (see requirements.txt).

The package knows the three headers by the names that the Standard Webhooks specification gives them, so ours are handed
over under those. It takes JSON bodies only; for forms and other bytes use receiver.py.
"""

from standardwebhooks import Webhook, WebhookVerificationError

from receiver import Hopeless, NotGenuine, from_environment, serve


def verify_with(secret):
    webhook = Webhook(secret)

    def verify(headers, body):
        mapped = {
            "webhook-id": headers.get("Fairlane-Event-Id", ""),
            "webhook-timestamp": headers.get("Fairlane-Timestamp", ""),
            "webhook-signature": headers.get("Fairlane-Signature", ""),
        }
        try:
            webhook.verify(body, mapped)
        except WebhookVerificationError as error:
            raise NotGenuine(str(error)) from error
        except ValueError as error:
            raise Hopeless(f"the body is not JSON: {error}") from error

    return verify


if __name__ == "__main__":
    secret, ledger = from_environment()
    serve(verify_with(secret), ledger)
