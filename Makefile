# `make demo` trains, saves and serves a model; `make test` runs the tests. Both install what they need.
PYTHON ?= python3

.PHONY: demo test

demo: .venv/installed
	.venv/bin/python -m keras_lrn

test: .venv/installed
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/python -m pytest -n 2

.venv/installed: pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'Python 3.11 or newer is needed')"
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --editable ".[demo,test]"
	touch $@
