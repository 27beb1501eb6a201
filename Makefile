.DEFAULT_GOAL := help
PYTHON ?= python
# Tests start thousands of processes: without bytecode files each of them would compile the project again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help check lint types imports unused collect test long-tests tool-tests all-tests quick cloud cloud-all debian published ray fuzz faults focus tasks damage kills format trainers golden pictures bench big compare goodput forecast promises quickstart examples sample docs dist lock audit clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

check: ## All gates: ruff, mypy strict, import contracts, unused code, and the short tests
	@$(MAKE) --jobs 2 lint types imports unused collect
	@$(MAKE) test

lint: ## Style and formatting
	ruff check .
	ruff format --check .

types: ## mypy, strict
	mypy

imports: ## Import contracts between and inside the packages
	lint-imports

unused: ## Code that nothing but a test reaches
	vulture

# Next to mypy, which takes longest, this costs no time. The test workers then find bytecode, which otherwise each of them
# would compile for itself, at the same moment.
collect: ## Import all tests, and run none
	@out=$$($(PYTHON) -m pytest --collect-only -qq 2>&1) || { echo "$$out" | tail -n 60; exit 1; }

# Tests of real processes may meet a computer that stands still for seconds. A few of them are tried once more, and what
# failed at first is printed. Tests of decisions and data are not.
PATIENCE := --reruns 1 --max-suite-reruns 6 --rerun-show-tracebacks \
  --rerun-exclude-path tests/bidbrain --rerun-exclude-path tests/pricing_data

PYTEST = $(PYTHON) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=15 $(PATIENCE)
WORKERS := auto
# The short tests compute and hardly wait, and every worker imports all tests.
test: WORKERS := 2

test: ## The tests that take minutes together, in random order on all cores; of those that are many and alike a sample
	SPOTCTL_TEST_PART=short SPOTCTL_TEST_SAMPLES=1 $(PYTEST) --timeout 300

# CI runs those of one file in so many, drawn anew each time: FILES=6.
long-tests: ## The tests that make test leaves out because they take long; of those that are many and alike a sample
	SPOTCTL_TEST_PART=long SPOTCTL_TEST_SAMPLES=1 SPOTCTL_TEST_ONE_FILE_IN=$(FILES) $(PYTEST)

tool-tests: ## The tests of tests, measurements and simulated clouds
	SPOTCTL_TEST_PART=tool SPOTCTL_TEST_ONE_FILE_IN=$(FILES) $(PYTEST)

all-tests: ## All tests without exception, in random order on all cores
	$(PYTEST)

quick: ## The tests that take less than five seconds each
	$(PYTHON) -m pytest -n auto --dist loadfile -m "not slow"

cloud: ## The tests that need machines made of namespaces (root, openssh-server), of many alike a sample, and their count
	@report=$$(mktemp); \
	SPOTCTL_TEST_SAMPLES=1 $(PYTHON) -m pytest -n auto --dist loadfile -m cloud --junitxml=$$report tests/cloud tests/spotctl; \
	status=$$?; $(PYTHON) .ci/count.py $$report; rm -f $$report; exit $$status

cloud-all: ## The longest of these on all three clouds: trainings, containers, remote and lost runners, doctor, try, refused launches
	SPOTCTL_TEST_CLOUDS=all $(PYTHON) -m pytest -n auto --dist load $(addprefix tests/cloud/test_,launch.py placement.py pipeline.py container_job.py environment.py admit.py remote_runner.py remote_matrix.py runner_lost.py slow_network.py doctor.py try.py full_trial.py bad_input.py vast_training.py)

debian: ## Cloud tests on machines that are a Debian 13, and on ARM machines (root, debootstrap, qemu-user-static, registries)
	$(PYTHON) -m tests.cloud.debian
	$(PYTHON) -m pytest tests/cloud/test_debian.py
	SPOTCTL_TEST_RELEASE=trixie SPOTCTL_TEST_CLOUDS=all $(PYTHON) -m pytest -n auto --dist load $(addprefix tests/cloud/test_,launch.py remote_runner.py remote_matrix.py)

