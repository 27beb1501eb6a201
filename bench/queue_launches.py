"""Jobs launched over time into one queue on the local market, and their launchers killed at random
moments.

    python -m bench.queue_launches --jobs 12 --kills 20

Jobs of two users arrive one after the other under a quota of two machines: commands of one machine
that go on from their checkpoints, one of them with a deadline, and a training that can use four. A
job whose launcher is killed is resumed. Prints who held machines when, next to what each plan said,
and what must not happen: a job lost or begun twice, work lost, the quota exceeded, or machines idle
while a job waits whose launcher lives. Each job takes about half a minute. `--types` launches two
trainings instead, each of them five times as fast on the type on which the other is slow, under a
quota of one machine of each.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import yaml

from pricing_data.units import HOUR, MINUTE, parse_time
from spotctl.log.folding import fold
from spotctl.log.outcomes import DONE
from spotctl.log.state import RunState
from spotctl.log.store import EventLog

MACHINES, SPEED = 2, 240
QUOTA = f"local/*/c4={4 * MACHINES}"
STEP_SECONDS = 0.5
TYPES = ("c4.xlarge", "r3.2xlarge")
WORK = """\
folder=$SPOTCTL_CHECKPOINT_DIR; mkdir -p "$folder"; n=$(cat "$folder/done" 2>/dev/null || echo 0); echo "$n" >> "$BEGUN"
while [ "$n" -lt "$STEPS" ]; do
  sleep 0.5; n=$((n + 1)); echo "$n" > "$folder/.next"; mv "$folder/.next" "$folder/done"
