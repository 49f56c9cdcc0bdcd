# Every target sets the checkout up first; once set up, that costs nothing.
#   make demo ARGS='training.steps=200'      make test ARGS='-k wilson'

BIN := .venv/bin
LANE311 := .venv-openpi
ORACLE := .venv-oracle
LIVE_OPENPI := .venv-live-openpi
ISAACLAB := .venv-isaaclab
ROBOSUITE := .venv-robosuite
OPENPI_CLIENT := .venv-openpi-client
DEMO := runs/demo
GPU := runs/gpu
PYTHON := $(firstword $(wildcard $(BIN)/python) python3)
ARGS :=
# How many processes share the tests, each with a model of its own in memory; WORKERS=0 is this one alone (pdb, -s).
WORKERS := $(shell n=$$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN); echo $$((n < 8 ? n : 8)))
# Neighbouring tests stay together, as far as they can: they share fixtures and what was compiled.
SHARED := -n $(WORKERS) --dist worksteal

.DEFAULT_GOAL := help
export URDF
.PHONY: help setup lanes demo arm demo-clean test test-all test-py311 test-oracle test-openpi test-openpi-client test-isaaclab test-robosuite \
	lint format types bench gpu clean clean-all

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: ## .venv with every extra
	@sh scripts/setup.sh

demo: setup ## from a URDF to a success rate with an interval, on 2 CPU cores; ARGS=... overrides
	@$(BIN)/morph-vla demo $(ARGS)

arm: setup ## your arm by its URDF alone, from pictures, filmed, in half a minute; URDF=~/Downloads/my_arm.urdf
	@urdf="$$URDF"; case "$$urdf" in "~/"*) urdf="$$HOME/$${urdf#??}";; esac; name=$$(basename "$$urdf"); \
		test -n "$$urdf" || { echo "make arm URDF=~/Downloads/my_arm.urdf" >&2; exit 2; }; \
		test -f "$$urdf" || { echo "make arm: no such file: $$urdf" >&2; exit 2; }; \
		$(BIN)/morph-vla demo --zero-shot --poses-from poses-exterior --robot "$$urdf" -o "runs/$${name%.*}" $(ARGS)

demo-clean: ## remove what the demo left
	rm -rf $(DEMO)

test: setup ## every test but the slow ones: minutes
	@$(BIN)/python -m pytest -q $(SHARED) -m 'not slow' $(ARGS)

test-all: setup ## and the slow ones; .ci/run takes a quarter of those at a commit
	@$(BIN)/python -m pytest -q $(SHARED) $(ARGS)

# What .ci/run's other lanes run in; it makes them while the main lane's tests run.
IN_LANE311 := $(LANE311) 3.11 model,draw,dev 'jax==0.5.3' 'flax==0.10.2' 'orbax-checkpoint==0.11.13' 'numpy<2'
IN_ORACLE := $(ORACLE) 3.12 model,dev 'lerobot[pi]>=0.6.1,<0.7'
IN_ISAACLAB := $(ISAACLAB) 3.12 model,isaaclab,dev
lanes: ## the environments of test-py311, test-oracle and test-isaaclab
	@sh scripts/setup.sh $(IN_LANE311)
	@sh scripts/setup.sh $(IN_ORACLE)
	@sh scripts/setup.sh $(IN_ISAACLAB)

# The same code at openpi's pins, where it must run inside openpi's own trainer: the rooms that go there. That the
# laws notice mistakes is shown once, at current releases.
test-py311: ## the rooms that run inside openpi, at openpi's pins (Python 3.11, JAX 0.5.3)
	@sh scripts/setup.sh $(IN_LANE311)
	@$(LANE311)/bin/python -m pytest -q $(SHARED) $(wildcard tests/robots tests/morphology tests/pi05 tests/weights tests/hosts) \
		--ignore-glob='*mutations*' $(ARGS)

# LeRobot's pi0.5 needs a transformers that the main environment does not have.
test-oracle: ## LeRobot's own pi0.5 as an oracle, in an environment with lerobot[pi]
	@sh scripts/setup.sh $(IN_ORACLE)
	@MORPH_VLA_ORACLE=1 $(ORACLE)/bin/python -m pytest -q -s -W ignore tests/oracle $(ARGS)

