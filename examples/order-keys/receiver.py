#!/usr/bin/env python3
"""The receiver of examples/receivers/python; what it is told about order 1042 it does not take at first."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "receivers", "python"))

import receiver  # noqa: E402


class Orders(receiver.Ledger):
    away = 2

    def work(self, event_id, headers, body):
        order = json.loads(body)
        if order["financial_status"] == "impossible":
            raise receiver.Hopeless("an order is pending, paid or refunded")
        if order["id"] == 1042 and self.away:
            self.away -= 1
            raise ConnectionError("order 1042 is locked")
        line = json.dumps({"id": event_id, "order": order["id"], "status": order["financial_status"]}) + "\n"
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


if __name__ == "__main__":
    secret, ledger = receiver.from_environment(Orders)
    receiver.serve(receiver.verify_with(secret), ledger)
