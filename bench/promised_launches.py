"""Do launches on the local market end as their plans say, also on a busy computer? python -m
bench.promised_launches

Launches the three examples of the README and a job of `spotctl init`, each in a home of its own,
one after the other, next to programs that only compute (`--loops`). Every second launch of a job is
as shipped; the others have a deadline or a budget, or begin at another moment of the market. A
launch is compared with the forecast of the plan by which it ran: its rank is the probability of a
lower bill, or of a shorter run. Each launch takes about a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from bidbrain.forecast.values import HIGH, LOW, Spread
from pricing_data.units import HOUR, format_time, parse_time
from spotctl.home import config
from spotctl.log.folding import fold
from spotctl.log.state import EVICTED
from spotctl.log.store import EventLog
from spotctl.planning.forecast import forecast_of
from spotctl.run.start.launch_plans import plan_of_run

EXAMPLES = Path(__file__).parents[1] / "examples"
INIT = "init"
JOBS = {
    "quickstart": "quickstart.yaml",
    "spirals": "pytorch/job.yaml",
    "digits": "trainers/digits.yaml",
    INIT: "",
}
SHIPPED, DEADLINE, BUDGET, MOMENT = "as shipped", "deadline", "budget", "other moment"
VARIANTS = (SHIPPED, DEADLINE, SHIPPED, BUDGET, SHIPPED, MOMENT)
LIMITS = {
    "quickstart": {DEADLINE: "9h", BUDGET: "8 USD"},
    "spirals": {DEADLINE: "3h", BUDGET: "1 USD"},
    "digits": {DEADLINE: "6h", BUDGET: "3 USD"},
    INIT: {DEADLINE: "4h", BUDGET: "2 USD"},
}
"""Limits that leave a run room for a fallback to on-demand machines."""

SHIPPED_SECONDS, ASSUMED_SECONDS = '"30"', '"60"'
"""How long the example computes, and how long `spotctl init` assumes that a script does."""


@dataclass(frozen=True)
class Promised:
    """A figure of a launch next to the percentiles of its plan, and the probability that it was to
    be lower.
    """

    least: float
    low: float
    median: float
    high: float
    most: float
    actual: float
    rank: float

    @classmethod
    def of(cls, spread: Spread, actual: float) -> Promised:
        # Amounts that differ by less than their display are equal; of equal ones, half count as
        # lower.
        slack = 1e-4 * abs(actual) + 1e-4
        rank = (spread.at_most(actual - slack) + spread.at_most(actual + slack)) / 2
        least, low, median, high, most = (
            spread.quantile(level) for level in (0.0, LOW, 0.5, HIGH, 1.0)
        )
        return cls(least, low, median, high, most, actual, rank)

    @property
    def place(self) -> str:
        """Where the figure lies: `likely` from P10 to P90, `possible` from the least to the
        greatest one.
        """
        slack = 1e-4 * abs(self.actual) + 1e-4
        if self.low - slack <= self.actual <= self.high + slack:
            return "likely"
        return "possible" if self.least - slack <= self.actual <= self.most + slack else "outside"


@dataclass(frozen=True)
class CheckedLaunch:
    """A launch: how it ended, its evictions, its orders on demand of machines that spot could be,
    and the seconds for which the market's clock stood."""

    job: str
    variant: str
    outcome: str
    usd: Promised
    hours: Promised
    evictions: int
    fallbacks: int
    stood_seconds: float
    seconds: float


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Programs that only compute run meanwhile."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def job_file(job: str, variant: str, folder: Path, number: int) -> Path:
    """The job's file in a copy of its folder, changed as the variant says."""
    if job == INIT:
        source = (EXAMPLES / "pytorch" / "train.py").read_text()
        folder.mkdir()
        (folder / "train.py").write_text(source.replace(SHIPPED_SECONDS, ASSUMED_SECONDS))
        subprocess.run(
            [sys.executable, "-m", "spotctl", "init", "train.py", "--yes"], cwd=folder, check=True
        )
        path = folder / "job.yaml"
    else:
        shipped = EXAMPLES / JOBS[job]
        shutil.copytree(shipped.parent, folder)
        path = folder / shipped.name
    spec = yaml.safe_load(path.read_text())
    if variant in (DEADLINE, BUDGET):
        spec[variant] = LIMITS[job][variant]
    elif variant == MOMENT:
        start = spec["local"]["start"]
        at = parse_time(start) if isinstance(start, str) else round(start.timestamp() * 1e6)
        spec["local"]["start"] = format_time(at + (7 + 5 * number) * HOUR)
    if variant != SHIPPED:
        path.write_text(yaml.safe_dump(spec))
    return path


