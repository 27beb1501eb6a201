"""Job files with mistakes: those of the tests, and full ones in which keys are wrong, one at a time
and several.
"""

from __future__ import annotations

import copy
import math
import random
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.golden.scenario import Scenario, Step

TRAINING: dict[str, Any] = {
    "name": "nightly",
    "kind": "agileml",
    "app": "mf",
    "args": {"rank": 64},
    "stop": {"clocks": 200, "minutes": 90, "loss": 0.1, "converged": 0.02},
    "stragglers": {"reassign": True, "backup_workers": "auto", "balance_servers": True},
    "wire": "bf16",
    "resources": {
        "clouds": ["aws", "gcp"],
        "machines": "4..64",
        "reliable": {"machines": 1, "type": "c6i.large"},
        "types": ["c6i.2xlarge", "n2-standard-8"],
        "arch": "x86_64",
        "memory": "4 GiB",
        "burstable": False,
        "regions": ["us-east-1", "us-central1"],
        "zones": ["us-east-1a", "us-central1-a"],
    },
    "data": {"ratings": "s3://bucket/ratings/"},
    "outputs": {"model": "s3://bucket/models/"},
    "objective": "min-cost",
    "deadline": "10h",
    "hours": "8h",
    "budget": "25 USD",
    "value_of_time": "5 USD/h",
    "most": "0.50 USD/h",
    "throughputs": {"c6i.2xlarge": 410, "n2-standard-8": 90.5},
    "image": {
        "ami": "ami-0123456789abcdef0",
        "gcp": "projects/my/global/images/mine",
        "disk_gib": 100,
    },
    "identity": {"aws": "trainer", "gcp": "trainer"},
    "tags": {"team": "search"},
    "strategy": "proteus",
    "notify": {"webhook": "https://example.com/hook", "heartbeat": "https://example.com/beat"},
    "track": {"mlflow": "http://127.0.0.1:5000"},
}
COMMAND: dict[str, Any] = {
    "name": "tuning",
    "kind": "command",
    "run": "torchrun train.py --resume",
    "nodes": "2..4",
    "checkpoint": {"path": "s3://bucket/ckpt/", "every": "15m", "size": "50GB"},
    "retries": {137: 2, "setup": 1},
    "resources": {
        "clouds": ["aws"],
        "types": {"vcpus": "8..", "memory_gib": "16..", "accelerators": "V100:1.."},
        "placement": "close",
        "regions": ["us-east-1"],
        "reservations": [
            {
                "id": "cr-0abc",
                "cloud": "aws",
                "zone": "us-east-1a",
                "type": "p3.8xlarge",
                "machines": 2,
                "price": "2.50 USD/h",
                "until": "2026-12-01T11:30Z",
            }
        ],
    },
    "workdir": ".",
    "setup": "pip install -r requirements.txt",
    "env": {"LOG_LEVEL": "info", "DEPTH": 3},
    "secrets": ["HF_TOKEN"],
    "data_buckets": {"us-west-2": "s3://my-bucket-west"},
    "hours": "8h",
    "image": {"container": "ghcr.io/me/train:1", "login": "REGISTRY_LOGIN"},
    "strategy": "lookahead:2",
    "track": "mlflow",
}
LOCAL: dict[str, Any] = {
    "name": "split",
    "kind": "agileml",
    "app": "mlp",
    "parallel": {
        "profile": "profile.json",
        "device": "V100",
        "updates": 5000,
        "batch": 512,
        "microbatch": "auto",
        "scheme": "flush",
        "stages": 4,
        "replicas": "auto",
        "chunks": 2,
        "tensor": 2,
        "recompute": "auto",
        "allow_delay": 1,
        "elastic": {"nodes": "2..8", "backup": "auto", "every": 5},
        "optimizer": "adam",
    },
    "engine": "ray",
    "address": "10.0.0.4:6379",
    "resources": {"clouds": ["local"], "machines": 4},
    "local": {
        "speed": 600,
        "seed": 0,
        "start": "2026-01-25T06:00:00Z",
        "warning": "2m",
        "unwarned": 0.2,
    },
}
FULL = {"training": TRAINING, "command": COMMAND, "local": LOCAL}

