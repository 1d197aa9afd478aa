# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test test-all lint env clean

# The stamp names the files that decide what is installed: the environment is made again
# when one of them changes.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade 'pip>=25.1'
	$(PIP) install --constraint constraints.txt --editable '.[transformers,plots]'
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(PIP) install --constraint constraints.txt --group dev --editable '.[transformers,plots,jax]'
	touch $@

env: $(VENV)/installed-dev

# The main job on the model in the package; its report and plot land in demo/.
demo: $(VENV)/installed
	$(BIN)/ropewalk verify
	$(BIN)/ropewalk measure --quick --out demo
	rm -rf demo/model-4096
	$(BIN)/ropewalk extend --to 4096 --write demo/model-4096

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest

# Also the tests that take minutes each.
test-all: lint
	$(BIN)/python -m pytest -m 'slow or not slow'

clean:
	rm -rf $(VENV) demo build dist
