# `make up` and `make test` are all that a newcomer needs. Everything lives in .venv; a second call does only what changed.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# tests start thousands of processes: each would compile our modules again, which takes as long as to load them
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# how many seeds `make simulate` runs
SEEDS ?= 1000
# how many streams `make differential` compares
STREAMS ?= 1000
# how long `make chaos` lasts and `make fuzz` looks at each target, in seconds
SECONDS ?= 600
# how many records `make kafka-clients` sends with each codec
RECORDS ?= 100000
# how often `make nothing-lost` strikes
STRIKES ?= 16
# the interpreters that `make installs` and `make test-long` try with the newest dependencies
PYTHONS ?= $(abspath $(BIN)/python)
# how often `make sink-kills` kills the driver
KILLS ?= 20
# what `make test` runs, in this order: the quick and telling ones first
SUITES := $(wildcard $(addprefix tests/,tidy unit scenarios model simulation integration browser conformance chaos pipeline))
# how the tests of a suite run side by side (tidy has the types beside it); those marked `alone` judge how quick something is, and run last
SIDE_BY_SIDE := -n logical --maxprocesses 4
ON_ALL_CORES_tests/unit := $(SIDE_BY_SIDE)
ON_ALL_CORES_tests/scenarios := $(SIDE_BY_SIDE)
ON_ALL_CORES_tests/model := $(SIDE_BY_SIDE)
ON_ALL_CORES_tests/simulation := $(SIDE_BY_SIDE)
# these wait often, and begin with the longest files (tests/integration/conftest.py)
ON_ALL_CORES_tests/integration := -n 4 --dist loadfile --no-loadscope-reorder
ON_ALL_CORES_tests/conformance := -n 3 --dist loadfile
# each worker has a cluster and a browser of its own
ON_ALL_CORES_tests/browser := -n 3 --dist loadfile
# both wait most of the time, for strikes and for virtual machines: they run together
ON_ALL_CORES_tests/chaos := tests/ecosystem -n 3 --dist loadfile
# each worker has a Spark of its own; they begin with the longest files (tests/pipeline/conftest.py)
ON_ALL_CORES_tests/pipeline := -n 3 --dist loadfile --no-loadscope-reorder

.PHONY: help up test test-long style lint format site dist installs kubernetes helm java maven strace systemd-analyze promtool kcat chromium toxiproxy faketime client-tools bench nothing-lost sink-kills kafka-clients clients ecosystem chaos chaos-check differential fuzz simulate simulate-defects clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' Makefile

up: $(VENV)/.installed ## start three nodes on 2181-2183 and three brokers on 9092-9094, until Ctrl-C (options: make up ARGS="--nodes 1 --brokers 1")
	@exec $(BIN)/quorate up $(ARGS)

test: style java maven strace systemd-analyze promtool kcat chromium toxiproxy ## everything that must pass on every change
	@$(BIN)/mypy & types=$$!; \
	minutes=; took() { minutes+=$$(printf '\n%7.1f  %s' "$$((10 * ($$(date +%s) - $$begun) / 6))e-2" "$$1"); }; \
	$(foreach suite,$(SUITES),echo "== $(suite)"; begun=$$(date +%s); \
	  $(BIN)/python -m pytest $(suite) -m "not long and not alone" $(ON_ALL_CORES_$(suite)) $(ARGS); \
	  $(if $(filter tests/tidy,$(suite)),wait $$types;) took $(suite);) \
	echo "== alone"; begun=$$(date +%s); \
	$(BIN)/python -m pytest $$(grep -rl --include='*.py' 'pytest\.mark\.alone' $(SUITES)) -m "alone and not long" $(ARGS); took "alone: what judges times"; \
	echo "minutes:$$minutes"

test-long: $(VENV)/.installed-dev java maven strace systemd-analyze helm kcat toxiproxy faketime ## the tests that take minutes: once before a release
	PYTHONS="$(PYTHONS)" $(BIN)/python -m pytest tests -m long $(ARGS)

style: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint: style ## style, format and types
	$(BIN)/mypy

format: $(VENV)/.installed-dev ## mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-bench java maven ## Quorate beside ZooKeeper and etcd, to bench-results/ (options: ARGS="--cases write,read --rounds 5")
	$(BIN)/python -m pytest tests/bench
	$(BIN)/python -m tests.bench $(ARGS)

nothing-lost: $(VENV)/.installed-dev ## brokers and nodes struck while producers produce: is every record there? (options: STRIKES=16 ARGS="--seed 5")
	$(BIN)/python -m tests.support.nothing_lost_brokers --strikes $(STRIKES) $(ARGS)

sink-kills: $(VENV)/.installed-dev java maven ## the Spark sink's driver killed at random instants: is every row there once? (options: KILLS=20 ARGS="--seed 5 --form kafka")
	$(BIN)/python -m tests.support.sink_kills --kills $(KILLS) $(ARGS)

kafka-clients: $(VENV)/.installed-dev kcat ## unchanged Kafka clients send and read RECORDS with each codec (options: RECORDS=100000)
	KAFKA_RECORDS=$(RECORDS) $(BIN)/python -m pytest tests/conformance/test_kafka_python.py \
	  tests/conformance/test_confluent_kafka.py tests/conformance/test_kcat.py

