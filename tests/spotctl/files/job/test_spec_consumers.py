"""Every key of a job file is read by something: changing it changes what its consumer does, or it
is refused.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from spotctl.clouds.wiring import local_provider
from spotctl.files.job.programs import Command, ElasticNodes, Parallel
from spotctl.files.job.reader import loads, restored, schema, written
from spotctl.files.job.spec import OLD_NAMES
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.run import notify
from spotctl.run.notify import Delivery
from spotctl.run.work.gang import SETUP, allowed
from tests.spotctl.agent.environment.wheels import wheel
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl

TRAINING = """\
name: job
kind: agileml
app: mf
stop: {clocks: 2000}
throughputs: {c4.xlarge: 40}
strategy: on-demand
resources: {clouds: [local], machines: 4..16, reliable: {machines: 1, type: m3.medium}}
"""
COMMAND = """\
name: job
kind: command
run: 'true'
nodes: 2
hours: 5h
resources: {clouds: [local]}
checkpoint: {path: ckpt, every: 15m}
"""

ROAMING = (
    COMMAND.replace("15m}", "15m, size: 1GB}").replace(
        "[local]", "[local], regions: any, types: [c4.xlarge]"
    )
    + "deadline: 30h\n"
)

# By key, what `spotctl plan` is given and what it is given instead.
PLANNED: dict[str, tuple[str, str, str]] = {
    "name": (TRAINING, "name: job", "name: other"),
    "kind": (TRAINING, TRAINING, COMMAND),
    "stop.clocks": (TRAINING, "clocks: 2000", "clocks: 3000"),
    "stop.minutes": (TRAINING, "clocks: 2000", "minutes: 90"),
    "throughputs": (TRAINING, "c4.xlarge: 40", "c4.xlarge: 80"),
    "resources.clouds": (TRAINING, "clouds: [local]", "clouds: [aws]"),
    "resources.machines": (TRAINING, "4..16", "4..32"),
    "resources.reliable.machines": (TRAINING, "machines: 1,", "machines: 2,"),
    "resources.reliable.type": (TRAINING, "type: m3.medium", "type: c4.xlarge"),
    "resources.types": (TRAINING, "machines: 4..16", "machines: 4..16, types: [c4.2xlarge]"),
    "resources.types.vcpus": (TRAINING, "machines: 4..16", "machines: 4..16, types: {vcpus: 8..}"),
    "resources.types.memory_gib": (
        TRAINING,
        "machines: 4..16",
        "machines: 4..16, types: {memory_gib: 30..}",
    ),
    "resources.memory": (TRAINING, "machines: 4..16", "machines: 4..16, memory: 30 GiB"),
    "resources.types.accelerators": (
        TRAINING,
        "machines: 4..16",
        "machines: 4..16, types: {accelerators: K80}",
    ),
    "resources.regions": (TRAINING, "machines: 4..16", "machines: 4..16, regions: [sim-west]"),
    "resources.zones": (TRAINING, "machines: 4..16", "machines: 4..16, zones: [sim-west-b]"),
    "objective": (TRAINING, "app: mf", "app: mf\nobjective: max-throughput"),
    "deadline": (TRAINING, "app: mf", "app: mf\ndeadline: 20m"),
    "budget": (TRAINING, "app: mf", "app: mf\nbudget: 0.10 USD"),
    "value_of_time": (
        TRAINING.replace("on-demand", "lookahead"),
        "app: mf",
        "app: mf\nvalue_of_time: 20 USD/h",
    ),
    "max_bid": (
        TRAINING.replace("on-demand", "lookahead"),
        "app: mf",
        "app: mf\nmax_bid: 0.05 USD/h",
    ),
    "strategy": (TRAINING, "strategy: on-demand", "strategy: lookahead"),
    "local.start": (TRAINING, "app: mf", "app: mf\nlocal: {start: 2026-01-22T03:30:00Z}"),
    "nodes": (COMMAND, "nodes: 2", "nodes: 3"),
    "hours": (COMMAND, "hours: 5h", "hours: 9h"),
    "checkpoint.every": (COMMAND, "every: 15m", "every: 2h"),
}


@cache
def planned(text: str) -> tuple[int | str | None, str, str]:
    """The exit code of `spotctl plan` and what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "job.yaml")
        file.write_text(text)
        ended = spotctl("plan", file, "--json")
    return ended.code, ended.out, ended.err.replace(str(file), "")


