# Everything happens inside the checkout: .venv/ for tools, out/ for results.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile -c constraints.txt
# Bytecode on all cores, where pip uses one; what is left out, or written for another Python, is compiled where
# it is imported.
COMPILE := $(BIN)/python -m compileall -qq -j 0 -x '/tests?/|/transformers/models/' .venv/lib || true

# Every command under test would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check bench docs notebooks clean

demo: .venv/core.ready  ## recover a hidden head and say where the picture is
	$(BIN)/unsoftmax demo

test: .venv/dev.ready  ## all tests, doctests included
	$(BIN)/python -m pytest -n 2

check: .venv/dev.ready  ## lint and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: .venv/dev.ready  ## writes docs/benchmarks.md
	$(BIN)/python -m benchmarks

docs: .venv/docs.ready  ## the site, strictly: a broken link ends the build
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open out/site/index.html"

notebooks: .venv/dev.ready  ## run docs/notebooks and store their outputs
	$(BIN)/python docs/_site/execute_notebooks.py

clean:
	rm -rf .venv out .mypy_cache .ruff_cache .pytest_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/core.ready: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) -e .
	$(COMPILE)
	touch $@

.venv/docs.ready: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) -e '.[docs]'
	$(COMPILE)
	touch $@

.venv/dev.ready: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) -e '.[torch,onnx,dask,fast,grpc,docs,dev]'
	$(COMPILE)
	touch $@ .venv/core.ready .venv/docs.ready
