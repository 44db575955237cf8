# The two commands of a newcomer are `make quickstart` and `make test`.

PYTHON ?= python3
VENV := .venv
# A file stays in one process, which makes its fixtures once. Three processes on two cores, because a quarter
# of the time is spent waiting: for a file's end, a lock, a process that a test starts. If a process crashes, the run
# ends with the name of its test; pytest-xdist 3.8 would wait for ever after it has replaced the process.
PROCESSES = 3
# Keep compiled tests and modules, even where containers turn that off: hundreds of processes load them.
export PYTHONDONTWRITEBYTECODE =
TESTS = $(VENV)/bin/python -m pytest --numprocesses=$(PROCESSES) --dist=loadfile --no-loadscope-reorder --max-worker-restart=0

.PHONY: quickstart test test-night test-all faults fuzz coverage docs lint format clean

quickstart: $(VENV)/.installed
	$(VENV)/bin/python examples/quickstart.py

test: $(VENV)/.installed-test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(TESTS) -m "not night"

# Faults, the commands of README.md, several workers, examples, packaging.
test-night: $(VENV)/.installed-test
	$(TESTS) -m "night and not weekly"

test-all: test test-night
	$(TESTS) -m weekly

# The long forms of tests/faults and of the fuzzing of readers.
faults: $(VENV)/.installed-test
	FAULTS=5 $(VENV)/bin/python -m pytest tests/faults --numprocesses=2 --dist=load

fuzz: $(VENV)/.installed-test
	FUZZ_SCALE=80 $(VENV)/bin/python -m pytest tests/test_fuzz_targets.py

# Which lines the tests reach, those of subprocesses included; what TensorFlow traces is not seen. Tests
# that limit the size of a file fail, since coverage writes files as well.
coverage: $(VENV)/.installed-test
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check pytest-cov
	$(TESTS) --cov --cov-report=term-missing:skip-covered

# The site, in site/. A broken anchor or a page without a place in the menu is an error.
docs: $(VENV)/.installed-test
	$(VENV)/bin/python -m mkdocs build --strict --quiet

lint: $(VENV)/.installed-test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

format: $(VENV)/.installed-test
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip

$(VENV)/.installed: setup.py | $(VENV)/bin/python
	@echo "Installing TensorFlow and bert_tf into $(VENV) (about 2 GB, a few minutes the first time) ..."
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed-test: setup.py | $(VENV)/bin/python
	@echo "Installing TensorFlow, bert_tf and the test tools into $(VENV) (a few minutes the first time) ..."
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .ruff_cache .mypy_cache
