// The same receiver, verifying with the package `standardwebhooks` (see package.json).
//
// The package knows the three headers by the names that the Standard Webhooks specification gives them, so ours are handed
// over under those. It takes JSON bodies only; for forms and other bytes use receiver.mjs.

import { Webhook, WebhookVerificationError } from "standardwebhooks";

import { Hopeless, NotGenuine, serve } from "./receiver.mjs";

serve((secret) => {
  const webhook = new Webhook(secret);
  return (headers, body) => {
    try {
      webhook.verify(body, {
        "webhook-id": headers["fairlane-event-id"] ?? "",
        "webhook-timestamp": headers["fairlane-timestamp"] ?? "",
        "webhook-signature": headers["fairlane-signature"] ?? "",
      });
    } catch (error) {
      if (error instanceof WebhookVerificationError) throw new NotGenuine(error.message);
      throw new Hopeless(`the body is not JSON: ${error.message}`);
    }
  };
});
