"""Job files that are right: what they mean."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, timedelta, timezone, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from bidbrain.strategies import names as strategies
from pricing_data.units import HOUR, MINUTE, parse_time
from spotctl.files.job import spec
from spotctl.files.job.conversions import STRATEGIES
from spotctl.files.job.programs import Checkpoint, Command, Parallel, SlowMachines, Stop, Training
from spotctl.files.job.reader import load, loads, restored, written
from spotctl.files.job.resources import Needs, Reliable, Resources
from spotctl.files.job.spec import JobSpec, Range
from spotctl.files.job.values import Nodes
from spotctl.home.errors import BadRequest, OldName
from tests.spotctl.files.refused_jobs import COMMAND, TRAINING

ROOT = Path(__file__).parents[3]
EVERYTHING = """\
name: nightly-recsys
kind: agileml                      # or: command
app: apps.recsys:Recsys
args: {rank: 64, start: null}
setup: pip install -r requirements.txt
workdir: code
env: {LOG_LEVEL: info, WORKERS: 4, DEBUG: True, SWITCH: no, AT: 06:00, SHARE: 1.0, MASK: 0x10, DAY: 2026-01-20}
secrets: [HF_TOKEN]
data: {ratings: s3://bucket/ratings/, more: more}
outputs: {model: s3://bucket/models/recsys/}
stop: {clocks: 2000, minutes: 2.01, loss: 0.15, converged: 0.02}
resources:
  clouds: [aws, azure]
  types: {vcpus: 8.., memory_gib: 7.5..64, accelerators: "V100:1.."}
  regions: [us-east-1, East US]
  machines: 4..64
  reliable: {machines: 2, type: c6i.large}
  arch: any
  memory: 512 MiB
  burstable: true
objective: min-cost-slo
deadline: 10h
budget: 25.50 USD
throughputs: {c6i.2xlarge: 410}
strategy: lookahead:12.5
notify: {webhook: https://example.com/hook}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    return tmp_path


def test_a_file_with_everything_means_what_it_says(folder: Path) -> None:
    (folder / "job.yaml").write_text(EVERYTHING)
    assert load(folder / "job.yaml") == JobSpec(
        name="nightly-recsys",
        program=Training(
            "apps.recsys:Recsys", Stop(2000, 120_600_000, 0.15, 0.02), {"rank": 64, "start": None}
        ),
        resources=Resources(
            clouds=("aws", "azure"),
            machines=Range(4, 64),
            reliable=Reliable(2, "c6i.large"),
            needs=Needs(Range(8), Range(7.5, 64.0), spec.Accelerators("V100", Range(1))),
            regions=("us-east-1", "eastus"),
            arch="any",
            memory=0.5,
            burstable=True,
        ),
        workdir=folder / "code",
        setup="pip install -r requirements.txt",
        env={
            "LOG_LEVEL": "info",
            "WORKERS": "4",
            "DEBUG": "True",
            "SWITCH": "no",
            "AT": "06:00",
            "SHARE": "1.0",
            "MASK": "0x10",
            "DAY": "2026-01-20",
        },
        secrets=("HF_TOKEN",),
        data={"ratings": "s3://bucket/ratings/", "more": str(folder / "more")},
        outputs={"model": "s3://bucket/models/recsys/"},
        objective=spec.Objective.MIN_COST_SLO,
        deadline=spec.Within(10 * HOUR),
        budget=25_500_000_000,
        throughputs={"c6i.2xlarge": 410.0},
        strategy="lookahead:12.5",
        notify=spec.Notify("https://example.com/hook"),
    )


def test_what_a_command_leaves_out_is_filled_in(tmp_path: Path) -> None:
    found = loads(COMMAND, tmp_path / "job.yaml")
    assert found == JobSpec(
        name="nightly",
        program=Command("python train.py", Nodes(1, 1), None),
        resources=Resources(("aws",), Range(1, 1), Reliable(0)),
        workdir=tmp_path.resolve(),
    )
    assert (found.kind, found.is_local) == (spec.ProgramKind.COMMAND, False)


def test_a_gang_has_as_many_machines_as_nodes_and_a_checkpoint_relative_to_the_file(
    tmp_path: Path,
) -> None:
    more = "nodes: 3\ncheckpoint: {path: ckpt, every: 15m}\n"
    found = loads(COMMAND + more, tmp_path / "job.yaml")
    assert found.program == Command(
        "python train.py", Nodes(3, 3), Checkpoint(str(tmp_path / "ckpt"), 15 * MINUTE)
    )
    assert found.resources.machines == Range(3, 3)
    changing = loads(COMMAND + more.replace("3", "2..4"), tmp_path / "job.yaml")
    assert isinstance(changing.program, Command)
    assert (changing.program.nodes, changing.resources.machines) == (Nodes(2, 4), Range(2, 4))
    assert restored(written(changing), Path("log")) == changing
    assert (written(changing)["nodes"], written(found)["nodes"]) == ("2..4", 3)
    by_itself = loads(COMMAND + more.replace("15m", "auto"), tmp_path / "job.yaml").program
    assert isinstance(by_itself, Command)
    assert by_itself.checkpoint == Checkpoint(str(tmp_path / "ckpt"), None)


def test_a_local_place_may_be_a_file_url_and_work_be_given_in_hours(tmp_path: Path) -> None:
    more = "checkpoint: {path: 'file:///my%20disk/ckpt'}\noutputs: {model: out}\nhours: 90m\n"
    found = loads(COMMAND + more, tmp_path / "job.yaml")
    assert found.program == Command("python train.py", Nodes(1, 1), Checkpoint("/my disk/ckpt"))
    assert (found.outputs, found.hours) == ({"model": str(tmp_path / "out")}, 90 * MINUTE)


def test_keys_with_nothing_behind_them_are_as_if_left_out() -> None:
    empty = "env:\nsecrets:\nimage:\nidentity:\nlocal:\ndeadline:\nsetup:\n"
    assert loads(TRAINING + empty, Path("job.yaml")) == loads(TRAINING, Path("job.yaml"))


def test_the_old_name_of_a_key_is_read_with_a_warning(tmp_path: Path) -> None:
    now = loads(f"{TRAINING}max_bid: 0.50 USD/h\n", tmp_path / "job.yaml")
    with pytest.warns(
        OldName, match=r"job\.yaml:10: most: is called max_bid now; rename it"
    ) as said:
        assert loads(f"{TRAINING}most: 0.50 USD/h\n", tmp_path / "job.yaml") == now
    assert len(said) == 1
    assert written(now)["max_bid"] == "0.5 USD/h"
    earlier = {name: value for name, value in written(now).items() if name != "max_bid"}
    assert restored({**earlier, "most": "0.50 USD/h"}, Path("log")) == now


def test_a_mistake_below_an_old_name_has_its_line() -> None:
    with (
        pytest.warns(OldName),
        pytest.raises(BadRequest, match=r"job\.yaml:10: most: '3' has no unit; expected"),
    ):
        loads(f"{TRAINING}most: '3'\n", Path("job.yaml"))
    with pytest.raises(
        BadRequest, match=r"most: is the old name of max_bid, which is there too; keep max_bid only"
    ):
        loads(f"{TRAINING}most: 1 USD/h\nmax_bid: 1 USD/h\n", Path("job.yaml"))


@pytest.mark.parametrize("text", [TRAINING, COMMAND])
def test_a_job_is_of_the_kind_that_its_keys_say(text: str) -> None:
    without = re.sub(r"kind: .*\n", "", text)
    assert loads(without, Path("job.yaml")) == loads(text, Path("job.yaml"))


@pytest.mark.parametrize(
    "line", ["gpu: A100:8", "accelerators: A100:8", "gpu: A100:8\n  types: {vcpus: 8..}"]
)
def test_other_tools_spellings_of_keys_are_read(line: str) -> None:
    others = COMMAND.replace("clouds: [aws]\n", f"clouds: [aws]\n  {line}\n") + "num_nodes: 2\n"
    more = "vcpus: 8.., " if "vcpus" in line else ""
    own = (
        COMMAND.replace(
            "clouds: [aws]\n", f"clouds: [aws]\n  types: {{{more}accelerators: A100:8}}\n"
        )
        + "nodes: 2\n"
    )
    assert loads(others, Path("job.yaml")) == loads(own, Path("job.yaml"))
    with pytest.raises(
        BadRequest, match=r"job\.yaml:\d+: num_nodes: .*, and nodes is there too; keep one of them"
    ):
        loads(f"{others}nodes: 2\n", Path("job.yaml"))


@pytest.mark.parametrize("text", [TRAINING, COMMAND])
def test_a_model_is_split_by_an_empty_mapping_as_by_auto(text: str, tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_text("{}")
    model = text.replace("app: mf", "app: mlp")
    found = [loads(f"{model}parallel: {way}\n", tmp_path / "job.yaml") for way in ("auto", "{}")]
    assert [job.program.parallel for job in found] == [Parallel(), Parallel()]
    assert [job.resources.reliable.machines for job in found] == [0, 0]
    assert [restored(written(job), Path("log")) for job in found] == found


def test_anchors_and_merged_keys_are_read(tmp_path: Path) -> None:
    text = "env: &shared {A: 1, B: 2}\n" + TRAINING.replace("{clocks: 200}", "{clocks: 7}")
    assert loads(text, tmp_path / "job.yaml").env == {"A": "1", "B": "2"}
    merged = COMMAND + "env: {<<: {A: 1, B: 2}, B: 3}\n"
    assert loads(merged, tmp_path / "job.yaml").env == {"A": "1", "B": "3"}


@pytest.mark.parametrize(
    ("range_", "inside", "outside"),
    [
        (Range(4, 64), (4, 20, 64), (3, 65)),
        (Range(8), (8, 10**6), (7,)),
        (Range(2.5, 2.5), (2.5,), (2.4, 3)),
    ],
)
def test_a_range_holds_both_its_ends(
    range_: Range[int] | Range[float], inside: tuple[float, ...], outside: tuple[float, ...]
) -> None:
    assert all(value in range_ for value in inside)
    assert not any(value in range_ for value in outside)


BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("due", "zone", "now", "moment"),
    [
        (spec.Within(90 * MINUTE), UTC, "2026-01-20T23:00:00Z", "2026-01-21T00:30:00Z"),
        (spec.ByClock(6, 0), UTC, "2026-01-20T05:59:59Z", "2026-01-20T06:00:00Z"),
        # At the very moment it is too late for today.
        (spec.ByClock(6, 0), UTC, "2026-01-20T06:00:00Z", "2026-01-21T06:00:00Z"),
        (
            spec.ByClock(6, 0),
            timezone(timedelta(hours=9)),
            "2026-01-20T20:00:00Z",
            "2026-01-20T21:00:00Z",
        ),
        # The night of a change of time has 23 or 25 hours.
        (spec.ByClock(6, 0), BERLIN, "2026-03-28T12:00:00Z", "2026-03-29T04:00:00Z"),
        (spec.ByClock(6, 0), BERLIN, "2026-10-24T12:00:00Z", "2026-10-25T05:00:00Z"),
    ],
)
def test_a_deadline_is_the_next_such_moment(
    due: spec.Within | spec.ByClock, zone: tzinfo, now: str, moment: str
) -> None:
    assert due.moment(parse_time(now), zone) == parse_time(moment)


def test_every_strategy_of_a_job_may_be_named_and_no_other() -> None:
    drawn = [
        name
        for name in STRATEGIES
        if name not in (spec.AUTO, strategies.DEADLINE, strategies.REGIONS)
    ]
    assert all(strategies.known(name) for name in drawn)
    for name in drawn:
        assert loads(f"{TRAINING}strategy: {name}\n", Path("job.yaml")).strategy == name


def test_a_run_of_an_earlier_version_keeps_a_strategy_that_no_file_may_name() -> None:
    job = loads(TRAINING, Path("job.yaml"))
    for name in ("standard+checkpoint", "fixed-bid:0.001", "lookahead-present:2"):
        earlier = replace(job, strategy=name)
        assert restored(written(earlier), Path("log")) == earlier


@pytest.mark.parametrize("backups", [True, 2])
def test_a_run_of_an_earlier_version_keeps_backup_workers_that_no_file_may_have(
    backups: bool | int,
) -> None:
    job = loads(TRAINING, Path("job.yaml"))
    assert isinstance(job.program, Training)
    earlier = replace(
        job, program=replace(job.program, stragglers=SlowMachines(backup_workers=backups))
    )
    assert restored(written(earlier), Path("log")) == earlier


def test_a_restored_job_needs_no_code_any_more(folder: Path) -> None:
    job = loads(EVERYTHING, folder / "job.yaml")
    (folder / "code").rmdir()
    assert restored(written(job), Path("log")) == job
