"""From a job to a plan there is one way: each step is called from one place, and one module reads
the facts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from spotctl.planning.candidates import KindColumns
from spotctl.planning.facts import PlanningFacts
from spotctl.planning.values import (
    AllocatedJob,
    FirstDecision,
    Job,
    JobPlan,
    PlanCost,
)
from spotctl.run.start.launch_plans import JobPlans
from spotctl.run.start.stored_facts import LoggedTerms

ROOT = Path(__file__).parents[3]
STEPS = {
    "read_facts": ("spotctl.run.start.stored_facts", "spotctl/run/start/launch_plans.py"),
    "plan_jobs": ("spotctl.planning.plan", "spotctl/run/start/launch_plans.py"),
    "candidates": ("spotctl.planning.candidates", "spotctl/planning/plan.py"),
    "divide": ("spotctl.planning.share", "spotctl/planning/plan.py"),
    "rentable_fleet": ("spotctl.planning.fleet", "spotctl/planning/plan.py"),
    "build_decider": ("spotctl.planning.decider", "spotctl/planning/plan.py"),
    "first_decision": ("spotctl.planning.decider", "spotctl/planning/plan.py"),
    "estimate_cost": ("spotctl.planning.cost", "spotctl/planning/plan.py"),
}
READERS = {
    "arranged_facts": "spotctl.planning.facts",
    "beginning": "spotctl.planning.facts",
    "learn_from_runs": "spotctl.run.start.earlier_runs",
    "market_now": "spotctl.run.start.live_markets",
    "profiles_of": "spotctl.files.model_files",
}


@cache
def texts() -> Mapping[str, str]:
    """The modules of spotctl by their path."""
    return {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for path in (ROOT / "spotctl").rglob("*.py")
    }


@cache
def tree(file: str) -> ast.Module:
    return ast.parse(texts()[file])


def imports(module: str, name: str) -> list[str]:
    """The files of the product that import a name from a module; aliases would hide calls."""
    folder, _, last = module.rpartition(".")
    importing = []
    for file, text in texts().items():
        if name not in text and last not in text:
            continue
        for node in ast.walk(tree(file)):
            if not isinstance(node, ast.ImportFrom):
                continue
            aliases = {alias.name: alias.asname for alias in node.names}
            if node.module == module and name in aliases:
                assert aliases[name] is None, file
                importing.append(file)
            assert node.module != folder or last not in aliases, (
                f"{file} imports {module} as a whole"
            )
    return importing


def calls(file: str, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            yield node


@pytest.mark.parametrize("step", STEPS)
def test_each_step_is_called_from_one_place(step: str) -> None:
    module, caller = STEPS[step]
    assert imports(module, step) == [caller]
    assert len(list(calls(caller, step))) == 1
    own = module.replace(".", "/") + ".py"
    assert list(calls(own, step)) == []


@pytest.mark.parametrize("reader", READERS)
def test_the_facts_are_read_in_one_module(reader: str) -> None:
    assert imports(READERS[reader], reader) == ["spotctl/run/start/stored_facts.py"]


@pytest.mark.parametrize(
    "step", [step for step, (module, _) in STEPS.items() if ".planning." in module]
)
def test_a_module_begins_with_its_steps(step: str) -> None:
    module, _ = STEPS[step]
    statements = tree(module.replace(".", "/") + ".py").body
    functions = [
        statement.name for statement in statements if isinstance(statement, ast.FunctionDef)
    ]
    steps = [name for name, (place, _) in STEPS.items() if place == module]
    assert functions[: len(steps)] == steps


@pytest.mark.parametrize(
    "value",
    [
        LoggedTerms,
        PlanningFacts,
        Job,
        KindColumns,
        AllocatedJob,
        FirstDecision,
        PlanCost,
        JobPlan,
        JobPlans,
    ],
)
def test_a_value_between_steps_has_at_most_ten_fields(value: type) -> None:
    assert 1 <= len(fields(value)) <= 10
