#!/usr/bin/env bash
# A Slack app: the handshake, events of two workspaces, a repeat, and a command whose answer is the application's. Needs fairlane and
# python3; leaves nothing behind.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../stage.sh"

SLACK_SECRET=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
export SLACK_SECRET

# webhook PATH BODY [ARGUMENT…]
webhook() {
  local path=$1 body=$2
  shift 2
  "$FAIRLANE" send --provider slack --secret env:SLACK_SECRET --to "$GATEWAY$path" --body "$body" "$@"
}

start_receiver "$HERE/receiver.py"
start_gateway

say 'Slack asks first. The gateway answers with the challenge; nothing is stored.'
webhook /slack/events "$HERE/url-verification.json" --verbose

say 'A mention in each of two workspaces: two lanes.'
webhook /slack/events "$HERE/app-mention.json" >/dev/null
sed 's/T0LANTERN/T0TEAHOUSE/g; s/Ev0LANTERN01/Ev0TEAHOUSE01/' "$HERE/app-mention.json" >"$STAGE/other.json"
webhook /slack/events "$STAGE/other.json" >/dev/null
received 2

say 'Slack sends one again. It is answered like the first, and not delivered.'
webhook /slack/events "$HERE/app-mention.json" --header 'X-Slack-Retry-Num: 1' --verbose | grep -i 'duplicate-of'
settled 1 suppressed

say 'Somebody types /order 1042, and sees what the application answers.'
webhook /slack/commands "$HERE/command.form" --header 'Content-Type: application/x-www-form-urlencoded' --verbose
received 3 | tail -n 1

say 'Events are kept, commands are not: who typed one has seen the answer, or that there was none.'
settled 2 delivered
ask events
