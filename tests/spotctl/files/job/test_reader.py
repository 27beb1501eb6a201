"""Job files that are right: what they mean."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from spotctl.files.job.reader import loads, restored, written
from spotctl.home.errors import BadRequest, OldName
from tests.spotctl.files.refused_jobs import COMMAND, TRAINING

ROOT = Path(__file__).parents[4]
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


def test_anchors_and_merged_keys_are_read(tmp_path: Path) -> None:
    text = "env: &shared {A: 1, B: 2}\n" + TRAINING.replace("{clocks: 200}", "{clocks: 7}")
    assert loads(text, tmp_path / "job.yaml").env == {"A": "1", "B": "2"}
    merged = COMMAND + "env: {<<: {A: 1, B: 2}, B: 3}\n"
    assert loads(merged, tmp_path / "job.yaml").env == {"A": "1", "B": "3"}


def test_a_run_of_an_earlier_version_keeps_a_strategy_that_no_file_may_name() -> None:
    job = loads(TRAINING, Path("job.yaml"))
    for name in ("standard+checkpoint", "fixed-bid:0.001", "lookahead-present:2"):
        earlier = replace(job, strategy=name)
        assert restored(written(earlier), Path("log")) == earlier


def test_a_restored_job_needs_no_code_any_more(folder: Path) -> None:
    job = loads(EVERYTHING, folder / "job.yaml")
    (folder / "code").rmdir()
    assert restored(written(job), Path("log")) == job
