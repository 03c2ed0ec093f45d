#!/usr/bin/env bash
# Four senders with four schemes, one receiver with one check. Needs fairlane and python3; leaves nothing behind.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../stage.sh"

SHOPIFY_SECRET=$(head -c 24 /dev/urandom | base64)
STRIPE_SECRET=whsec_$(head -c 12 /dev/urandom | base64 | tr -dc 'A-Za-z0-9')
GITHUB_SECRET=$(head -c 24 /dev/urandom | base64)
BILLING_SECRET=whsec_$(head -c 24 /dev/urandom | base64)
export SHOPIFY_SECRET STRIPE_SECRET GITHUB_SECRET BILLING_SECRET
OTHERS=$HERE/..

# webhook PROVIDER SECRET SOURCE BODY [ARGUMENT…]
webhook() {
  local provider=$1 secret=$2 source=$3 body=$4
  shift 4
  "$FAIRLANE" send --provider "$provider" --secret "env:$secret" --to "$GATEWAY/webhooks/$source" --body "$body" "$@" >/dev/null
}

start_receiver "$HERE/../receivers/python/receiver.py"
start_gateway

say 'An order, an invoice, a push, and a reminder of our own. The receiver checks one signature, the gateway four schemes.'
webhook shopify SHOPIFY_SECRET shopify "$OTHERS/shopify-multi-store/orders-create.json" \
  --header 'X-Shopify-Shop-Domain: harbour.myshopify.com' --event-type orders/create
webhook stripe STRIPE_SECRET stripe "$OTHERS/stripe-connect/invoice-paid.json"
webhook github GITHUB_SECRET github "$OTHERS/github/push.json" --header 'X-GitHub-Event: push'
webhook standard-webhooks BILLING_SECRET billing "$HERE/billing.json"
received 4 | sort -k 4

say 'A secret of one source is worth nothing at another.'
webhook shopify GITHUB_SECRET shopify "$OTHERS/shopify-multi-store/orders-create.json" \
  --header 'X-Shopify-Shop-Domain: harbour.myshopify.com' || true
ask rejections --source shopify

settled 4 delivered
say 'Sources, and the lanes of all of them.'
ask sources
ask events