@pytest.mark.sampled(8)
@pytest.mark.parametrize("key", PLANNED)
def test_the_planner_reads(key: str) -> None:
    text, before, after = PLANNED[key]
    assert before in text
    assert planned(text)[0] == 0, planned(text)
    assert planned(text) != planned(text.replace(before, after))


def test_the_queue_reads_policy_and_weight(tmp_path: Path) -> None:
    """Two jobs under a quota of four machines."""
    begins = dict[str, list[str]]()
    for key, of_first in {
        "alike": "weight: 1",
        "queue.weight": "weight: 900",
        "queue.policy": "policy: max-min-fairness",
    }.items():
        files = [tmp_path / f"{name}.yaml" for name in ("first", "second")]
        for file, lasts in zip(files, ("9h", "1h"), strict=True):
            policy = of_first if file.stem == "first" or "policy" in of_first else "weight: 1"
            job = (
                COMMAND.replace("name: job", f"name: {file.stem}")
                .replace("5h", lasts)
                .replace("ckpt", file.stem)
            )
            file.write_text(
                job.replace("[local]", "[local], types: [c4.xlarge], regions: [sim-east]")
                + f"queue: {{{policy}}}\n"
            )
        ended = spotctl("plan", *files, "--json", SPOTCTL_QUOTAS="local/*/c4=12")
        begins[key] = [plan["begins"] for plan in ended.json]
    assert begins["alike"][0] > begins["alike"][1]
    assert begins["queue.weight"][0] < begins["queue.weight"][1]
    assert begins["queue.policy"] != begins["alike"]
    other = files[1].read_text().replace("max-min-fairness", "fifo")
    files[1].write_text(other)
    refused = spotctl("plan", *files, SPOTCTL_QUOTAS="local/*/c4=12")
    assert "first shares quotas by queue.policy max-min-fairness, and second by fifo" in refused.err


# What the training engine is given.
TRAINED = {
    "app": ("app: mf", "app: mlr"),
    "args": ("app: mf", "app: mf\nargs: {rank: 3}"),
    "stragglers.reassign": ("app: mf", "app: mf\nstragglers: {reassign: true}"),
    "stragglers.backup_workers": ("app: mf", "app: mf\nstragglers: {backup_workers: auto}"),
    "stragglers.balance_servers": ("app: mf", "app: mf\nstragglers: {balance_servers: true}"),
    "wire": ("app: mf", "app: mf\nwire: bf16"),
    "trainer": ("app: mf", "trainer: {lightning: json:loads}"),
    "stop.loss": ("clocks: 2000", "clocks: 2000, loss: 0.5"),
    "stop.converged": ("clocks: 2000", "clocks: 2000, converged: 0.02"),
}


REPLAYED = {
    "local.speed": "speed: 60",
    "local.seed": "seed: 7",
    "local.warning": "warning: 10m",
    "local.unwarned": "unwarned: 0.9",
}


