#!/usr/bin/env bash
# Three events of one order, the first of which fails twice, and one of another order. Needs fairlane and python3; leaves nothing behind.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../stage.sh"

SHOPIFY_SECRET=$(head -c 24 /dev/urandom | base64)
export SHOPIFY_SECRET

# webhook ORDER STATUS
webhook() {
  sed "s/1042/$1/g; s/pending/$2/" "$HERE/order.json" |
    "$FAIRLANE" send --provider shopify --secret env:SHOPIFY_SECRET --to "$GATEWAY/webhooks/shopify" \
      --header 'X-Shopify-Shop-Domain: harbour.myshopify.com' --event-type orders/updated >/dev/null
}
done_work() { sed -n 's/.*"order": \(.*\), "status": "\(.*\)"}/order \1: \2/p' "$STAGE/ledger.jsonl"; }

start_receiver "$HERE/receiver.py"
start_gateway

say 'Order 1042: pending, paid, refunded. Order 1043 of the same store: pending. The receiver cannot work on 1042 at first.'
ask upstream pause >/dev/null
for status in pending paid refunded; do webhook 1042 "$status"; done
webhook 1043 pending
ask upstream resume >/dev/null
settled 4 delivered
received 6

say 'What was done, in which order: 1043 waited for nobody, and nothing of 1042 overtook anything.'
done_work

say 'An event that can never succeed does not hold its order for ever: it is a dead letter, and the next one goes.'
webhook 1044 impossible
webhook 1044 paid
settled 1 dead
settled 5 delivered
done_work | tail -n 1
ask dead
