"""Homes that BASE wrote once, of which scenarios of both trees get copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from tests.golden.plans import price_files
from tests.golden.scenario import Scenario, Step
from tests.golden.trees import CACHE, Home, Tree, recorded

ON_LOCAL = "resources: {clouds: [local], types: [c4.2xlarge]}\n"
COMMAND = (
    "name: {name}\nkind: command\nrun: {run}\nhours: 30m\n{more}"
    + ON_LOCAL
    + "local: {{speed: {speed}{start}}}\n"
)
TRAINING = """\
name: {name}
kind: agileml
app: mf
args: {{users: 200, items: 100, ratings: 4000, rank: 4, rate: 0.2}}
stop: {{clocks: {clocks}}}
resources:
  clouds: [local]
  types: [c4.2xlarge]
  machines: 2..2
  reliable: {{machines: 1, type: m3.medium}}
strategy: proteus
local: {{speed: 20, start: 2026-01-15T00:10:00Z, warning: 10m, unwarned: 0.34}}
"""
COUNT = (
    "i=$(cat $SPOTCTL_CHECKPOINT_DIR/at || echo 0); while [ $i -lt 40 ];"
    " do i=$((i+1)); echo $i; echo $i > $SPOTCTL_CHECKPOINT_DIR/at; sleep 0.3; done"
)


FAST = 600
"""A speed at which a command of seconds lasts for hours, and loses machines."""


def _command(name: str, run: str, more: str = "", start: str = "", speed: int = 20) -> str:
    values = {
        "name": name,
        "run": repr(run),
        "more": more,
        "start": start and f", start: {start}",
        "speed": str(speed),
    }
    text = COMMAND.replace("{{", "{").replace("}}", "}")
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", value)
    return text


JOBS = {
    "small.yaml": _command("small", "echo hello; sleep 1", "tags: {team: search}\n"),
    "train.yaml": TRAINING.format(name="train", clocks=15),
    "failing.yaml": _command("failing", "echo going to fail; exit 3"),
    "unready.yaml": _command("unready", "true", "setup: echo no such package; exit 1\n"),
    "costly.yaml": _command("costly", "sleep 120", "budget: 0.30 USD\n", speed=FAST),
    "stopped.yaml": _command("stopped", "echo begun; sleep 600"),
    "joba.yaml": _command("joba", "echo a; sleep 2"),
    "jobb.yaml": _command("jobb", "echo b; sleep 4", "env: {DEPTH: 3}\n"),
    "counting.yaml": _command(
        "counting",
        COUNT,
        "checkpoint: {path: kept, every: 5m}\n",
        "2026-01-25T10:40:00Z",
        speed=FAST,
    ),
    "gang.yaml": _command("gang", "echo node $SPOTCTL_NODE; sleep 1", "nodes: 2\n"),
    "killed.yaml": _command(
        "killed", "echo begun; sleep 40; echo ended", "checkpoint: {path: saved}\n"
    ),
    "longtrain.yaml": TRAINING.format(name="longtrain", clocks=600),
    "going.yaml": _command("going", "echo begun; sleep 90"),
}


def _launches() -> Iterator[Step]:
    """Fourteen runs: done, failed, over budget, stopped, of several machines and jobs, killed, and
    one that goes on.
    """
    for name, codes in {
        "small": (0,),
        "train": (0,),
        "failing": (1,),
        "unready": (1,),
        "costly": (4,),
    }.items():
        yield Step(
            ("launch", f"{name}.yaml", "--yes", "--json"), process=True, exact=False, expected=codes
        )
    yield Step(("launch", "small.yaml", "--yes", "--fresh"), process=True, exact=False)
    yield Step(("launch", "counting.yaml", "--yes"), process=True, exact=False)
    yield Step(("launch", "gang.yaml", "--yes"), process=True, exact=False)
    yield Step(("launch", "joba.yaml", "jobb.yaml", "--yes", "--json"), process=True, exact=False)
    yield Step(("launch", "stopped.yaml", "--yes"), background="stopped")
    yield Step(("stop", "stopped"), process=True, exact=False)
    for name, clock in {"killed": 0, "longtrain": 1}.items():
        yield Step(("launch", f"{name}.yaml", "--yes"), background=name, clock=clock)
        yield Step((), name=f"kill {name}", kills=name)
    yield Step(("launch", "going.yaml", "--yes"), background="going")


RECORDED = {
    "prices": Scenario(
        "home of prices",
        [Step(("prices", "import", "history.csv"))],
        files=price_files(),
        keep=True,
    ),
    "runs": Scenario(
        "home of runs",
        [Step(("prices", "import", "history.csv")), *_launches()],
        files={**JOBS, **price_files()},
        keep=True,
    ),
}


def recorded_homes(base: Tree, names: Iterable[str]) -> dict[str, Home]:
    """Each home, recorded if it is not kept from before."""
    return {name: _recorded_home(base, RECORDED[name]) for name in sorted(names)}


def _recorded_home(base: Tree, scenario: Scenario) -> Home:
    (record,) = recorded(base, base, [scenario], {}, CACHE / "homes" / base.name)
    for step in record["steps"]:
        if step["code"] not in step["expected"]:
            raise SystemExit(
                f"{scenario.name}: {step['title']} ended with {step['code']}: "
                f"{step['out']}{step['err']}"
            )
    later = datetime.fromtimestamp(record["at"] + 3600, UTC)
    return Home(Path(record["folder"], "kept"), later.isoformat())