published: ## All 23 results of the published Gavel simulator, job by job, and the processor time that ours takes for each
	$(PYTHON) -m pytest tests/bidbrain/lab/gavel/test_published.py
	$(PYTHON) -m bench.gavel_simulator published

ray: ## What every fleet must do, and random faults, on Ray clusters of this computer (as root: one of three hosts)
	SPOTCTL_TEST_RAY=all $(PYTHON) -m pytest tests/agileml/engines/test_ray.py tests/agileml/engines/test_ray_hosts.py
	$(PYTHON) -m tests.agileml.ray_schedules 0 5

trainers: ## The hooks for Lightning and the Hugging Face Trainer (pip install '.[lightning,transformers]')
	SPOTCTL_TEST_TRAINERS=all $(PYTHON) -m pytest tests/spotctl/integrations tests/agileml/torch/test_*lightning*.py tests/agileml/torch/test_*transformers*.py tests/spotctl/trials/test_trainer.py

# ONLY=plans compares only commands whose names have this word, and ONLY='plans*' those of this group. Recordings are kept in
# ~/.cache/spotctl-golden: BASE is recorded once, and the present tree once for each content, or with AGAIN=1 once more.
golden: ## Compare what commands and plans print with what they print at another commit: make golden BASE=commit ONLY=plans
	$(PYTHON) -m tests.golden $(BASE) $(if $(ONLY),--only $(foreach one,$(ONLY),'$(one)')) $(if $(AGAIN),--again)

fuzz: ## The property tests with new random examples
	HYPOTHESIS_PROFILE=fuzz $(PYTHON) -m pytest -n auto --dist loadfile -m hypothesis

faults: ## 5,000 random fault schedules in virtual time and 200 on processes that are really killed; pipelines; outages at every call
	$(PYTHON) -m tests.agileml.faults 0 5000
	$(PYTHON) -m tests.agileml.local_faults 0 200
	$(PYTHON) -m tests.agileml.pipeline.run.elastic_schedules 0 500
	$(PYTHON) -m tests.agileml.pipeline.run.fleet_jobs 0 50
	$(PYTHON) -m tests.spotctl.run.outages
	$(PYTHON) -m tests.spotctl.run.local_outages
	$(PYTHON) -m tests.cloud.outages

focus: ## Check a FOCUS 1.0 export with focus-validator from PyPI, in an environment of its own
	$(PYTHON) -m tests.spotctl.show.costs.focus_validator

tasks: ## Compare the jobs that init makes of tasks of SkyPilot and dstack with their own parsers, in environments of their own
	$(PYTHON) -m tests.spotctl.files.peer_parsers skypilot
	$(PYTHON) -m tests.spotctl.files.peer_parsers dstack

damage: ## Every byte of a small price store, and of a small log, changed in turn: an error, a remark, or the right answer
	SPOTCTL_STORE_DAMAGE=all $(PYTHON) -m pytest tests/pricing_data/store/test_damage.py tests/spotctl/log/test_damaged_bytes.py

kills: ## Runners killed around every request to each cloud and write to the log, and at random moments; nights (root, cc)
	$(PYTHON) -m tests.spotctl.run.cloud_kills
	$(PYTHON) -m tests.spotctl.run.kills --moments 100
	$(PYTHON) -m tests.spotctl.run.kills --jumps 20
	$(PYTHON) -m tests.spotctl.run.kills --standstills 8 --workers 8
	$(PYTHON) -m tests.spotctl.nightly.night_kills

format: ## Reformat the code
	ruff check --fix .
	ruff format .

bench: ## Run all benchmarks and write build/benchmarks.md
	$(PYTHON) -m bench

big: ## Train a model of 1.5 GiB with one server, and state the memory of all processes
	$(PYTHON) -m bench.agileml_big

compare: ## Run all benchmarks and compare their ratios with bench/history.csv
	$(PYTHON) -m bench --compare

# TORCHFT=PYTHON is the interpreter of an environment with torchft.
goodput: ## Goodput of elastic training systems next to each other, with machines that are lost; takes about an hour
	$(PYTHON) -m bench.goodput $(if $(TORCHFT),--torchft $(TORCHFT))

forecast: ## Compare forecasts with what followed, and with ten launches of the quick start
	$(PYTHON) -m bench.forecast --launches 10

