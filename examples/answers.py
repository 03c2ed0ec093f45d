"""The receiver of examples/receivers/python with one path whose requests get an answer of their own, for examples in which the sender waits for it."""

import os
import sys
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "receivers", "python"))

import receiver  # noqa: E402


def serve(path, answer, ledger=receiver.Ledger):
    """Serves; `answer` makes of the fields of a form that came to `path` a text and its content type."""

    def answering(verify, ledger):
        class Handler(receiver.handler(verify, ledger)):
            def do_POST(self):
                if self.path != path:
                    return super().do_POST()
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                try:
                    verify(self.headers, body)
                except receiver.NotGenuine as error:
                    return self.answer(401, str(error))
                text, content_type = answer(dict(urllib.parse.parse_qsl(body.decode())))
                return self.answer(200, text, {"Content-Type": content_type})

        return Handler

    secret, ledger = receiver.from_environment(ledger)
    receiver.serve(receiver.verify_with(secret), ledger, answering)
