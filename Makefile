# The only commands a newcomer needs. Each sets up what it needs in .venv, .cache and target, and
# nothing outside this checkout but the package managers' own caches. Needed: Python 3.11+ with
# venv, Rust 1.89+ and a C compiler; JDK 17 and Maven for test, test-faults, test-long,
# parity-answers, bench, bench-expansion, zookeeper, test-lag and test-rpk; JDK 17 for demo,
# test-checker and test-alerts.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := build

PYTHON ?= python3
LISTEN ?= 127.0.0.1:9092
DATA ?= .data
PYTEST_ARGS ?=
BENCH_ARGS ?=
SMALL ?=
DEMO_ARGS ?=

BIN := .venv/bin
CHECKED := python tests ci benches demo
RUST := $(shell find rust -type f \( -name '*.rs' -o -name Cargo.toml \) -not -path '*/target/*') \
        Cargo.toml Cargo.lock
CORE := .venv/.core
# The same extension with what the simulation drives by hand.
SIM_CORE := target/sim/lib_core.so
PACKAGE := $(shell find python -name '*.py' -o -name '*.pyi' -o -name py.typed -o -path '*/templates/*') \
           README.md LICENSE

HOST = $(shell rustc -vV | sed -n 's/^host: //p')

# What libFuzzer hangs on to. The crates forbid `unsafe`, so overflow checks and debug assertions tell
# more than an address sanitizer would, and a stable toolchain will do.
FUZZ_FLAGS := -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
  -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks \
  -Ccodegen-units=1
FUZZ_TARGETS := frames responses batches message_sets indexes snapshots checkpoints recovery old_segments reads dumps fetched typed_values avro_values

# Clients of before Kafka 0.11, for tests/clients/test_old_clients.py.
OLD_CLIENTS := .cache/old-clients.done .cache/old-0.9.done .cache/old-0.10.done .cache/old-0.11.done

# All that `make test` fetches, but crates.
FETCHED := .venv/.dev .cache/kcat.done .cache/kafka.done .cache/kafka4.done .cache/streams.done .cache/connect.done \
  .cache/spark.done .cache/zookeeper.done .cache/postgres.done $(OLD_CLIENTS)

# For a faster start of the Java processes of tests.
CLASS_ARCHIVES := .cache/kafka.jsa .cache/spark.jsa

# The crates that have Rust tests. All at once, since cargo builds one with other features alone.
TESTED := --workspace --exclude pyrklog-bridge --locked

# How much of each fault `make test-faults` tries; test-long tries ten times that and more.
LOG_KILLS ?= 40
LOG_CRASH_CASES ?= 3000
CHURN_SECONDS ?= 25
SOAK_SECONDS ?= 25
HOSTS_ROUNDS ?= 3
BUSY_SECONDS ?= 25
HOSTILE_SECONDS ?= 20
KILLS ?= 30
FUZZ_SCRIPTS ?= 8000
FUZZ_EXAMPLES ?= 500
SIM_SEEDS ?= 10000
# Of `make test-lag`: burrow (needs apt, or Burrow on the PATH), kafka_exporter (needs Go, or it on the PATH).
LAG_TOOLS ?= burrow
# Of `make test-rpk`: the program. No package registry has it; docs/using/compared.md says how to build it.
RPK ?=
# Of `make test-alerts`: load without a fault.
SERVICE_SECONDS ?= 600
# Of `make fuzz`, each target.
FUZZ_SECONDS ?= 60
# Of `make wheels`: x86_64-gnu, aarch64-gnu, x86_64-musl, aarch64-musl; all of them without it.
TARGETS ?=

.PHONY: build run zookeeper test fetched lint check-alerts promtool-there test-rust test-python parity-answers test-faults test-checker test-long test-soak test-lag test-rpk rpk-there test-alerts simulate simulate-expansion fuzz bench bench-expansion demo wheel wheels clean help

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

build: $(CORE) ## release build of the extension, installed with the package into .venv

run: build ## starts a broker; LISTEN=HOST:PORT and DATA=DIR have defaults
	exec $(BIN)/pyrklog serve --listen "$(LISTEN)" --data "$(DATA)"

zookeeper: .cache/zookeeper.done ## ZooKeeper's jars (6 MB, by Maven) for `pyrklog dev`

test: lint test-rust test-python ## everything: lints, Rust tests, Python tests with real clients

fetched: $(FETCHED) ## what `make test` needs from the network, but crates