promises: ## Launch the examples and a job of init ten times each, next to eight busy programs: bill and hours in the plan's range
	$(PYTHON) -m bench.promised_launches --loops 8 --json bench/out/promises.json

quickstart: ## The README's quick start
	spotctl launch examples/quickstart.yaml --yes

EXAMPLES := $(wildcard examples/*.sh examples/*.py)

examples: $(EXAMPLES:examples/%=example-%) ## Run every example, each with its own home folder; with --jobs 2 two at a time

example-%:
	@echo "== examples/$*"; \
	home=$$(mktemp -d); \
	case $* in *.sh) run=bash;; *) run=$(PYTHON);; esac; \
	SPOTCTL_HOME=$$home $$run examples/$* || exit 1; \
	rm -rf $$home

sample: ## Regenerate the synthetic price history in the wheel
	$(PYTHON) -m bench.price_sample pricing_data/samples/prices.parquet

pictures: ## Draw the plots that the documentation shows
	spotctl lab train mf --nodes 1+3 --clocks 40 --engine sim --plot docs/pictures/training.png \
	  --chaos "at clock 15 evict half warn 5s; at clock 25 join 2"
	spotctl lab prices plot 'local/sim-east/*/c4.2xlarge' --last 12h --out docs/pictures/prices.png
	SPOTCTL_QUOTAS="local/*/c4=64" spotctl plan examples/quickstart.yaml examples/trainers/digits.yaml \
	  --plot docs/pictures/queue.png
	spotctl lab beta show local/sim-east/sim-east-a/c4.2xlarge --plot docs/pictures/beta.png
	$(PYTHON) -m bench.present_odds --day --moments 8 --markets 2 --only shipped 2016 gpu \
	  --plot docs/pictures/odds.png
	rm -f build/scores.jsonl && mkdir -p build
	$(PYTHON) -m bench.plan_scores --runs 10 --only us-west-2 --homes record --out build/scores.jsonl
	$(PYTHON) -m bench.plan_scores --runs 6 --only us-west-2 --homes runs --out build/scores.jsonl
	$(PYTHON) -m bench.plan_scores --runs 4 --only us-west-2 --homes nothing --out build/scores.jsonl
	$(PYTHON) -m bench.plan_scores --plot docs/pictures/scores.png build/scores.jsonl

docs: ## Build the site of the documentation in docs/_build (pip install '.[docs]'); needs no network
	sphinx-build -W --keep-going -q -b html docs docs/_build

dist: ## Build the wheel and the source package in dist/ and check them with twine
	@venv=$$(mktemp -d) && trap 'rm -rf "$$venv"' EXIT && rm -rf dist && $(PYTHON) -m venv $$venv && \
	$$venv/bin/pip install -q build twine && $$venv/bin/python -m build -q && $$venv/bin/twine check --strict dist/*

# The index is the one that uv is set up with; the files name none. PyTorch is left out: which of its builds fits a computer, its
# owner knows. What the tests ran with is what users get.
lock: ## Write the newest allowed versions with their hashes, for Python 3.11 to 3.13 on any computer, to requirements*.lock
	@venv=$$(mktemp -d) && trap 'rm -rf "$$venv"' EXIT && $(PYTHON) -m venv $$venv && $$venv/bin/pip install -q uv && \
	echo torch > $$venv/left-out && \
	$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])' > $$venv/build && \
	lock() { $$venv/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --no-emit-index-url --custom-compile-command "make lock" --excludes $$venv/left-out "$$@" pyproject.toml $$venv/build; } && \
	lock --extra test --output-file requirements-test.lock && \
	lock --constraints requirements-test.lock --output-file requirements.lock

audit: ## Look up published advisories about the locked packages: Error 1 if there are some, Error 3 if it could not look
	@venv=$$(mktemp -d) && trap 'rm -rf "$$venv"' EXIT && $(PYTHON) -m venv $$venv && $$venv/bin/pip install -q pip-audit && \
	$$venv/bin/python .ci/audit.py requirements-test.lock

clean: ## Remove caches and build output
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist docs/_build docs/generated *.egg-info
