#!/usr/bin/env python3
"""The receiver of examples/receivers/python, which answers commands besides."""

import json
import os
import sys
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "receivers", "python"))

import receiver  # noqa: E402


def answering(verify, ledger):
    class Handler(receiver.handler(verify, ledger)):
        def do_POST(self):
            if self.path != "/slack/commands":
                return super().do_POST()
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            try:
                verify(self.headers, body)
            except receiver.NotGenuine as error:
                return self.answer(401, str(error))
            form = dict(urllib.parse.parse_qsl(body.decode()))
            text = f"Order {form['text']} left the warehouse this morning, {form['user_name']}."
            said = json.dumps({"response_type": "ephemeral", "text": text})
            return self.answer(200, said, {"Content-Type": "application/json"})

    return Handler


if __name__ == "__main__":
    secret, ledger = receiver.from_environment()
    receiver.serve(receiver.verify_with(secret), ledger, answering)