lint: .venv/.dev ## format, lints, types, structure; all as errors
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/mypy $(CHECKED)
	$(BIN)/python ci/check_structure.py
	$(BIN)/python ci/old_words.py
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy -p pyrklog-bridge -p pyrklog-dataplane -p pyrklog-requests -p pyrklog-storage -p pyrklog-replica -p pyrklog-base -p pyrklog-log --features pyrklog-bridge/sim --locked -- -D warnings

check-alerts: promtool-there .venv/.dev ## promtool over the alert rules, their tests and the scrape configuration
	rm -rf .cache/alerts
	for kind in alerts prometheus; do \
	  PYTHONPATH=python $(BIN)/python -m pyrklog deploy $$kind --to .cache/alerts; \
	done
	cp tests/unit/deploy/alerts_test.yml .cache/alerts
	cd .cache/alerts && promtool check config prometheus.yml && promtool test rules alerts_test.yml

promtool-there:
	@command -v promtool > /dev/null || { \
	  echo "promtool is not on the PATH, so the alert rules were not checked: it comes with" \
	       "Prometheus (Debian: prometheus; others: prometheus.io/download)" >&2; exit 1; }

test-rust: ## cargo's tests of all crates but the binding, which has no logic
	$(PYTHON) ci/rust_tests.py $(TESTED)

# A file's tests stay together: they share brokers and clusters. The units come last, and fill what
# one of the processes has left. Many tests wait for brokers: three processes keep two cores busy.
test-python: $(CORE) $(SIM_CORE) dist/.made $(FETCHED) $(CLASS_ARCHIVES) ## pytest in three processes, or in one with PYTEST_ARGS
	$(BIN)/pytest --ignore=tests/faults --ignore=tests/service --ignore=tests/cli/rpk \
	  --benchmark-disable -m "not long" \
	  $(if $(PYTEST_ARGS),$(PYTEST_ARGS),-n 3 --dist loadfile --no-loadscope-reorder --durations=40)

parity-answers: $(CORE) .venv/.dev .cache/kafka.done ## asks Apache Kafka the requests of tests/parity anew, and keeps its answers
	$(BIN)/python -m tests.parity

test-faults: $(CORE) .venv/.dev .cache/kafka.done ## kills, power loss, failing disks, groups under churn, a fresh clone; under 30 minutes
	LOG_KILLS=$(LOG_KILLS) LOG_CRASH_CASES=$(LOG_CRASH_CASES) FUZZ_SCRIPTS=$(FUZZ_SCRIPTS) \
	  $(PYTHON) ci/rust_tests.py $(TESTED) --test kills --test crash --test targets
	CHURN_SECONDS=$(CHURN_SECONDS) FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) SOAK_SECONDS=$(SOAK_SECONDS) \
	  HOSTS_ROUNDS=$(HOSTS_ROUNDS) BUSY_SECONDS=$(BUSY_SECONDS) HOSTILE_SECONDS=$(HOSTILE_SECONDS) \
	  $(BIN)/pytest tests/faults tests/cluster/test_busy_machine.py $(PYTEST_ARGS)
	KILLS=$(KILLS) $(BIN)/pytest -s tests/crash/test_many_kills.py $(PYTEST_ARGS)

test-checker: CHECKER_ROUNDS = 200
test-checker: $(CORE) .venv/.dev ## 200 rounds of random faults on three brokers, or CHECKER_ROUNDS; CHECKER_SEED replays
	CHECKER_ROUNDS=$(CHECKER_ROUNDS) $(BIN)/pytest -s tests/cluster/test_checker.py $(PYTEST_ARGS)

test-long: $(CORE) $(SIM_CORE) .venv/.dev ## more of everything, under three hours: a thousand kills of a loaded broker among it
	PROTOCOL_EXAMPLES=100 ARGUMENT_EXAMPLES=5000 $(BIN)/pytest tests/unit/protocol tests/cli/test_argument_bounds.py
	LOADED_KILLS=50 COMPACTION_KILLS=50 CHECKER_ROUNDS=40 EXACTLY_ONCE_ROUNDS=200 SIM_SEEDS=1000 \
	  $(BIN)/pytest tests/crash/test_kill.py tests/cluster/test_checker.py \
	  tests/cluster/test_exactly_once.py tests/sim/test_seeds.py \
	  tests/clients/test_compaction.py::test_kills_of_a_broker_that_compacts_lose_nothing
	EXPANSION_ROUNDS=50 $(BIN)/pytest -s tests/cluster/test_expansion_kills.py
	SINK_ROUNDS=100 $(BIN)/pytest -s tests/spark/test_sink_kills.py
	WORKER_MEMORY_GB=20 $(BIN)/pytest -s -m long tests/spark tests/cluster/test_checker.py
	$(MAKE) test-faults LOG_KILLS=1000 LOG_CRASH_CASES=300000 CHURN_SECONDS=600 KILLS=1000 HOSTS_ROUNDS=100 BUSY_SECONDS=3600 HOSTILE_SECONDS=600 \
	  FUZZ_SCRIPTS=3000000 FUZZ_EXAMPLES=10000

