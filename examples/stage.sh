# What the examples' run.sh share: a receiver and a gateway on free loopback ports, in a folder that goes at the end.
#
#   FAIRLANE=path/to/fairlane   the binary, where it is not in the PATH

FAIRLANE=${FAIRLANE:-fairlane}
HERE=$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)
STAGE=$(mktemp -d)
export PYTHONDONTWRITEBYTECODE=1
pids=()

# Everything that was started ends with the script, however that ends.
end() {
  local status=$?
  trap - EXIT
  set +e
  # What failed is in the logs, and the logs go.
  if ((status != 0)) && compgen -G "$STAGE/*.log" >/dev/null; then
    tail -n 20 "$STAGE"/*.log >&2
  fi
  ((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null
  wait
  rm -rf "$STAGE"
  exit "$status"
}
trap end EXIT
trap 'exit 130' INT TERM

say() { printf '\n# %s\n' "$*"; }
fail() { printf 'run.sh: %s\n' "$*" >&2; exit 1; }

command -v "$FAIRLANE" >/dev/null || fail "there is no '$FAIRLANE': build it (cargo build --release) and put target/release into the PATH, or set FAIRLANE"

# wait_for WHAT COMMAND…: waits until the command succeeds; gives up after 30 s, or when what was started last has ended.
wait_for() {
  local what=$1 deadline=$((SECONDS + 30))
  shift
  until "$@"; do
    kill -0 "${pids[-1]}" 2>/dev/null || fail "it ended while waiting for $what"
    ((SECONDS < deadline)) || fail "after 30 s still without $what"
    sleep 0.05
  done
}

# has FILE N PATTERN: at least N lines of FILE match.
has() { (($(grep -cE -- "$3" "$1" || true) >= $2)); }

# start_receiver FILE: the receiver, and where it listens as $UPSTREAM; what it prints goes to $RECEIVED.
start_receiver() {
  FAIRLANE_SIGNING_SECRET=whsec_$(head -c 24 /dev/urandom | base64)
  RECEIVED=$STAGE/received.log
  export FAIRLANE_SIGNING_SECRET
  : >"$RECEIVED"
  PORT=0 LEDGER=$STAGE/ledger.jsonl python3 "$1" >"$RECEIVED" 2>"$STAGE/receiver-errors.log" &
  pids+=($!)
  wait_for 'a receiver' has "$RECEIVED" 1 '^listening on '
  UPSTREAM=$(sed -n 's/^listening on //p' "$RECEIVED")
  export UPSTREAM
}

# start_gateway: the gateway with this folder's gateway.yaml; where it listens as $GATEWAY, its admin side as $ADMIN.
start_gateway() {
  : >"$STAGE/started.log"
  "$FAIRLANE" run -c "$HERE/gateway.yaml" --listen 127.0.0.1:0 --admin 127.0.0.1:0 --data "$STAGE/data" \
    >"$STAGE/started.log" 2>"$STAGE/gateway.log" &
  pids+=($!)
  wait_for 'a gateway' has "$STAGE/started.log" 1 'listening on '
  GATEWAY=$(sed -n 's/.*listening on \([^,]*\),.*/\1/p' "$STAGE/started.log")
  ADMIN=$(sed -n 's/.*admin on http:\/\/\([^,]*\),.*/\1/p' "$STAGE/started.log")
}

# ask COMMAND…: a command of fairlane's that talks to this gateway.
ask() { "$FAIRLANE" "$@" -c "$HERE/gateway.yaml" --admin "$ADMIN" --data "$STAGE/data"; }

# received N: waits until the receiver answered N requests, and prints its lines.
received() {
  wait_for "$1 requests at the receiver" has "$RECEIVED" "$1" '^[0-9]{3} attempt '
  grep -E '^[0-9]{3} attempt ' "$RECEIVED"
}

# settled N STATUS: waits until N events stand so.
settled() { wait_for "$1 events that are $2" stand "$@"; }
stand() { (($(ask events --limit 1000 --status "$2" | grep -c '^evt_' || true) >= $1)); }
