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
  # What failed is in the logs, and the logs go.
  ((status == 0)) || tail -n 20 "$STAGE"/*.log >&2
  ((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null || true
  wait
  rm -rf "$STAGE"
  exit "$status"
}
trap end EXIT
trap 'exit 130' INT TERM

say() { printf '\n# %s\n' "$*"; }
fail() { printf 'run.sh: %s\n' "$*" >&2; exit 1; }

command -v "$FAIRLANE" >/dev/null || fail "there is no '$FAIRLANE': build it (cargo build --release) and put target/release into the PATH, or set FAIRLANE"

# until_there FILE N PATTERN: waits until N lines of FILE match; gives up after 30 s.
until_there() {
  local deadline=$((SECONDS + 30))
  until (($(grep -cE -- "$3" "$1" 2>/dev/null || true) >= $2)); do
    ((SECONDS < deadline)) || fail "$2 × '$3' did not come in ${1##*/}"
    sleep 0.05
  done
}

# start_receiver FILE: the receiver, and where it listens as $UPSTREAM; what it prints goes to $RECEIVED.
start_receiver() {
  FAIRLANE_SIGNING_SECRET=whsec_$(head -c 24 /dev/urandom | base64)
  RECEIVED=$STAGE/received.log
  export FAIRLANE_SIGNING_SECRET
  PORT=0 LEDGER=$STAGE/ledger.jsonl python3 "$1" >"$RECEIVED" 2>"$STAGE/receiver-errors.log" &
  pids+=($!)
  until_there "$RECEIVED" 1 '^listening on '
  UPSTREAM=$(sed -n 's/^listening on //p' "$RECEIVED")
  export UPSTREAM
}

# start_gateway: the gateway with this folder's gateway.yaml; where it listens as $GATEWAY, its admin side as $ADMIN.
start_gateway() {
  "$FAIRLANE" run -c "$HERE/gateway.yaml" --listen 127.0.0.1:0 --admin 127.0.0.1:0 --data "$STAGE/data" \
    >"$STAGE/started.log" 2>"$STAGE/gateway.log" &
  pids+=($!)
  until_there "$STAGE/started.log" 1 'listening on '
  GATEWAY=$(sed -n 's/.*listening on \([^,]*\),.*/\1/p' "$STAGE/started.log")
  ADMIN=$(sed -n 's/.*admin on http:\/\/\([^,]*\),.*/\1/p' "$STAGE/started.log")
}

# ask COMMAND…: a command of fairlane's that talks to this gateway.
ask() { "$FAIRLANE" "$@" -c "$HERE/gateway.yaml" --admin "$ADMIN" --data "$STAGE/data"; }

# received N: waits until the receiver answered N requests, and prints its lines.
received() {
  until_there "$RECEIVED" "$1" '^[0-9]{3} attempt '
  grep -E '^[0-9]{3} attempt ' "$RECEIVED"
}

# until_status N STATUS: waits until N events stand so; gives up after 30 s.
until_status() {
  local deadline=$((SECONDS + 30))
  until (($(ask events --limit 1000 --status "$2" | grep -c '^evt_' || true) >= $1)); do
    ((SECONDS < deadline)) || fail "$1 × $2 did not come"
    sleep 0.05
  done
}
