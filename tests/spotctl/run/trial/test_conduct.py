"""The steps of a full trial: each has a line, and one that fails does not keep the others from
being carried out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spotctl.clouds.errors import NoCapacity
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.run.trial import conduct as conducting
from spotctl.run.trial.conduct import STEPS, conduct
from spotctl.run.trial.record import PASSED, Kit, StepResult, StepSkipped, TrialFailed

PROVIDER: Any = SimpleNamespace(
    endpoint="127.0.0.1",
    check_order=lambda _: "",
    console=lambda _: "",
    simulate_eviction=lambda _: None,
    terminate=lambda _: None,
    resources=lambda _: (),
    remove=lambda _: None,
)


def kit_in(folder: Path) -> Kit:
    known: Any = None
    return Kit("aws", "us-east-1", Settings(home=folder), known, PROVIDER, (), ())


def passing(name: str) -> Any:  # noqa: ANN401 - a step
    def step() -> Iterator[StepResult]:
        yield StepResult(name, PASSED, "good")

    return step


def _raised(error: Exception) -> StepResult:
    raise error


def failing(error: Exception) -> Any:  # noqa: ANN401
    def step() -> Iterator[StepResult]:
        yield from map(_raised, [error])

    return step


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    scripted = {name: passing(name) for name in STEPS}
    monkeypatch.setattr(
        conducting,
        "_steps",
        lambda _kit, _machines: {name: step() for name, step in scripted.items()},
    )
    return scripted


def outcomes(folder: Path, *chosen: str) -> dict[str, str]:
    reported: list[StepResult] = []
    record = conduct(kit_in(folder), chosen, reported.append)
    assert list(record.steps) == reported
    return {result.name: f"{result.outcome}: {result.detail}" for result in reported}


def test_a_step_that_fails_or_is_skipped_does_not_end_the_trial(
    steps: dict[str, Any], tmp_path: Path
) -> None:
    steps["orders"] = failing(TrialFailed("no type\nhas a price"))
    steps["machines"] = failing(NoCapacity("sold out"))
    steps["runner"] = failing(StepSkipped("needs --bucket"))
    shown = outcomes(tmp_path)
    assert list(shown) == STEPS
    assert (shown["orders"], shown["machines"]) == (
        "failed: no type has a price",
        "failed: sold out",
    )
    assert (shown["runner"], shown["left"]) == ("skipped: needs --bucket", "passed: good")


def test_chosen_steps_bring_those_that_they_need_and_the_last(
    steps: dict[str, Any], tmp_path: Path
) -> None:
    assert steps.keys() == set(STEPS)
    assert list(outcomes(tmp_path, "lease")) == ["machines", "lease", "left"]
    assert list(outcomes(tmp_path, "account")) == ["account", "left"]
    with pytest.raises(BadRequest, match="step 'lunch' is not one of account, orders"):
        outcomes(tmp_path, "lunch")


def test_nothing_more_is_rented_once_the_budget_is_reached(
    steps: dict[str, Any], tmp_path: Path
) -> None:
    kit = kit_in(tmp_path)

    def expensive() -> Iterator[StepResult]:
        kit.spent_usd += 2.0
        yield StepResult("launcher", PASSED, "good")

    steps["launcher"] = expensive
    reported: list[StepResult] = []
    record = conduct(kit, (), reported.append)
    assert {result.name: result.outcome for result in reported[-4:]} == {
        "eviction": "skipped",
        "training": "skipped",
        "runner": "skipped",
        "left": "passed",
    }
    assert record.most_usd == 2.0