@pytest.mark.parametrize("key", REPLAYED)
def test_the_local_market_reads(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(
        "spotctl.clouds.local.provider.LocalProvider", lambda _, __, settings: made.append(settings)
    )
    for text in (TRAINING, TRAINING, f"{TRAINING}local: {{{REPLAYED[key]}}}\n"):
        local_provider(Settings(home=tmp_path), loads(text, tmp_path / "job.yaml"))
    assert made[0] == made[1] != made[2]


PROGRAM = """\
import importlib.util, json, os, pathlib, sys
found = {"environment": importlib.util.find_spec("spotone") is not None}
found |= {"run": sys.argv[1], "workdir": os.path.basename(os.getcwd()), "setup": os.path.exists("made")}
found |= {"env": os.environ["SHARED"], "data": os.listdir(os.environ["DATA_IN"])}
for name in ("OUTPUT_OUT", "SPOTCTL_CHECKPOINT_DIR"):
    pathlib.Path(os.environ[name], "kept").write_text("kept")
pathlib.Path(f"{sys.argv[1]}.pt").write_text("kept")
print(json.dumps(found))
"""
LAUNCHED = """\
name: job
kind: command
run: python program.py {letter}
workdir: {letter}
setup: {setup}
environment: {environment}
env: {{SHARED: {letter}, UV_FIND_LINKS: wheels, UV_OFFLINE: 1}}
data: {{in: in-{letter}}}
outputs: {{out: out-{letter}}}
checkpoint: {{path: checkpoint-{letter}, keep: ['{letter}.*']}}
tags: {{team: {letter}}}
notify: {{webhook: "https://example.com/{letter}"}}
resources: {{clouds: [local], types: [c4.2xlarge]}}
local: {{speed: 600}}
"""
EXECUTED = (
    "run",
    "workdir",
    "setup",
    "environment",
    "env",
    "data",
    "outputs",
    "checkpoint.path",
    "checkpoint.keep",
    "tags",
    "notify.webhook",
)


@pytest.mark.parametrize("letter", ["a", "b"])
def test_a_launched_command_and_its_reports_read(
    letter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhooks: list[str] = []

    def post(_message: object, address: str) -> Delivery:
        webhooks.append(address)
        return Delivery("example.com")

    monkeypatch.setattr(notify, "post", post)
    for name in (letter, f"in-{letter}"):
        (tmp_path / name).mkdir()
    (tmp_path / f"in-{letter}" / letter).write_text("data")
    (tmp_path / letter / "program.py").write_text(PROGRAM)
    setup = "touch made" if letter == "a" else "'true'"
    (tmp_path / letter / "requirements.txt").write_text("spotone\n")
    wheel(tmp_path / letter / "wheels", "spotone")
    environment = "requirements.txt" if letter == "a" else "none"
    text = LAUNCHED.format(letter=letter, setup=setup, environment=environment)
    (tmp_path / "job.yaml").write_text(text)
    ended = spotctl("launch", tmp_path / "job.yaml", "--yes")
    assert ended.code == 0, ended.err
    printed = next(line for line in spotctl("logs", "job").out.splitlines() if "workdir" in line)
    found = json.loads(printed.partition(": ")[2])
    found["outputs"] = (tmp_path / f"out-{letter}" / "kept").exists()
    records = [*(tmp_path / f"checkpoint-{letter}").rglob("*.record")]
    found["checkpoint.path"] = bool(records)
    found["checkpoint.keep"] = f".kept/{letter}.pt".encode() in records[-1].read_bytes()
    found["tags"] = f"team={letter}" in spotctl("report", "cost", "--by", "tag", "--json").out
    found["notify.webhook"] = webhooks
    assert found == {
        "run": letter,
        "workdir": letter,
        "setup": letter == "a",
        "environment": letter == "a",
        "env": letter,
        "data": [letter],
        "outputs": True,
        "checkpoint.path": True,
        "checkpoint.keep": True,
        "tags": True,
        "notify.webhook": [f"https://example.com/{letter}"],
    }
    assert found.keys() == {*EXECUTED}


# What an order of machines on a cloud says.
ORDERED = {
    "image.ami": ("aws", "image: {ami: ami-1}"),
    "image.gcp": ("gcp", "image: {gcp: projects/mine/global/images/one}"),
    "image.azure": ("azure", "image: {azure: 'canonical:ubuntu:server:latest'}"),
    "image.vast": ("vast", "image: {vast: 'pytorch/pytorch:2.9.1'}"),
    "image.runpod": ("runpod", "image: {runpod: 'pytorch/pytorch:2.9.1'}"),
    "image.container": ("aws", "image: {container: app}"),
    "image.disk_gib": ("aws", "image: {disk_gib: 100}"),
    "identity": ("gcp", "identity: {gcp: trainer}"),
}


def test_a_launch_reads_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    monkeypatch.setenv("SET", "hidden")
    monkeypatch.delenv("UNSET", raising=False)
    codes = []
    for name in ("SET", "UNSET"):
        (tmp_path / "job.yaml").write_text(f"{TRAINING}secrets: [{name}]\n")
        ended = spotctl("launch", tmp_path / "job.yaml", "--dry-run")
        codes.append(ended.code)
    assert codes[0] == 0
    approved(ended)


def keys(part: dict[str, Any], root: dict[str, Any], above: str = "") -> Iterator[str]:
    """The keys of a schema, those of sections below them; a list or mapping counts as one key."""
    for name, value in part["properties"].items():
        shapes = [value, *value.get("anyOf", ())]
        references = [shape["$ref"].rpartition("/")[2] for shape in shapes if "$ref" in shape]
        for reference in references:
            yield from keys(root["$defs"][reference], root, f"{above}{name}.")
        if not references or any(shape.get("type") == "array" for shape in shapes):
            yield f"{above}{name}"


def test_what_is_tried_again_reads_the_retries() -> None:
    given = [
        loads(f"{COMMAND}{line}", Path("job.yaml"))
        for line in ("", "retries: {137: 2, setup: 0}\n")
    ]
    programs = [spec.program for spec in given if isinstance(spec.program, Command)]
    assert [[allowed(one.retries, what) for what in (137, 127, 75, SETUP)] for one in programs] == [
        [0, 0, 4, 1],
        [2, 0, 4, 0],
    ]
    assert restored(written(given[1]), Path()).program == programs[1]
    with pytest.raises(BadRequest, match=r"retries\.256"):
        loads(f"{COMMAND}retries: {{256: 1}}\n", Path("job.yaml"))


def test_every_key_of_the_schema_has_a_consumer() -> None:
    # tests/spotctl/run/test_moves.py sends a checkpoint of the declared size.
    # tests/spotctl/test_launch_on_ray.py plans with the engine and its address.
    elsewhere = [
        "secrets",
        "notify.heartbeat",
        "retries",
        "checkpoint.size",
        "checkpoint.takes",
        "engine",
        "address",
    ]
    # tests/spotctl/run/test_notify_services.py sends to each address.
    elsewhere += ["notify.to"]
    # test_an_order_of_close_machines_says_so.
    elsewhere += ["resources.placement", "resources.reservations"]
    # test_an_order_of_machines_names_the_copies_near_them.
    elsewhere += ["data_buckets"]
    # tests/spotctl/show/test_tracking.py logs to both trackers.
    elsewhere += ["track"]
    # tests/spotctl/clouds/remote/test_container.py pulls an image with a login.
    elsewhere += ["image.login"]
    # tests/spotctl/planning/test_offers.py has both; of the local market's types nothing of the
    # kind is known.
    elsewhere += ["resources.arch", "resources.burstable"]
    # tests/spotctl/planning/test_parallel.py plans with each of them.
    elsewhere += [f"parallel.{field.name}" for field in fields(Parallel) if field.name != "elastic"]
    elsewhere += [f"parallel.elastic.{field.name}" for field in fields(ElasticNodes)]
    elsewhere += [*OLD_NAMES, "queue.policy", "queue.weight"]
    # tests/spotctl/files/job/test_reader.py reads them as the keys that they spell.
    elsewhere += ["num_nodes", "resources.accelerators", "resources.gpu"]
    consumed = [*PLANNED, *TRAINED, *REPLAYED, *EXECUTED, *ORDERED, *elsewhere]
    assert len(consumed) == len(set(consumed))
    found = schema()
    assert sorted(keys(found, found)) == sorted(consumed)
