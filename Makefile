# Every target sets the checkout up first; once set up, that costs nothing.
#   make demo ARGS='training.steps=200'      make test ARGS='-k wilson'

BIN := .venv/bin
LANE311 := .venv-openpi
DEMO := runs/demo
ARGS :=

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-clean test test-lane311 lint format types bench clean clean-all

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: ## .venv with every extra
	@sh scripts/setup.sh

demo: setup ## from a URDF to a success rate with an interval, on 2 CPU cores; ARGS=... overrides
	@$(BIN)/morph-vla demo $(ARGS)

demo-clean: ## remove what the demo left
	rm -rf $(DEMO)

test: setup ## all tests
	@$(BIN)/python -m pytest -q $(ARGS)

# The same code at openpi's pins, where it must run inside openpi's own trainer: the rooms that go there.
test-lane311: ## the rooms that run inside openpi, at openpi's pins (Python 3.11, JAX 0.5.3)
	@sh scripts/setup.sh $(LANE311) 3.11 model,draw,dev \
		'jax==0.5.3' 'flax==0.10.2' 'orbax-checkpoint==0.11.13' 'numpy<2'
	@$(LANE311)/bin/python -m pytest -q $(wildcard tests/robots tests/morphology tests/pi05 tests/weights) $(ARGS)

lint: setup ## ruff: rules and layout
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: setup ## let ruff repair what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: setup ## pyright
	@$(BIN)/pyright

bench: setup ## timings of this checkout on this machine
	@$(BIN)/morph-vla bench $(ARGS)

clean: ## caches and builds
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

clean-all: clean demo-clean ## and the environments
	rm -rf .venv $(LANE311) .tools