WRONG: tuple[Any, ...] = (
    *("3", "2..", "x y", "", "yes", "10 hours", "25 EUR", "2026-01-01", "../x", "é", " padded "),
    *(0, 3, -1, 1.5, 10**30, math.nan, math.inf, True, False, None),
    *([], ["a", "a"], [3], {}, {"a": 1}, {3: "x"}),
)
WRONG_FOR_EACH = 6
SEVERAL = 120
TOGETHER = 40


def refused_jobs(base: Path) -> Iterator[Scenario]:
    """Scenarios of at most so many files; `base` is the checkout that has the files of the
    tests."""
    jobs = list(_bad_jobs(base))
    for first in range(0, len(jobs), TOGETHER):
        steps, files = list[Step](), dict[str, str]()
        for number, (name, text) in enumerate(jobs[first : first + TOGETHER]):
            words = (
                ("launch", "job.yaml", "--dry-run", "--json")
                if number % 4 == 0
                else ("plan", "job.yaml")
            )
            steps.append(Step(words, name=name, folder=str(number)))
            files |= {f"{number}/job.yaml": text, f"{number}/profile.json": "{}\n"}
        yield Scenario("refused", steps, files=files, together=True)


def _bad_jobs(base: Path) -> Iterator[tuple[str, str]]:
    """The name and text of each."""
    for path in sorted((base / "tests").rglob("refused_jobs.py")):
        for number, (text, _) in enumerate(runpy.run_path(str(path))["CASES"]):
            yield (f"of the tests {number:03}", text)
    for kind, job in FULL.items():
        yield (f"{kind} whole", _written(job))
        for place in _places(job):
            name = ".".join(map(str, place))
            draw = random.Random(f"{kind} {name}")
            yield (f"{kind} without {name}", _written(_changed(job, place, remove=True)))
            yield (f"{kind} misspelled {name}", _written(_misspelled(job, place)))
            for number in sorted(draw.sample(range(len(WRONG)), WRONG_FOR_EACH)):
                text = _written(_changed(job, place, WRONG[number]))
                yield (f"{kind} {name} is {WRONG[number]!r}", text)
    for number in range(SEVERAL):
        yield (f"several mistakes {number:03}", _several(random.Random(number)))


def _several(draw: random.Random) -> str:
    job = draw.choice(list(FULL.values()))
    for _ in range(draw.randint(2, 6)):
        place = draw.choice(list(_places(job)))
        kind = draw.random()
        if kind < 0.2:
            job = _changed(job, place, remove=True)
        elif kind < 0.4:
            job = _misspelled(job, place)
        else:
            job = _changed(job, place, draw.choice(WRONG))
    return _written(job)


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, one in inner:
        yield (*place, key)
        yield from _places(one, (*place, key))


def _changed(job: Any, place: tuple[Any, ...], to: Any = None, remove: bool = False) -> Any:  # noqa: ANN401
    changed = copy.deepcopy(job)
    *outer, last = place
    holder = changed
    for key in outer:
        holder = holder[key]
    if remove:
        del holder[last]
    else:
        holder[last] = to
    return changed


def _misspelled(job: Any, place: tuple[Any, ...]) -> Any:  # noqa: ANN401
    """A key without its third letter, or an item twice."""
    changed = copy.deepcopy(job)
    *outer, last = place
    holder = changed
    for key in outer:
        holder = holder[key]
    if isinstance(holder, list):
        holder.append(holder[last])
    else:
        word = str(last)
        holder[word[:2] + word[3:] if len(word) > 3 else f"{word}s"] = holder.pop(last)
    return changed


def _written(job: Any) -> str:  # noqa: ANN401
    return str(yaml.safe_dump(job, sort_keys=False, allow_unicode=True))
