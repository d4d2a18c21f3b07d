# What developers do, by name. Every target does the set-up it needs.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup test lint format docs bench demo clean

setup: $(READY)

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(READY)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Two processes with one thread each beat one with two for the small networks of the tests; stealing work keeps the
# tests of a file together, so that what they share is made once.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo 'The documentation: site/index.html; with a search once served, as by .venv/bin/mkdocs serve'

bench: $(READY)
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m pip install --quiet --no-deps mbrl==0.2.0 stable-baselines3==2.9.2 d3rlpy==2.8.1
	$(BIN)/python benchmarks/relabel.py
	$(BIN)/python benchmarks/planning.py
	$(BIN)/python benchmarks/learning.py
	$(BIN)/python benchmarks/reaching.py

# Another seed: make demo SEED=1
SEED ?= 0
demo: $(READY)
	@echo 'An agent is put into a maze that nobody has shown it. It gets no reward and no demonstrations.'
	@echo 'In about ten minutes it explores, learns how far things are, and goes where it is told to.'
	$(BIN)/curioplan run maze_large --out runs/demo-$(SEED) --seed $(SEED) --steps 12000 --updates 7000 \
		--cases own,random:12 --video
	@echo 'Next: open the report above in a browser, or send the agent about yourself:'
	@echo "  $(BIN)/python -m pip install --editable '.[web]' && $(BIN)/curioplan play runs/demo-$(SEED)"

clean:
	rm -rf .venv build dist site src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
