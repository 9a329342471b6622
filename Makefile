# Two commands set everything up: `make demo` and `make test`. Each makes .venv with plain pip.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test quick check bench clean

demo: .venv/run.done
	mkdir -p out
	$(BIN)/fdml demo --json out/demo.json --plot out/demo.png

# The end-to-end tests keep deadlines, so nothing else runs beside them.
test: check
	$(BIN)/python -m pytest -n 3 --dist loadgroup --ignore tests/end_to_end
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/end_to_end

quick: .venv/dev.done
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow"

check: .venv/dev.done
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# One benchmark by name: make bench NAME=speed JSON=benchmarks/results/speed.json
bench: .venv/dev.done
	$(BIN)/python -m benchmarks $(or $(NAME),kernels) $(if $(JSON),--json $(JSON))

.venv/made.done:
	$(PYTHON) -m venv .venv
	touch $@

.venv/run.done: .venv/made.done pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

.venv/dev.done: .venv/made.done pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[torch,dev]"
	touch $@ .venv/run.done

clean:
	rm -rf .venv out .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find fdml benchmarks simulator tests -name __pycache__ -prune -exec rm -rf {} +
