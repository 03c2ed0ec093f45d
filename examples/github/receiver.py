#!/usr/bin/env python3
"""The receiver of examples/receivers/python with work that can go wrong."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "receivers", "python"))

from receiver import Hopeless, Ledger, from_environment, serve, verify_with  # noqa: E402


class Builds(Ledger):
    """Starts a build for each push; the build server is away at first, and knows some repositories only."""

    away = 2

    def work(self, event_id, headers, body):
        repository = json.loads(body)["repository"]["name"]
        if repository != "lantern":
            raise Hopeless(f"no build is set up for {repository}")
        if headers["X-GitHub-Event"] == "push" and self.away:
            self.away -= 1
            raise ConnectionError("the build server does not answer")
        super().work(event_id, headers, body)


if __name__ == "__main__":
    secret, ledger = from_environment(Builds)
    serve(verify_with(secret), ledger)