test-soak: SOAK_SECONDS = 3600
test-soak: $(CORE) .venv/.dev ## mixed load for an hour, or SOAK_SECONDS, within the memory bound
	SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/pytest -s tests/faults/test_soak.py $(PYTEST_ARGS)

test-lag: $(CORE) .venv/.dev .cache/kafka.done ## our lag beside that of LAG_TOOLS and of Apache's tool, at known rates
	$(PYTHON) -m ci.lag_tools .cache $(LAG_TOOLS)
	LAG_TOOLS="$(LAG_TOOLS)" $(BIN)/pytest -s tests/service/test_lag_exporters.py $(PYTEST_ARGS)

test-rpk: rpk-there $(CORE) .venv/.dev .cache/kafka.done ## the column of rpk in docs/using/compared.md, tried with the program RPK=PATH
	RPK="$(RPK)" $(BIN)/pytest tests/cli/rpk $(PYTEST_ARGS)

rpk-there:
	@[ -n "$(RPK)" ] || { \
	  echo "RPK is not set, so rpk was not tried: make test-rpk RPK=PATH, where PATH is the program" \
	       "(docs/using/compared.md says how to build it)" >&2; exit 1; }
	@[ -f "$$(command -v "$(RPK)")" ] || { \
	  echo "RPK=$(RPK) is no program, so rpk was not tried" >&2; exit 1; }

test-alerts: $(CORE) .venv/.dev .cache/prometheus.done ## a real Prometheus and SERVICE_SECONDS of load, then a fault for each alert; an hour, as root
	SERVICE_SECONDS=$(SERVICE_SECONDS) $(BIN)/pytest -s tests/service/test_alerts.py $(PYTEST_ARGS)

simulate: $(CORE) $(SIM_CORE) .venv/.dev ## SIM_SEEDS seeds of the simulation, then the injected bugs
	$(BIN)/python -m tests.sim --seeds $(SIM_SEEDS) --shrink --keep-going
	FIND_FROM_ZERO=1 $(BIN)/pytest tests/sim

simulate-expansion: $(CORE) .venv/.dev ## 20 brokers come to 200: plan, batches, the controller, in simulated time; some die under way
	$(BIN)/python -m benches.simulated_expansion $(BENCH_ARGS)

fuzz: $(CORE) .venv/.dev ## libFuzzer over frames, batches and files, FUZZ_SECONDS each; needs a C++ compiler
	RUSTFLAGS="$(FUZZ_FLAGS)" CARGO_PROFILE_RELEASE_LTO=off \
	  cargo build --release --locked -p pyrklog-fuzz \
	  --features libfuzzer --bins --target $(HOST) --target-dir target/fuzz
	for target in $(FUZZ_TARGETS); do \
	  mkdir -p .cache/fuzz/$$target; \
	  echo "fuzzing $$target for $(FUZZ_SECONDS) s"; \
	  target/fuzz/$(HOST)/release/$$target -max_total_time=$(FUZZ_SECONDS) -max_len=1500 \
	    -verbosity=0 -print_final_stats=1 -artifact_prefix=.cache/fuzz/$$target- \
	    .cache/fuzz/$$target; \
	done
	FUZZ_RANDOM=1 FUZZ_EXAMPLES=$$((20 * $(FUZZ_SECONDS))) $(BIN)/pytest tests/faults -k fuzz

bench: $(CORE) .venv/.dev .cache/kafka.done .cache/connect.done .cache/spark.done ## against Apache Kafka on this machine, then the seam alone
	cargo build --release --locked -p pyrklog-loadgen -p pyrklog-floors
	$(BIN)/python -m benches.against_kafka $(BENCH_ARGS)
	$(BIN)/pytest benches/test_seam.py

