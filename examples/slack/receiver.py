#!/usr/bin/env python3
"""The receiver of examples/receivers/python, which answers commands besides."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import answers  # noqa: E402


def command(form):
    text = f"Order {form['text']} left the warehouse this morning, {form['user_name']}."
    return json.dumps({"response_type": "ephemeral", "text": text}), "application/json"


if __name__ == "__main__":
    answers.serve("/slack/commands", command)
