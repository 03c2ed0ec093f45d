// A receiver behind Fairlane. It needs nothing but Node.
//
//   FAIRLANE_SIGNING_SECRET=whsec_... PORT=3000 LEDGER=ledger.jsonl node receiver.mjs
//
// It makes sure that a request comes from the gateway, does each event's work once, and answers so that the gateway knows
// what to do: 2xx it is done, 5xx try again later, `Retry-After: -1` never try again.
//
// The secret is the gateway's `upstream.signing_secret`. The work here is one line in a file; put yours in its place.

import { createHmac, timingSafeEqual } from "node:crypto";
import { appendFileSync, existsSync, readFileSync, realpathSync } from "node:fs";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";

const TOLERANCE_S = 300;

/** The request does not come from the gateway. */
export class NotGenuine extends Error {}

/** The event can never be worked on, however often it is tried. */
export class Hopeless extends Error {}

/** Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`, the exact bytes, with the secret's base64 undone. */
function verifyWith(secret) {
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  return (headers, body) => {
    const id = headers["fairlane-event-id"] ?? "";
    const timestamp = headers["fairlane-timestamp"] ?? "";
    if (!/^\d+$/.test(timestamp) || Math.abs(Date.now() / 1000 - Number(timestamp)) > TOLERANCE_S) {
      throw new NotGenuine("Fairlane-Timestamp is missing or too far from now");
    }
    const expected = createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body).digest();
    // There may be several, separated by spaces.
    const genuine = (headers["fairlane-signature"] ?? "").split(" ").some((signature) => {
      const [version, text] = signature.split(",");
      const given = Buffer.from(text ?? "", "base64");
      return version === "v1" && given.length === expected.length && timingSafeEqual(given, expected);
    });
    if (!genuine) throw new NotGenuine("Fairlane-Signature is missing or wrong");
  };
}

/**
 * What was done. An event's id is written together with its work: after a crash both are there, or neither.
 *
 * With a database, give the id a unique column and insert it in the transaction that does the work.
 */
class Ledger {
  constructor(path) {
    this.path = path;
    const lines = existsSync(path) ? readFileSync(path, "utf8").split("\n") : [];
    // What follows the last line end was cut off by a crash: that work was not done.
    this.done = new Set(lines.slice(0, -1).map((line) => JSON.parse(line).id));
  }

  /** Does the work unless it was done before; says which. Nothing in it waits, so no two of them mix. */
  workOnce(id, headers, body) {
    if (this.done.has(id)) return "done before";
    let content;
    try {
      content = JSON.parse(body.toString("utf8"));
    } catch (error) {
      throw new Hopeless(`the body is not JSON: ${error.message}`);
    }
    const line = JSON.stringify({ id, group: headers["fairlane-group"], content });
    appendFileSync(this.path, `${line}\n`, { flush: true });
    this.done.add(id);
    return "done";
  }
}

function handle(verify, ledger, headers, body) {
  try {
    verify(headers, body);
    return [200, ledger.workOnce(headers["fairlane-event-id"], headers, body), {}];
  } catch (error) {
    if (error instanceof NotGenuine) return [401, error.message, {}];
    if (error instanceof Hopeless) return [422, error.message, { "Retry-After": "-1" }];
    // Whatever it is, the gateway keeps the event and comes again.
    return [500, error.message, {}];
  }
}

export function serve(verifier) {
  const verify = verifier(process.env.FAIRLANE_SIGNING_SECRET);
  const ledger = new Ledger(process.env.LEDGER ?? "ledger.jsonl");
  const server = createServer(async (request, response) => {
    const parts = [];
    try {
      for await (const part of request) parts.push(part);
    } catch {
      return; // The connection ended before the body did; there is nobody to answer.
    }
    const [status, text, headers] = handle(verify, ledger, request.headers, Buffer.concat(parts));
    const said = ["attempt", "group", "verified"].map((name) => request.headers[`fairlane-${name}`] ?? "-");
    console.log(`${status} attempt ${said[0]} ${said[1]} (${said[2]}): ${text}`);
    response.writeHead(status, { "Content-Length": Buffer.byteLength(text), ...headers });
    response.end(text);
  });
  server.listen(Number(process.env.PORT ?? 3000), process.env.HOST ?? "127.0.0.1", () => {
    const { address, port } = server.address();
    console.log(`listening on http://${address}:${port}`);
  });
}

// Only where this file is what was started, not where with-library.mjs imports it.
if (realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  serve(verifyWith);
}
