#!/usr/bin/env bash
# An event that fails and is tried again, and one that can never be worked on. Needs fairlane and python3; leaves nothing behind.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../stage.sh"

GITHUB_SECRET=$(head -c 24 /dev/urandom | base64)
export GITHUB_SECRET

# webhook EVENT BODY
webhook() {
  "$FAIRLANE" send --provider github --secret env:GITHUB_SECRET --to "$GATEWAY/webhooks/github" \
    --header "X-GitHub-Event: $1" --header "X-GitHub-Delivery: $(cat /proc/sys/kernel/random/uuid)" --body "$HERE/$2" >/dev/null
}

start_receiver "$HERE/receiver.py"
start_gateway

say 'A push, while the build server is away: 500, 500, then done. The issue of another installation does not wait for it.'
webhook push push.json
webhook issues issues-opened.json
received 4

say 'A push to a repository that no build is set up for: Retry-After: -1 in the answer, a dead letter at once.'
webhook push push-archived.json
received 5 | tail -n 1

settled 2 delivered
settled 1 dead
say 'Three events: the first took three attempts.'
ask events
say 'Dead letters are kept for 30 days (store.retention.dead).'
ask events --status dead --json