bench-expansion: $(CORE) .venv/.dev .cache/kafka.done ## a broker comes to a cluster under load, beside Apache Kafka; SMALL=1 for a trial; goes on where it was stopped
	cargo build --release --locked -p pyrklog-loadgen
	$(BIN)/python -m benches.expansion $(if $(SMALL),--small) $(BENCH_ARGS)

demo: $(CORE) .venv/.demo ## flight records through the broker into Spark
	$(BIN)/python -m demo $(DEMO_ARGS)

wheel: dist/.made ## an installable wheel in dist/

wheels: .venv/.wheel-tools ## in dist/wheels: for glibc and musl, x86-64 and aarch64, or TARGETS
	VIRTUAL_ENV=$(CURDIR)/.venv $(BIN)/python -m ci.wheels dist/wheels $(TARGETS)

clean: ## removes everything that these targets made, but not the broker's data
	rm -rf .venv .cache dist target demo-out bench-out python/pyrklog/*.so
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
	find python tests benches ci demo -name __pycache__ -type d -prune -exec rm -rf {} +

# --- what the targets stand on -------------------------------------------------------------------

.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is $$($(PYTHON) --version 2>&1); pyrklog needs 3.11 or newer:" \
	       "make PYTHON=python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { \
	  echo "$(PYTHON) has no venv module: install the package python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	touch $@

# Requirements come from pyproject.toml; $(1) names the extras.
define install
	$(BIN)/python ci/requirements.py $(1) > .venv/requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -r .venv/requirements.txt
	touch $@
endef

.venv/.build-tools: .venv/.made pyproject.toml ci/requirements.py
	$(call install,build)

.venv/.wheel-tools: .venv/.made pyproject.toml ci/requirements.py
	$(call install,wheels)

.venv/.demo: .venv/.made pyproject.toml ci/requirements.py
	$(call install,demo)

.venv/.dev: .venv/.made pyproject.toml ci/requirements.py
	$(call install,dev)

$(CORE): $(RUST) pyproject.toml .venv/.build-tools
	@command -v cargo > /dev/null || { \
	  echo "cargo is not on the PATH: install Rust from https://rustup.rs" >&2; exit 1; }
	VIRTUAL_ENV=$(CURDIR)/.venv $(BIN)/maturin develop --release --locked --quiet > /dev/null
	$(BIN)/python -m compileall -q python/pyrklog # so that the first start is as fast as others
	touch $@

$(SIM_CORE): $(RUST)
	cargo build --profile sim --locked --quiet -p pyrklog-bridge --features sim
	touch $@

dist/.made: $(RUST) $(PACKAGE) pyproject.toml .venv/.build-tools
	rm -f dist/*.whl
	VIRTUAL_ENV=$(CURDIR)/.venv $(BIN)/maturin build --release --locked --quiet --out dist
	touch $@

# Jars by Maven: ZooKeeper's for `pyrklog dev`; Kafka's and Spark's for tests and benchmark, and a
# PostgreSQL server.
.cache/%.done: ci/java/%.xml
	@command -v mvn > /dev/null || { \
	  echo "mvn is not on the PATH: .cache/$* is filled by Maven, with JDK 17" >&2; exit 1; }
	rm -rf .cache/$* && mkdir -p .cache/$*
	mvn --batch-mode --quiet --file $< org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
	  -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/.cache/$*
	touch $@

# Debian's Prometheus, and a file system that can hang: unpacked there, not installed.
.cache/prometheus.done: ci/debian_tools.py
	rm -rf .cache/prometheus && mkdir -p .cache/prometheus
	$(PYTHON) $< .cache/prometheus
	touch $@

# Where neither the PATH nor apt has it, its tests say so.
.cache/kcat.done: ci/debian_tools.py
	rm -rf .cache/kcat && mkdir -p .cache/kcat
	command -v kcat > /dev/null || $(PYTHON) $< .cache/kcat kcat || echo "kcat's tests will be skipped" >&2
	touch $@

.cache/%.jsa: .cache/%.done tests/support/class_archives.py .venv/.dev | $(CORE)
	PYTHONPATH=python $(BIN)/python -m tests.support.class_archives $*

# A Python client beside the one of the same name in .venv.
.cache/old-clients.done: ci/old-clients.txt .venv/.made
	rm -rf .cache/old-clients
	$(BIN)/pip install --quiet --disable-pip-version-check --target .cache/old-clients -r $<
	touch $@