def launch(job: str, variant: str, number: int) -> CheckedLaunch:
    """Launches a job once, in a home of its own."""
    with tempfile.TemporaryDirectory() as work:
        home = Path(work) / "home"
        path = job_file(job, variant, Path(work) / "job", number)
        environment = {**os.environ, "SPOTCTL_HOME": str(home)}
        command = [sys.executable, "-m", "spotctl", "launch", path.name, "--yes", "--json"]
        begin = time.monotonic()
        done = subprocess.run(
            command, cwd=path.parent, env=environment, capture_output=True, check=False, text=True
        )
        seconds = time.monotonic() - begin
        if not done.stdout:
            raise RuntimeError(f"{job}, {variant}: {done.stderr[-500:]}")
        answer = json.loads(done.stdout)
        with EventLog(home / "log.sqlite") as log:
            state = fold(log.of_run(answer["run"]))
        assert state.began is not None
        forecast = forecast_of(plan_of_run(state.began, config.load({}, home), state.started))
    evicted = {held.allocation for held in state.machines.values() if held.end_reason == EVICTED}
    fallbacks = [
        order for order in state.orders.values() if order.bid is None and not order.reliable
    ]
    usd, hours = (
        Promised.of(forecast.usd, answer["cost_usd"]),
        Promised.of(forecast.hours, answer["hours"]),
    )
    outcome = answer["outcome"]
    return CheckedLaunch(
        job,
        variant,
        outcome,
        usd,
        hours,
        len(evicted),
        len(fallbacks),
        state.stood_seconds,
        round(seconds, 1),
    )


def line(made: CheckedLaunch) -> str:
    """A launch as a row of the table."""
    usd, hours = made.usd, made.hours
    return (
        f"{made.job:10} {made.variant:12} {made.outcome:6} {usd.median:6.3f} {usd.low:6.3f} to "
        f"{usd.high:6.3f}"
        f" {usd.actual:7.3f} {usd.rank:5.2f} {usd.place:8} {hours.median:5.2f} {hours.low:5.2f} to "
        f"{hours.high:5.2f}"
        f" {hours.actual:6.2f} {hours.rank:5.2f} {hours.place:8} {made.evictions:4} "
        f"{made.fallbacks:4} {made.stood_seconds:6.0f} {made.seconds:6.0f}"
    )


HEADER = (
    f"{'job':10} {'variant':12} {'ended':6} {'plan $':>6} {'P10 to P90':>16} {'paid':>7} "
    f"{'rank':>5} {'':8}"
    f" {'hours':>5} {'P10 to P90':>14} {'took':>6} {'rank':>5} {'':8} {'ev.':>4} {'fall':>4} "
    f"{'stood':>6} {'real s':>6}"
)


def summary(launches: Sequence[CheckedLaunch]) -> str:
    """How many launches ended where their plans said."""
    parts = []
    for name in ("usd", "hours"):
        places = [getattr(made, name).place for made in launches]
        inside = sum(place != "outside" for place in places)
        parts.append(
            f"{name}: {places.count('likely')} from P10 to P90, {inside} from the least to the "
            "greatest"
        )
    return f"{len(launches)} launches; {'; '.join(parts)}"


def main() -> None:
    """Prints a row for each launch, and the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=10, help="launches of each job")
    parser.add_argument("--loops", type=int, default=0, help="programs that compute meanwhile")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--shipped", action="store_true", help="only launches as shipped")
    parser.add_argument("--json", type=Path, help="also writes all launches to this file")
    args = parser.parse_args()
    print(HEADER, flush=True)
    launches = list[CheckedLaunch]()
    with busy(args.loops):
        for number in range(args.launches):
            variant = SHIPPED if args.shipped else VARIANTS[number % len(VARIANTS)]
            for job in args.jobs:
                launches.append(launch(job, variant, number))
                print(line(launches[-1]), flush=True)
                if args.json:
                    args.json.write_text(json.dumps([asdict(made) for made in launches], indent=1))
    print(summary(launches))


if __name__ == "__main__":
    main()
