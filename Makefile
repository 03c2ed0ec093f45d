# Everything one does with the project, by name. `make` alone lists it.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CARGO ?= cargo
# Rounds of kill -9 in `make crash`.
CRASH_ROUNDS ?= 100
# How long `make soak` goes on.
SOAK_SECONDS ?= 600
# Connections of `make idle`.
IDLE_CONNECTIONS ?= 20000
# What `make deny` looks at; the list of known weaknesses comes over the network.
DENY_CHECKS ?= advisories bans licenses sources
# How long each part of `make fuzz` goes on.
FUZZ_SECONDS ?= 600
# Where `make run` listens and keeps its events.
LISTEN ?= 127.0.0.1:8080
ADMIN ?= 127.0.0.1:8081
DATA ?= ./fairlane-data
# Dead letters in `make bench-replay`.
REPLAY_EVENTS ?= 100000
# What `make demo` is told, e.g. DEMO_ARGS='--compare --flood 50000'.
DEMO_ARGS ?=

.PHONY: help demo setup check deny dist image book man check-monitoring check-kubernetes test run crash soak-nodes sim soak hostile idle fairness fuzz contract bench bench-engine bench-history bench-redis bench-replay bench-verify screenshots

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## See it work: one store floods, nine do not notice (half a minute; DEMO_ARGS=--compare, --help)
	@.ci/setup build
	$(CARGO) run --locked --release -- demo $(DEMO_ARGS)

setup: ## Install what building and testing need (Debian-like machines; nothing to do elsewhere)
	@.ci/setup

check: ## Formatting and lints
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings

deny: ## Licences, sources and known weaknesses of everything that is linked (cargo install cargo-deny; advisories need the network)
	@$(CARGO) deny --version >/dev/null || { echo 'there is no cargo-deny: cargo install --locked cargo-deny'; exit 1; }
	$(CARGO) deny --all-features check $(DENY_CHECKS)

test: setup ## Everything that CI runs: check, then all tests
	@if $(CARGO) fmt --version && $(CARGO) clippy --version; then \
		$(MAKE) check; \
	else \
		echo 'LEFT OUT: make check, for want of rustfmt or clippy (rustup component add rustfmt clippy)'; \
	fi
	$(CARGO) test --locked

run: ## Serve gateway.yaml on the loopback (LISTEN=, ADMIN=, DATA= to change)
	@.ci/setup build
	$(CARGO) run --locked --release -- run -c gateway.yaml --listen $(LISTEN) --admin $(ADMIN) --data $(DATA)

crash: ## Kill it CRASH_ROUNDS times (100) at random points: nothing that was acknowledged may be lost
	CRASH_ROUNDS=$(CRASH_ROUNDS) $(CARGO) test --locked --test crash -- --nocapture

soak-nodes: setup ## Three nodes over Redis with the long faults: killed, stopped, Redis gone for a minute, failover (ten minutes)
	$(CARGO) test --locked --test cluster soak -- --ignored --nocapture --test-threads 1

sim: ## The engine against a model world in virtual time, with faults (SIM_SEED= repeats one, SIM_SEEDS= widens)
	$(CARGO) test --locked --test sim -- --nocapture

fairness: setup ## Repeat every number and picture of docs/fairness.md (release; pictures in target/fairness)
	$(CARGO) test --locked --release --lib engine::tests::fair -- --nocapture --test-threads 1 | grep '^| '
	$(CARGO) test --locked --release --lib engine::tests::evidence -- --nocapture --test-threads 1 | grep '^| '
	$(CARGO) test --locked --release --lib engine::tests::cold -- --nocapture --test-threads 1 | grep '^| '
	$(CARGO) test --locked --release --test fairness --test order -- --nocapture | grep '^| \|^test '
	$(CARGO) build --locked --release
	@for scenario in flood 500-floods hang import outbreak; do \
		target/release/fairlane simulate --scenario $$scenario --one-queue --out target/fairness/$$scenario; \
	done
	time target/release/fairlane simulate --scenario storm --drain 1d

fuzz: ## Mutated connections, requests, configurations, stores and records, each for FUZZ_SECONDS (600)
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(CARGO) test --locked --test fuzz -- --nocapture
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(CARGO) test --locked --test fuzz_listener -- --nocapture
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(CARGO) test --locked --lib store::record::fuzz -- --nocapture

soak: setup ## Everything that can go wrong, for SOAK_SECONDS (600), then the books have to balance (SOAK_SEED= repeats one)
	SOAK_SECONDS=$(SOAK_SECONDS) $(CARGO) test --locked --test soak -- --nocapture

