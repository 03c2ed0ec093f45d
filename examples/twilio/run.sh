#!/usr/bin/env bash
# A message that wants an answer, and reports that do not. Needs fairlane and python3; leaves nothing behind.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../stage.sh"

TWILIO_TOKEN=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
export TWILIO_TOKEN

# webhook PATH BODY [ARGUMENT…]
webhook() {
  local path=$1 body=$2
  shift 2
  "$FAIRLANE" send --provider twilio --secret env:TWILIO_TOKEN --to "$GATEWAY$path" --public-url https://hooks.example.com \
    --header 'Content-Type: application/x-www-form-urlencoded' --body "$body" "$@"
}

start_receiver "$HERE/receiver.py"
start_gateway

say 'A message comes in. Twilio gets the TwiML that the application answers.'
webhook /twilio/messages "$HERE/message.form" --verbose

say 'It is not kept: there is nobody who could still be answered later.'
ask events

say 'The application is away: Twilio hears at once that there is no answer, and calls the fallback address that it has.'
ask upstream pause >/dev/null
webhook /twilio/messages "$HERE/message.form" || true
ask upstream resume >/dev/null

say 'Three reports about a message that was sent. They are kept, and delivered in their order.'
for status in queued sent delivered; do
  sed "s/STATUS/$status/g" "$HERE/status.form" >"$STAGE/status.form"
  webhook /twilio/status "$STAGE/status.form" >/dev/null
done
settled 3 delivered
sed -n 's/.*"status": "\(.*\)"}/\1/p' "$STAGE/ledger.jsonl"
