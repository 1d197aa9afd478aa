# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test test-all lint env sanitize bench engines clean

# The stamps name the files that decide what is installed: the environment is made again when
# one of them changes.
SOURCES := pyproject.toml constraints.txt $(wildcard native/*)

$(VENV)/made:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade 'pip>=25.1'
	touch $@

$(VENV)/installed: $(VENV)/made $(SOURCES)
	$(PIP) install --constraint constraints.txt --editable '.[transformers,plots]'
	touch $@

# Holds all that the demo needs too.
$(VENV)/installed-dev: $(VENV)/made $(SOURCES)
	$(PIP) install --constraint constraints.txt --group dev --editable '.[transformers,plots,jax,onnx]'
	touch $(VENV)/installed $@

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

# The kernels built with the address and undefined-behaviour sanitizers, under their tests.
# Python itself leaks at exit and is not looked at.
SANITIZED := build/sanitized
SANITIZERS = $(shell $(CXX) -print-file-name=libasan.so) $(shell $(CXX) -print-file-name=libubsan.so)
sanitize: env
	$(BIN)/cmake -S native -B $(SANITIZED) -DROPEWALK_SANITIZE=ON \
	  -DPython_EXECUTABLE=$(abspath $(BIN))/python \
	  -DCMAKE_PREFIX_PATH=$$($(BIN)/python -m nanobind --cmake_dir)
	$(BIN)/cmake --build $(SANITIZED) --parallel 2
	LD_PRELOAD="$(SANITIZERS)" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	  ROPEWALK_NATIVE=$$(echo $(SANITIZED)/_native*.so) \
	  $(BIN)/python -m pytest tests/test_native.py tests/test_fused.py tests/test_tables.py \
	  tests/test_table_cache.py

# Every peer in one run on the same tensors; the table lands in docs/results/speed.
bench: env
	$(PIP) install --constraint constraints.txt --group bench
	$(BIN)/python -m benchmarks.cpu --out docs/results/speed

# The engines beside Ropewalk, and the tests that run their code. llama.cpp is compiled, which
# takes minutes: its library alone, without tools, tuned to no machine.
LLAMA_CPP := -DGGML_NATIVE=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
  -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAVA_BUILD=OFF -DLLAMA_OPENSSL=OFF
engines: env
	CMAKE_ARGS="$(LLAMA_CPP)" $(PIP) install --constraint constraints.txt --no-deps --group engines
	$(BIN)/python -m pytest -m 'slow or not slow' tests/test_engine_rules.py \
	  tests/test_llama_cpp.py tests/test_engine_packages.py

clean:
	rm -rf $(VENV) demo build dist