clients: $(VENV)/.installed-dev java maven client-tools ## unchanged clients in Go, JavaScript, Rust, Java and Python make the tours of their READMEs
	$(BIN)/python -m pytest tests/clients tests/conformance/test_client_tours.py $(ARGS)

ecosystem: $(VENV)/.installed-dev java maven ## Kafka Connect, Kafka Streams, Flink and transactional producers run unchanged, beside kills
	$(BIN)/python -m pytest tests/ecosystem $(ARGS)

chaos: $(VENV)/.installed-dev toxiproxy faketime ## workloads under faults, judged by checkers (options: SECONDS=600 SEED= WORKLOAD= NEMESIS= NODES=3)
	$(BIN)/python -m tests.chaos --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(WORKLOAD),--workload $(WORKLOAD)) \
	  $(if $(NEMESIS),--nemesis $(NEMESIS)) $(if $(NODES),--nodes $(NODES)) $(ARGS)

chaos-check: $(VENV)/.installed-dev ## judge a recorded chaos run again (HISTORY=chaos-results/…)
	$(BIN)/python -m tests.chaos --check $(HISTORY)

differential: $(VENV)/.installed-dev java ## requests compared with a real ZooKeeper (options: STREAMS=1000 ARGS="--seed 5000")
	$(BIN)/python -m tests.conformance.differential --streams $(STREAMS) $(ARGS)

fuzz: $(VENV)/.installed-dev ## odd input for decoders, apply and connections, each for SECONDS (options: SECONDS=600 ARGS="--seed 2")
	@for target in decoder apply connection; do echo "== $$target"; \
	  $(BIN)/python -m tests.fuzz $$target --seconds $(SECONDS) $(ARGS); done

simulate: $(VENV)/.installed-dev ## seeds of the simulated world, on all cores (options: SEEDS=1000 ARGS="--profile disks", or control-plane)
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(ARGS)

simulate-defects: $(VENV)/.installed-dev ## is each of our rules found when it is switched off? (hours)
	$(BIN)/python -m tests.simulation.rules $(ARGS)

site: $(VENV)/.installed-dev ## the documentation site, to build/docs/site
	@$(BIN)/python -m tests.site

dist: $(VENV)/.installed-dev ## the wheel and the sdist of a release, to dist/
	rm -rf dist
	$(BIN)/python -m hatchling build -t sdist -t wheel -d dist
	$(BIN)/check-wheel-contents dist/*.whl

installs: $(VENV)/.installed-dev ## the wheel with the lowest and the newest dependencies (options: PYTHONS="3.12 3.13")
	PYTHONS="$(PYTHONS)" $(BIN)/python -m pytest tests/integration/test_installs.py -m long $(ARGS)

java: ## see that a JDK of Java 17 or newer is there: a real ZooKeeper is the oracle of the tests
	@bash deploy/ensure-java.sh

strace: ## see that strace is there: a test checks that what is acknowledged is durable
	@bash deploy/ensure-strace.sh

systemd-analyze: ## see that systemd-analyze is there: it judges the units of deploy/systemd
	@bash deploy/ensure-systemd-analyze.sh

promtool: $(VENV)/.installed-dev ## see that promtool is there: it tries the alert rules
	@bash deploy/ensure-promtool.sh $(BIN)

helm: $(VENV)/.installed-dev ## see that Helm is there: it renders the chart
	@bash deploy/ensure-helm.sh $(BIN)

kubernetes: helm ## render the chart of deploy/helm with its defaults again, to deploy/kubernetes.yaml
	@$(BIN)/python -m tests.support.chart

maven: ## see that Maven is there: it fetches what tests take of Apache Kafka
	@bash deploy/ensure-maven.sh

kcat: ## see that kcat is there: an unchanged Kafka client of the tests
	@bash deploy/ensure-kcat.sh

chromium: ## see that Chromium is there: the pages of the console are tested in it
	@bash deploy/ensure-chromium.sh

client-tools: ## see that Go, Node.js and Rust are there: they build unchanged clients
	@bash deploy/ensure-client-tools.sh

toxiproxy: $(VENV)/.installed-dev ## see that toxiproxy is there: the chaos tests put every link behind it
	@bash deploy/ensure-toxiproxy.sh $(BIN)

faketime: ## see that libfaketime is there: chaos lets the clocks of nodes jump
	@bash deploy/ensure-faketime.sh

clean: ## remove the environment and the caches, never data/
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: $(PYTHON) is missing or older than Python 3.11" >&2; \
	  echo "remedy: install Python 3.11 or newer, or name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) || { \
	  echo "error: $(PYTHON) cannot make a virtual environment" >&2; \
	  echo "remedy: install its venv module (Debian: apt-get install python3-venv)" >&2; exit 1; }
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml
	@echo "installing quorate into $(VENV)"
	@$(PIP) install --editable '.[brokers]' || { \
	  echo "error: quorate could not be installed into $(VENV): see above" >&2; \
	  echo "remedy: see that the package index can be reached, and run it again" >&2; exit 1; }
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.created pyproject.toml
	@echo "installing quorate and what its tests need into $(VENV)"
	@$(PIP) install --editable '.[dev]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-bench: $(VENV)/.installed-dev
	@echo "installing what the benchmarks need besides into $(VENV)"
	@$(PIP) install --editable '.[dev,bench]'
	@touch $@