hostile: ## What honest senders wait beside a flood of each hostile case (release; HOSTILE_SECONDS=, HOSTILE_RATE=, HOSTILE_ONLY=)
	@.ci/setup build
	$(CARGO) bench --locked --bench hostile

idle: setup ## 20,000 idle connections against a limit of 10,000, and what each takes (IDLE_CONNECTIONS=)
	IDLE_CONNECTIONS=$(IDLE_CONNECTIONS) $(CARGO) test --locked --release --test idle_connections -- --nocapture --test-threads 1

bench-engine: ## What the engine alone costs an event at 1 to 1,000,000 active groups, and what groups take in memory (release)
	$(CARGO) bench --locked --bench engine

bench-history: ## What lists and senders wait over a history of millions, and while it is let go (HISTORY_EVENTS=, HISTORY_BODY=, HISTORY_DATA=)
	$(CARGO) bench --locked --bench history

bench-redis: ## One node and three over a Redis, beside raw pipelined XADD and XDEL (a minute; BENCH_SECONDS=, BENCH_SHOPS= to change)
	@.ci/setup bench
	$(CARGO) bench --locked --bench redis

bench-replay: ## 100,000 dead letters replayed while traffic runs: what fresh events wait (REPLAY_EVENTS=)
	REPLAY_EVENTS=$(REPLAY_EVENTS) $(CARGO) test --locked --release --test replay_many -- --nocapture

screenshots: setup ## The dashboard during a flood, as pictures in docs/images (a minute)
	$(CARGO) test --locked --test dashboard pictures -- --ignored --nocapture

contract: ## The admin API against its own description, by made-up calls (schemathesis, in target/contract; CONTRACT_EXAMPLES=)
	@test -x target/contract/venv/bin/schemathesis || { \
		python3 -m venv target/contract/venv && \
		target/contract/venv/bin/pip install --quiet --requirement tests/contract/requirements.txt; }
	CONTRACT_TOOL=$(CURDIR)/target/contract/venv/bin/schemathesis $(CARGO) test --locked --test contract -- --nocapture

check-monitoring: ## The rules and the dashboard, by promtool too (from Debian's package prometheus; PROMTOOL=)
	@command -v "$${PROMTOOL:-promtool}" >/dev/null || { echo 'there is no promtool: apt-get install prometheus, or PROMTOOL='; exit 1; }
	$(CARGO) test --locked --test monitoring -- --nocapture

check-kubernetes: ## The manifests and the chart, by helm and Kubernetes' schemas too (HELM=, KUBERNETES_VALIDATE=)
	@command -v "$${HELM:-helm}" >/dev/null || { echo 'there is no helm: install it, or HELM='; exit 1; }
	@test -n "$${KUBERNETES_VALIDATE:-}" || test -x target/kubernetes/bin/kubernetes-validate || { \
		python3 -m venv target/kubernetes && target/kubernetes/bin/pip install --quiet kubernetes-validate; }
	KUBERNETES_VALIDATE="$${KUBERNETES_VALIDATE:-$(CURDIR)/target/kubernetes/bin/kubernetes-validate}" \
		$(CARGO) test --locked --test kubernetes -- --nocapture

dist: ## A release in target/dist: stripped binary, checksums, SBOM, licences; its size and start time (minutes)
	@.ci/setup build
	deploy/release/dist

image: ## Carry out the Dockerfile's own steps in a clean root, without a container engine, and run what comes of it (root, debootstrap; minutes)
	deploy/image/clean-root

book: ## The documentation as a book, in target/book/html (mdBook: cargo install mdbook; MDBOOK=)
	@command -v "$${MDBOOK:-mdbook}" >/dev/null || { echo 'there is no mdbook: cargo install mdbook, or MDBOOK='; exit 1; }
	deploy/release/book

man: ## Manual pages of every command, in target/man
	$(CARGO) run --locked --quiet -- man target/man
	@echo 'man target/man/fairlane.1, or MANPATH with target/man as its man1'

bench-verify: ## What judging and grouping a request costs, 1 KB to 10 MB
	$(CARGO) bench --locked --bench verify

bench: ## Every budget beside nginx in one run (five minutes); BENCH=bodies,connections,tls,groups,backlog,rivals for more (BENCH_ROUNDS=, BENCH_SECONDS=, BENCH_EVENTS=, BENCH_BODY=)
	@.ci/setup bench
	$(CARGO) bench --locked --bench gateway
