#!/usr/bin/env python3
"""A receiver behind Fairlane. It needs nothing but Python's standard library.

    FAIRLANE_SIGNING_SECRET=whsec_... PORT=3000 LEDGER=ledger.jsonl python3 receiver.py

It makes sure that a request comes from the gateway, does each event's work once, and answers so that the gateway knows
what to do: 2xx it is done, 5xx try again later, `Retry-After: -1` never try again.

The secret is the gateway's `upstream.signing_secret`. The work here is one line in a file; put yours in its place.
"""

import base64
import hashlib
import hmac
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOLERANCE_S = 300


class NotGenuine(Exception):
    """The request does not come from the gateway."""


class Hopeless(Exception):
    """The event can never be worked on, however often it is tried."""


def verify_with(secret):
    """Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`, the exact bytes, with the secret's base64 undone."""
    key = base64.b64decode(secret.removeprefix("whsec_"))

    def verify(headers, body):
        event_id, timestamp = headers.get("Fairlane-Event-Id", ""), headers.get("Fairlane-Timestamp", "")
        if not timestamp.isdecimal() or abs(time.time() - int(timestamp)) > TOLERANCE_S:
            raise NotGenuine("Fairlane-Timestamp is missing or too far from now")
        signed = f"{event_id}.{timestamp}.".encode() + body
        expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
        # There may be several, separated by spaces.
        for signature in headers.get("Fairlane-Signature", "").split():
            if hmac.compare_digest(signature.encode(), b"v1," + expected):
                return
        raise NotGenuine("Fairlane-Signature is missing or wrong")

    return verify


class Ledger:
    """What was done. An event's id is written together with its work: after a crash both are there, or neither.

    With a database, give the id a unique column and insert it in the transaction that does the work.
    """

    def __init__(self, path):
        self.path, self.lock, self.done = path, threading.Lock(), set()
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                # A line without its end was cut off by a crash: that work was not done.
                self.done = {json.loads(line)["id"] for line in file if line.endswith("\n")}

    def work_once(self, event_id, headers, body):
        """Does the work unless it was done before; says which."""
        with self.lock:
            if event_id in self.done:
                return "done before"
            self.work(event_id, headers, body)
            self.done.add(event_id)
            return "done"

    def work(self, event_id, headers, body):
        try:
            content = json.loads(body)
        except ValueError as error:
            raise Hopeless(f"the body is not JSON: {error}") from error
        line = json.dumps({"id": event_id, "group": headers["Fairlane-Group"], "content": content}) + "\n"
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def handler(verify, ledger):
    class Handler(BaseHTTPRequestHandler):
        # The gateway keeps connections open between events; with 1.0 each would need a new one.
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            event_id = self.headers.get("Fairlane-Event-Id", "")
            try:
                verify(self.headers, body)
                self.answer(200, ledger.work_once(event_id, self.headers, body))
            except NotGenuine as error:
                self.answer(401, str(error))
            except Hopeless as error:
                self.answer(422, str(error), {"Retry-After": "-1"})
            except Exception as error:  # Whatever it is, the gateway keeps the event and comes again.
                self.answer(500, str(error))

        def answer(self, status, text, headers=None):
            said = [self.headers.get(f"Fairlane-{name}", "-") for name in ("Attempt", "Group", "Verified")]
            print(f"{status} attempt {said[0]} {said[1]} ({said[2]}): {text}", flush=True)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(text.encode())), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            """One line a request is enough, and `answer` prints it."""

    return Handler


class Server(ThreadingHTTPServer):
    # Connections that wait to be accepted; Python's own 5 are fewer than the gateway opens at once.
    request_queue_size = 128
    daemon_threads = True


def serve(verify, ledger, make=handler):
    """Serves until it is killed; `make` makes the class that answers requests."""
    server = Server((os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", "3000"))), make(verify, ledger))
    print(f"listening on http://{server.server_address[0]}:{server.server_address[1]}", flush=True)
    server.serve_forever()


def from_environment(ledger=Ledger):
    return os.environ["FAIRLANE_SIGNING_SECRET"], ledger(os.environ.get("LEDGER", "ledger.jsonl"))


if __name__ == "__main__":
    secret, ledger = from_environment()
    serve(verify_with(secret), ledger)
