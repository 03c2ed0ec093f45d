#!/usr/bin/env bash
# Many stores, one of them noisy. Needs fairlane and python3; leaves nothing behind.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../stage.sh"

SHOPIFY_SECRET=$(head -c 24 /dev/urandom | base64)
export SHOPIFY_SECRET
NOISY=noisy-imports.myshopify.com

# webhook TOPIC BODY STORE
webhook() {
  "$FAIRLANE" send --provider shopify --secret env:SHOPIFY_SECRET --to "$GATEWAY/webhooks/shopify" \
    --header "X-Shopify-Topic: $1" --header "X-Shopify-Shop-Domain: $3" --body "$HERE/$2" >/dev/null
}

start_receiver "$HERE/../receivers/python/receiver.py"
start_gateway

say 'The receiver is being deployed. Nothing is delivered, everything is accepted.'
ask upstream pause >/dev/null
for _ in {1..20}; do
  webhook products/update products-update.json "$NOISY"
done
webhook orders/create orders-create.json quiet-candles.myshopify.com
webhook orders/create orders-create.json quiet-tea.myshopify.com
webhook orders/create orders-create.json plus-shoes.myshopify.com
ask groups --sort depth

say 'It is back. Twenty events of the noisy store came first; the others do not wait for them.'
ask upstream resume >/dev/null
received 23 | sed -n '1,8p'

say 'Pause the noisy store. It acts on what is queued, and its sender still gets 200.'
ask groups pause "$NOISY" --expires 2h
webhook products/update products-update.json "$NOISY"
webhook products/update products-update.json "$NOISY"
webhook orders/create orders-create.json quiet-tea.myshopify.com
received 24 | tail -n 1
ask groups

say 'Let it go on.'
ask groups resume "$NOISY" >/dev/null
received 26 | tail -n 2
settled 26 delivered
ask events --limit 6
