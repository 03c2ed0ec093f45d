#!/usr/bin/env bash
# Three accounts of three plans, all with a backlog: who goes next. Needs fairlane and python3; leaves nothing behind.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../stage.sh"

APP_SECRET=whsec_$(head -c 24 /dev/urandom | base64)
export APP_SECRET

# events N PLAN ACCOUNT
events() {
  sed "s/PLAN/$2/; s/ACCOUNT/$3/" "$HERE/event.json" |
    "$FAIRLANE" send --provider standard-webhooks --secret env:APP_SECRET --to "$GATEWAY/webhooks/app" --count "$1" >/dev/null
}

start_receiver "$HERE/../receivers/python/receiver.py"
start_gateway

say 'Each has forty events waiting.'
ask upstream pause >/dev/null
events 40 free acorn
events 40 silver birch
events 40 gold cedar
ask groups --sort depth

say 'The first 28 turns, by plan: four to two to one.'
ask upstream resume >/dev/null
received 120 | sed -n '1,28p' | awk '{ print $4 }' | sort | uniq -c | sort -rn

say 'Nobody is starved, and whoever is alone gets everything.'
settled 120 delivered
ask events --limit 120 --json | grep -oE '"group": ?"[a-z~]+"' | sort | uniq -c