done
echo "$n" > "$ENDED"
"""
_LOOK_SECONDS = 0.1


@dataclass
class QueuedLaunch:
    """A job of some steps (a training has none), the processes that attended to it, each with its
    begin and end in seconds of this trial, and what its plan said: when it begins and ends, in
    hours after the launch."""

    name: str
    file: Path
    arrives: float
    steps: int
    process: subprocess.Popen[bytes] | None = None
    attended: list[list[float]] = field(default_factory=list)
    kills: int = 0
    planned: tuple[float, float] | None = None
    code: int | None = None


@dataclass(frozen=True)
class MachineLife:
    """A spot machine of a job, in microseconds of the market."""

    job: str
    kind: str
    begin: int
    end: int


def write_jobs(folder: Path, number: int, draw: random.Random) -> list[QueuedLaunch]:
    """The first job trains and can use more machines; the last third has one with a deadline."""
    made, arrives = list[QueuedLaunch](), 0.0
    for each in range(number):
        name, steps = f"job{each:02}", draw.randint(12, 60)
        if each == 0:
            job = training(name, 1200, {"c4.xlarge": 360.0}, ["c4.xlarge"], "1..4")
            steps = 0
        else:
            places = {
                "STEPS": str(steps),
                "BEGUN": str(folder / f"{name}.begun"),
                "ENDED": str(folder / f"{name}.ended"),
            }
            job = {
                "name": name,
                "resources": {"clouds": ["local"], "types": ["c4.xlarge"], "regions": ["sim-east"]},
                "local": {"speed": SPEED, "start": "2026-01-15T00:10:00Z"},
                "kind": "command",
                "run": "sh work.sh",
                "env": places,
                "checkpoint": {"path": f"kept-{name}"},
                "hours": f"{round(steps * STEP_SECONDS * SPEED / 60)}m",
            }
        job["tags"] = {"user": draw.choice(["ann", "bob"])}
        if each == max(number * 2 // 3, 1):
            job["deadline"] = "40h"
        file = folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(job))
        made.append(QueuedLaunch(name, file, arrives, steps))
        # While no job runs, a launch would begin the replay of the market again.
        arrives += draw.uniform(0, 6)
    (folder / "work.sh").write_text(WORK)
    return made


def write_opposites(folder: Path) -> list[QueuedLaunch]:
    """Two trainings that are five times as fast on one type as on the other, opposite ones."""
    made = list[QueuedLaunch]()
    for name, fast, slow in (("jobca", *TYPES), ("jobra", *reversed(TYPES))):
        job = training(name, 6000, {fast: 2400.0, slow: 480.0}, [*TYPES], "1..2")
        (file := folder / f"{name}.yaml").write_text(
            yaml.safe_dump({**job, "objective": "max-throughput"})
        )
        made.append(QueuedLaunch(name, file, 0.0, 0))
    return made


def training(
    name: str, clocks: int, throughputs: dict[str, float], types: Sequence[str], machines: str
) -> dict[str, object]:
    return {
        "name": name,
        "kind": "agileml",
        "app": "mf",
        "args": {"users": 200, "items": 100, "ratings": 4000, "rank": 4, "rate": 0.2},
        "stop": {"clocks": clocks},
        "throughputs": throughputs,
        "resources": {
            "clouds": ["local"],
            "types": list(types),
            "regions": ["sim-east"],
            "machines": machines,
            "reliable": {"machines": 1, "type": "m3.medium"},
        },
        "local": {"speed": SPEED, "start": "2026-01-15T00:10:00Z"},
    }


def spotctl(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "spotctl", *map(str, words)]


def launched(
    jobs: Sequence[QueuedLaunch], kills: int, draw: random.Random, environment: dict[str, str]
) -> None:
    """Launches each job at its time, kills launchers, and resumes their jobs, until all have
    ended."""
    for job in jobs:
        # Jobs that arrive together are launched at the same moment.
        job.planned = None if job.arrives else _plan(job, environment)
    began, every = (
        time.monotonic(),
        sum(job.steps + 1 for job in jobs) * STEP_SECONDS / MACHINES / max(kills, 1),
    )
    next_kill = draw.expovariate(1 / every)
    while any(job.code is None for job in jobs):
        time.sleep(_LOOK_SECONDS)
        now = time.monotonic() - began
        for job in jobs:
            if job.code is None and job.process is None and now >= job.arrives:
                job.planned = job.planned or _plan(job, environment)
                _attend(job, environment, time.monotonic() - began)
            elif job.process is not None and (code := job.process.poll()) is not None:
                job.attended[-1].append(now)
                job.process = None
                # What was killed is resumed at the next look.
                job.code = None if code == -signal.SIGKILL else code
        alive = [job for job in jobs if job.process is not None]
        if kills and alive and now >= next_kill:
            victim = draw.choice(alive)
            assert victim.process is not None
            victim.process.kill()
            victim.kills += 1
            kills -= 1
            next_kill = now + draw.expovariate(1 / every)


def _plan(job: QueuedLaunch, environment: dict[str, str]) -> tuple[float, float] | None:
    words = spotctl("plan", job.file, "--json")
    done = subprocess.run(words, env=environment, capture_output=True, check=False, text=True)
    if done.returncode:
        return None
    plan = json.loads(done.stdout)
    plan = plan[0] if isinstance(plan, list) else plan
    waits = (parse_time(plan["begins"]) - parse_time(plan["at"])) / HOUR
    return waits, waits + plan["expected"]["hours"]


def _attend(job: QueuedLaunch, environment: dict[str, str], now: float) -> None:
    """A process for the job: its launch, or after a kill its resumption, if the launch had come so
    far.
    """
    words = spotctl("launch", job.file, "--yes", "--json")
    if job.attended:
        shown = subprocess.run(
            spotctl("status", job.name, "--json"), env=environment, capture_output=True, check=False
        )
        words = words if shown.returncode else spotctl("resume", job.name, "--json")
    quiet = {
        "stdout": subprocess.DEVNULL,
        "stderr": (job.file.parent / f"{job.name}.err").open("a"),
    }
    job.process = subprocess.Popen(words, env=environment, start_new_session=True, **quiet)  # type: ignore[call-overload]
    job.attended.append([now])


def lives(states: Iterable[RunState]) -> list[MachineLife]:
    """The spot machines of all runs."""
    return [
        MachineLife(
            state.job,
            state.allocations[held.allocation].market.instance_type,
            held.started,
            held.ended or held.lease_until,
        )
        for state in states
        for held in state.machines.values()
        if state.allocations[held.allocation].bid is not None
    ]


def most_at_once(machines: Sequence[MachineLife]) -> int:
    """The most machines at one moment; one that ends as another begins is not counted with it."""
    changes = sorted([(life.begin, 1) for life in machines] + [(life.end, -1) for life in machines])
    held, most = 0, 0
    for _, change in changes:
        held += change
        most = max(most, held)
    return most


def idle_spans(
    machines: Sequence[MachineLife], waiting: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """When fewer machines are held than the quota allows although a job waits for one."""
    edges = sorted(
        {edge for life in machines for edge in (life.begin, life.end)}
        | {e for span in waiting for e in span}
    )
    for begin, end in pairwise(edges):
        held = sum(life.begin <= begin < life.end for life in machines)
        if held < MACHINES and any(since <= begin < until for since, until in waiting):
            yield begin, end


def _arrivals(home: Path) -> dict[str, int]:
    """When jobs first joined the queue, in microseconds of the market."""
    with sqlite3.connect(home / "log.sqlite") as db:
        rows = db.execute(
            "SELECT body FROM queues WHERE kind = 'JobJoined' ORDER BY number DESC"
        ).fetchall()
    jobs = (json.loads(body)["job"] for (body,) in rows)
    return {job["name"]: round(job["arrival"] * 1e6) for job in jobs}


def report(jobs: Sequence[QueuedLaunch], home: Path, real_seconds: float) -> bool:
    """Prints what happened; whether nothing happened that must not."""
    with EventLog(home / "log.sqlite") as log:
        states = [fold(log.of_run(run)) for run in log.runs()]
    arrivals = _arrivals(home)
    machines, first = lives(states), min(state.started for state in states)
    print(
        f"{'job':6} {'kills':>5} {'planned to begin':>17} {'began':>6} {'planned end':>12} "
        f"{'ended':>6}  machines"
    )
    wrong, waiting = list[str](), list[tuple[int, int]]()
    for job in jobs:
        runs = [state for state in states if state.job == job.name]
        held = [life for life in machines if life.job == job.name]
        spans = ", ".join(
            f"{(life.begin - first) / HOUR:.1f}-{(life.end - first) / HOUR:.1f} {life.kind}"
            for life in held
        )
        came, ends = min(state.started for state in runs), max(state.at for state in runs)
        waiting.append((arrivals[job.name], min((life.begin for life in held), default=came)))
        planned = (
            ("", "") if job.planned is None else tuple(f"{hours:.1f}" for hours in job.planned)
        )
        print(
            f"{job.name:6} {job.kills:5} {planned[0]:>17} {(came - first) / HOUR:6.1f} "
            f"{planned[1]:>12} {(ends - first) / HOUR:6.1f}  {spans}"
        )
        outcomes = [state.ended.outcome for state in runs if state.ended is not None]
        # A launcher that is killed after its run's end leaves nothing to resume.
        if outcomes != [DONE] or (job.code != 0 and not job.kills):
            wrong.append(
                f"{job.name} ended {', '.join(outcomes) or 'without a run'} (exit code {job.code})"
            )
        if job.steps:
            result = job.file.parent / f"{job.name}.ended"
            if not result.exists() or int(result.read_text()) != job.steps:
                wrong.append(f"{job.name} did not do all of its work")
            if most_at_once(held) > 1:
                wrong.append(f"{job.name} held two machines at once")
    if (most := most_at_once(machines)) > MACHINES:
        wrong.append(f"{most} machines at once under a quota of {MACHINES}")
    print(
        f"{sum(job.kills for job in jobs)} launchers killed, {most} machines at once under a quota "
        f"of {MACHINES}"
    )
    idle = max(
        ((end - begin) / MINUTE for begin, end in idle_spans(machines, waiting)), default=0.0
    )
    print(f"longest time with a free machine while a job waits: {idle:.1f} minutes of the market")
    print(f"not as it should be: {'; '.join(wrong) or 'nothing'}; {real_seconds:.0f} s")
    return not wrong


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, nargs="+", default=[3, 5, 12])
    parser.add_argument(
        "--kills", type=int, default=0, help="launchers that are killed in each queue"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--types", action="store_true", help="two trainings that suit different types"
    )
    options, good = parser.parse_args(words), True
    for number in [2] if options.types else options.jobs:
        with tempfile.TemporaryDirectory() as work:
            folder, draw, began = Path(work), random.Random(options.seed + number), time.monotonic()
            quota = "local/*/c4=4,local/*/r3=8" if options.types else QUOTA
            environment = {
                **os.environ,
                "SPOTCTL_HOME": str(folder / "home"),
                "SPOTCTL_QUOTAS": quota,
            }
            jobs = write_opposites(folder) if options.types else write_jobs(folder, number, draw)
            launched(jobs, options.kills, draw, environment)
            good = report(jobs, folder / "home", time.monotonic() - began) and good
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
