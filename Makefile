.DEFAULT_GOAL := help
PYTHON ?= python

.PHONY: help check lint types imports test format bench quickstart examples sample clean

help: ## List the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

check: lint types imports test ## All gates: ruff, mypy strict, import contracts, tests

lint: ## Style and formatting
	ruff check .
	ruff format --check .

types: ## mypy, strict
	mypy

imports: ## The arrows between the packages
	lint-imports

test: ## The tests, in random order on all cores
	$(PYTHON) -m pytest -n auto --dist loadfile

format: ## Rewrite files in the project's format
	ruff check --fix .
	ruff format .

bench: ## Measure everything and write docs/benchmarks.md
	$(PYTHON) -m bench

quickstart: ## What the README shows first
	spotctl launch examples/quickstart.yaml --yes

examples: ## Every example, each with a home of its own
	@for example in examples/*.sh examples/*.py; do \
	  echo "== $$example"; \
	  home=$$(mktemp -d); \
	  case $$example in *.sh) run=bash;; *) run=$(PYTHON);; esac; \
	  SPOTCTL_HOME=$$home $$run $$example || exit 1; \
	  rm -rf $$home; \
	done

sample: ## Make the shipped synthetic price history again
	$(PYTHON) -m pricing_data.samples pricing_data/samples/prices.parquet

clean: ## Remove what the tools leave behind
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
