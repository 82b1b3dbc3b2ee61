# make demo   replay BLOOM-176B on 384 GPUs and draw it; needs Python 3.11 or newer and nothing else
# make docs   the documentation as a site in out/site, every link and anchor of it checked
# make test   style, types and the fast tests on all cores (it says how long they took); `make slow` for the others

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_FLAGS ?= -n auto

.PHONY: demo test slow docs clean

demo: $(VENV)/installed
	$(BIN)/trainsim run scenarios/bloom_3d.yaml --out out/bloom_3d
	@echo
	@echo "The Gantt chart of the step:     out/bloom_3d/gantt.png"
	@echo "The same as a page with numbers: out/bloom_3d/report.html"
	@echo "Every kernel of one pipeline:    out/bloom_3d/trace.json.gz, opens in https://ui.perfetto.dev"

test: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest $(PYTEST_FLAGS)

slow: $(VENV)/installed-test
	$(BIN)/pytest -m slow $(PYTEST_FLAGS)

docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "The documentation: out/site/index.html"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "trainsim needs Python 3.11 or newer: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -qq --disable-pip-version-check --editable .
	@touch $@

$(VENV)/installed-test: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[test]'
	@touch $@ $(VENV)/installed

$(VENV)/installed-docs: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[docs]'
	@touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) out
