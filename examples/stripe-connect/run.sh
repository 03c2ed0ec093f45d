#!/usr/bin/env bash
# Connected accounts, the platform, and two secrets. Needs fairlane and python3; leaves nothing behind.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../stage.sh"

STRIPE_SECRET=whsec_new_$(head -c 12 /dev/urandom | base64 | tr -dc 'A-Za-z0-9')
STRIPE_OLD_SECRET=whsec_old_$(head -c 12 /dev/urandom | base64 | tr -dc 'A-Za-z0-9')
STRIPE_OLD_SECRET_UNTIL=$(date -u -d '+24 hours' +%Y-%m-%dT%H:%M:%SZ)
STRANGERS_SECRET=whsec_of_nobody
export STRIPE_SECRET STRIPE_OLD_SECRET STRIPE_OLD_SECRET_UNTIL STRANGERS_SECRET

# webhook SECRET BODY [ACCOUNT]: a connected account's event is the platform's with a member more.
webhook() {
  sed "s/acct_1QcExampleTeaShop/${3-acct_1QcExampleTeaShop}/" "$HERE/$2" |
    "$FAIRLANE" send --provider stripe --secret "env:$1" --to "$GATEWAY/webhooks/stripe"
}

start_receiver "$HERE/../receivers/python/receiver.py"
start_gateway

say 'Two connected accounts and the platform itself, signed with the new secret.'
webhook STRIPE_SECRET invoice-paid.json >/dev/null
webhook STRIPE_SECRET invoice-paid.json acct_1QcExampleBakery >/dev/null
webhook STRIPE_SECRET payout-paid.json >/dev/null
received 3

say 'Stripe still signs some with the old one. Fairlane-Verified says which it was: secret=1.'
webhook STRIPE_OLD_SECRET invoice-paid.json >/dev/null
received 4 | tail -n 1

say 'Nobody else can: 401, and nothing is stored.'
if webhook STRANGERS_SECRET invoice-paid.json; then fail 'a forged event was accepted'; fi

settled 4 delivered
say 'Four events in three lanes.'
ask events
ask groups why '~platform'
