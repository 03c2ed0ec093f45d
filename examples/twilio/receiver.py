#!/usr/bin/env python3
"""The receiver of examples/receivers/python, which answers messages with TwiML."""

import json
import os
import sys
import urllib.parse
from xml.sax.saxutils import escape

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "receivers", "python"))

import receiver  # noqa: E402


class Statuses(receiver.Ledger):
    """Reports are forms."""

    def work(self, event_id, headers, body):
        form = dict(urllib.parse.parse_qsl(body.decode()))
        line = json.dumps({"id": event_id, "message": form["MessageSid"], "status": form["MessageStatus"]}) + "\n"
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def answering(verify, ledger):
    class Handler(receiver.handler(verify, ledger)):
        def do_POST(self):
            if self.path != "/twilio/messages":
                return super().do_POST()
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            try:
                verify(self.headers, body)
            except receiver.NotGenuine as error:
                return self.answer(401, str(error))
            form = dict(urllib.parse.parse_qsl(body.decode()))
            twiml = f"<Response><Message>You asked: {escape(form['Body'])} It comes on Friday.</Message></Response>"
            return self.answer(200, twiml, {"Content-Type": "text/xml"})

    return Handler


if __name__ == "__main__":
    secret, ledger = receiver.from_environment(Statuses)
    receiver.serve(receiver.verify_with(secret), ledger, answering)
