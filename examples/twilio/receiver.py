#!/usr/bin/env python3
"""The receiver of examples/receivers/python, which answers messages with TwiML."""

import json
import os
import sys
import urllib.parse
from xml.sax.saxutils import escape

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import answers  # noqa: E402


class Statuses(answers.receiver.Ledger):
    """Reports are forms."""

    def work(self, event_id, headers, body):
        form = dict(urllib.parse.parse_qsl(body.decode()))
        line = json.dumps({"id": event_id, "message": form["MessageSid"], "status": form["MessageStatus"]}) + "\n"
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def message(form):
    twiml = f"<Response><Message>You asked: {escape(form['Body'])} It comes on Friday.</Message></Response>"
    return twiml, "text/xml"


if __name__ == "__main__":
    answers.serve("/twilio/messages", message, Statuses)