# openpi-client is held to numpy < 2: it asks from an environment of its own, the server is the main one.
test-openpi-client: setup ## our policy server against the real openpi-client
	@sh scripts/setup.sh $(OPENPI_CLIENT) 3.11 serve 'openpi-client==0.1.2' typing_extensions 'numpy<2'
	@MORPH_VLA_OPENPI_CLIENT=$(OPENPI_CLIENT)/bin/python $(BIN)/python -m pytest -q tests/serving/test_openpi_client.py $(ARGS)

# Its wheel pins torch, numpy, MuJoCo 3.12 and Newton: an environment of its own, with the model beside it.
test-isaaclab: ## Isaac Lab's engine on this machine's CPU, in an environment of about 9 GB
	@sh scripts/setup.sh $(IN_ISAACLAB)
	@$(ISAACLAB)/bin/python -m pytest -q -W ignore tests/engines/test_contract.py -k isaaclab -m 'not slow' $(ARGS)

# robosuite's own requirements hold numpy below 2: it is installed without them, after what it uses.
test-robosuite: ## robosuite's tasks on its seven arms, in an environment of about 2 GB
	@NO_DEPS='robosuite==1.5.2' sh scripts/setup.sh $(ROBOSUITE) 3.12 lerobot,robosuite,dev
	@$(ROBOSUITE)/bin/python -m pytest -q -W ignore tests/engines/test_robosuite.py tests/engines/test_robosuite_suites.py tests/demonstrations/test_robosuite_plan.py $(ARGS)

# openpi cannot be installed from a package registry: give a checkout. Its lerobot is a git commit, whose import
# tests/live_openpi/stub satisfies. Its trainer does not run at current releases; there, the models are compared.
OPENPI_NEEDS := beartype chex ml_collections augmax einops equinox flatbuffers fsspec imageio numpydantic pillow sentencepiece \
	torch tqdm-loggable tyro wandb filelock treescope rich dm-tree websockets msgpack etils pytest hypothesis \
	'transformers<5'
TEST_OPENPI := -m pytest -q -o addopts= -W ignore -s
test-openpi: ## openpi itself as an oracle, at its pins and at current releases; OPENPI=path of a checkout
	@test -f "$(OPENPI)/scripts/train.py" || { echo "make test-openpi OPENPI=path of a checkout of openpi" >&2; exit 2; }
	@sh scripts/setup.sh $(LIVE_OPENPI) 3.11 model $(OPENPI_NEEDS) 'jax==0.5.3' 'flax==0.10.2' \
		'orbax-checkpoint==0.11.13' 'numpy<2' 'jaxtyping==0.2.36' 'beartype==0.19.0' 'transformers==4.53.2'
	@OPENPI="$(OPENPI)" $(LIVE_OPENPI)/bin/python $(TEST_OPENPI) tests/live_openpi $(ARGS)
	@sh scripts/setup.sh $(LIVE_OPENPI)-now 3.12 model $(OPENPI_NEEDS) 'jaxtyping<=0.2.38'
	@OPENPI="$(OPENPI)" $(LIVE_OPENPI)-now/bin/python $(TEST_OPENPI) $(addprefix \
		tests/live_openpi/test_,oracle.py preprocessing.py hosted_model.py data.py) $(ARGS)

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

# Not `setup`: nothing can be fetched on such a machine, and whatever JAX it has is used.
gpu: ## the list for a machine with one accelerator, in parts that resume: GPU=folder PYTHON= WHEELS= OPENPI= DATASET=
	@$(if $(WHEELS),$(PYTHON) -m pip install -q --no-index --no-deps --upgrade --target $(GPU)/site $(WHEELS)/*.whl)
	@PYTHONPATH=.:$(GPU)/site:$(PYTHONPATH) $(PYTHON) -m benchmarks.gpu $(GPU) $(if $(OPENPI),--openpi $(OPENPI)) \
		$(if $(DATASET),--dataset $(DATASET)) $(ARGS)

clean: ## caches and builds
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

clean-all: clean demo-clean ## and the environments
	rm -rf .venv $(LANE311) $(ORACLE) $(LIVE_OPENPI) $(LIVE_OPENPI)-now $(ISAACLAB) $(ROBOSUITE) .tools
