"""Jobs whose model is split over the devices of their machines."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from agileml.pipeline.builtin import model_factory
from agileml.pipeline.plan.parallel_plan import plan_from_json
from agileml.pipeline.profile.model_profile import LayerCost, ModelProfile
from agileml.pipeline.run.training import planned_training
from pricing_data.catalog import InstanceType
from spotctl.files.job.programs import Command, ElasticNodes, Parallel
from spotctl.files.job.reader import loads, restored, written
from spotctl.files.job.spec import JobSpec
from spotctl.files.model_files import profiles_of
from spotctl.home.errors import BadRequest
from spotctl.planning.parallel import as_trained, split_speeds
from spotctl.planning.values import TypeSpeed
from tests.spotctl.command_line import spotctl

LAYERS = tuple(LayerCost(f"l{i}", 0.01, 0.02, 1e5, 4e5, 4e6) for i in range(8))
PROFILES = [ModelProfile("net", size, LAYERS, 1e5) for size in (2, 4)]
ONE = InstanceType("aws", "p3.2xlarge", 8, 61, "V100", 1)
FOUR = InstanceType("aws", "p3.8xlarge", 32, 244, "V100", 4)
OLD = InstanceType("aws", "p2.8xlarge", 32, 488, "K80", 8)
CORES = InstanceType("aws", "c4.2xlarge", 8, 15)
ODD = InstanceType("aws", "dl1.24xlarge", 96, 768, "Gaudi", 8)
V100 = {"device": "V100"}

JOB = """\
name: job
kind: command
run: 'true'
resources: {clouds: [local], types: [g2.8xlarge, g2.2xlarge, c4.xlarge]}
"""


def speeds(**settings: object) -> dict[str, TypeSpeed]:
    given = Parallel(**{**V100, **settings})  # type: ignore[arg-type]
    return split_speeds(given, PROFILES, 1, [ONE, FOUR, OLD, CORES, ODD])


def job(folder: Path, lines: str) -> JobSpec:
    content = {
        "format": "spotctl-profile-1",
        "model": "net",
        "profiles": [
            {
                "microbatch": one.microbatch,
                "input_bytes": 0,
                "layers": [asdict(layer) for layer in one.layers],
            }
            for one in PROFILES
        ],
    }
    (folder / "profile.json").write_text(json.dumps(content))
    (folder / "job.yaml").write_text(f"{JOB}{lines}\n")
    return loads(f"{JOB}{lines}\n", folder / "job.yaml")


def test_machines_with_several_accelerators_are_faster_and_others_are_scaled() -> None:
    found = speeds()
    assert found.keys() == {"p3.2xlarge", "p3.8xlarge", "p2.8xlarge"}
    # 8 microbatches of 0.24 s each.
    assert found["p3.2xlarge"].nu == pytest.approx(3600 / 1.92)
    assert 3 < found["p3.8xlarge"].nu / found["p3.2xlarge"].nu <= 4
    assert found["p2.8xlarge"].split is not None
    assert (found["p3.8xlarge"].split.basis, found["p2.8xlarge"].split.basis) == (  # type: ignore[union-attr]
        "profiled",
        "scaled",
    )
    assert found["p2.8xlarge"].spread > found["p3.8xlarge"].spread > 0
    assert "profiled" in found["p3.8xlarge"].source


def test_machines_without_accelerators_have_the_memory_of_the_catalog() -> None:
    """The eight layers have weights of 8 GB, and with Adam several times as much: half of a machine
    is for them.
    """
    layers = tuple(LayerCost(f"l{i}", 0.01, 0.02, 1e5, 4e5, 1e9) for i in range(8))
    heavy = [ModelProfile("net", 4, layers, 1e5)]
    small, large, huge = (InstanceType("aws", f"r.{size}", 4, size) for size in (8, 40, 200))
    given = as_trained(Parallel(batch=32))
    found = split_speeds(given, heavy, 4, [small, large, huge], most_devices=1)
    assert found.keys() == {"r.40", "r.200"}
    assert [found[name].least_stages for name in ("r.40", "r.200")] == [2, 1]
    assert found["r.40"].split is not None
    assert found["r.40"].split.memory_bytes <= 20 * 2**30
    with pytest.raises(BadRequest, match=r"memory|fits"):
        split_speeds(given, heavy, 4, [small], most_devices=1)


def test_a_training_is_planned_as_its_nodes_run_it() -> None:
    (found,) = split_speeds(
        as_trained(Parallel(batch=64)), PROFILES, 4, [CORES], most_devices=1
    ).values()
    assert found.split is not None
    assert (found.split.scheme, found.split.chunks, found.split.recompute) == ("flush", 1, False)
    assert as_trained(Parallel(scheme="interleaved")).chunks == 2
    assert as_trained(Parallel(scheme="2bw", recompute=True)) == Parallel(
        scheme="2bw", recompute=True, chunks=1, tensor=1
    )


def test_a_gang_of_machines_shares_the_work() -> None:
    alone, pair = (
        split_speeds(Parallel(device="V100"), PROFILES, nodes, [FOUR])["p3.8xlarge"]
        for nodes in (1, 2)
    )
    assert pair.split is not None
    assert pair.split.devices <= 8
    assert pair.nu < alone.nu < 2 * pair.nu


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("device", "K80"),
        ("batch", 64),
        ("microbatch", 2),
        ("scheme", "2bw"),
        ("stages", 2),
        ("replicas", 2),
        ("recompute", True),
    ],
)
def test_a_setting_of_parallel_changes_the_plan(setting: str, value: object) -> None:
    assert speeds(**{setting: value}) != speeds()


def test_a_delay_is_allowed_only_if_the_job_says_so() -> None:
    def schemes(allow_delay: int) -> set[str]:
        found = speeds(stages=4, allow_delay=allow_delay).values()
        return {one.split.scheme for one in found if one.split is not None}

    assert schemes(0).isdisjoint({"2bw", "pipedream"})
    assert schemes(1) & {"2bw", "pipedream"}


def test_elastic_jobs_use_a_range_of_devices_and_copy_layers_as_often_as_they_say(
    tmp_path: Path,
) -> None:
    spec = job(
        tmp_path, "parallel: {allow_delay: 0, elastic: {nodes: 2..3, backup: auto, every: 5}}"
    )
    assert restored(written(spec), tmp_path) == spec
    assert isinstance(spec.program, Command)
    assert spec.program.parallel is not None
    given = replace(spec.program.parallel, device="V100")
    found = split_speeds(given, PROFILES, 1, [ONE, FOUR])
    assert found.keys() == {"p3.8xlarge"}
    split = found["p3.8xlarge"].split
    assert split is not None
    assert split.devices <= 3
    assert split.every == 5
    assert plan_from_json(json.loads(json.dumps(split.to_json()))) == split
    with pytest.raises(
        BadRequest,
        match=r"elastic.nodes is 2\.\.3, and p3.2xlarge have fewer devices; widen types or",
    ):
        split_speeds(given, PROFILES, 1, [ONE])


def test_a_training_copies_layers_as_often_as_its_plan_says() -> None:
    model = model_factory("mlp")(4)
    layers = tuple(LayerCost(f"l{i}", 0.01, 0.02, 1e5, 4e5, 4e6) for i in range(len(model.layers)))
    given = split_speeds(
        Parallel(device="V100", elastic=ElasticNodes(every=5)),
        [ModelProfile("mlp", 4, layers, 1e5)],
        1,
        [FOUR],
    )
    split = given["p3.8xlarge"].split
    assert split is not None
    assert planned_training(split, model, 20).every == 5
    assert planned_training(split, model, 20, every=2).every == 2


def test_chunks_and_the_optimizer_change_the_plan() -> None:
    split = {"scheme": "interleaved", "stages": 2}
    assert speeds(**split, chunks=2) != speeds(**split, chunks=4)
    assert speeds(optimizer="sgd") != speeds()


def test_layers_with_parts_are_shared_by_the_devices_of_a_machine(tmp_path: Path) -> None:
    """One microbatch keeps two devices busy only if they share layers; a job can say that they
    shall not.
    """
    layers = tuple(replace(layer, parts=2, output_bytes=1e7) for layer in LAYERS)
    split = [ModelProfile("net", 4, layers, 1e5)]

    def tensor(lines: str) -> int:
        spec = job(tmp_path, lines)
        assert isinstance(spec.program, Command)
        assert spec.program.parallel is not None
        (found,) = split_speeds(
            replace(spec.program.parallel, device="V100"), split, 1, [FOUR]
        ).values()
        assert found.split is not None
        return found.split.tensor

    assert tensor("parallel: {batch: 4}") == tensor("parallel: {batch: 4, tensor: auto}") == 2
    assert tensor("parallel: {batch: 4, tensor: 1}") == 1
    assert tensor("parallel: {batch: 16}") == 1
    assert tensor("parallel: {batch: 16, tensor: 2}") == 2


def test_a_profile_of_cores_says_nothing_about_accelerators() -> None:
    assert speeds(device="cpu").keys() == {"c4.2xlarge"}
    with pytest.raises(
        BadRequest, match="no machine type that the job may use has the device of the profile, T4"
    ):
        split_speeds(Parallel(device="T4"), PROFILES, 1, [CORES, ODD])
    with pytest.raises(BadRequest, match=r"parallel\.microbatch is 3; the profile has 2, 4"):
        speeds(microbatch=3)
    with pytest.raises(BadRequest, match="stages is 9, and net has 8 layers"):
        split_speeds(Parallel(device="V100", stages=9), PROFILES, 16, [FOUR])


def test_a_job_file_says_how_its_model_is_split(tmp_path: Path) -> None:
    auto = job(tmp_path, "parallel: auto")
    assert isinstance(auto.program, Command)
    assert auto.program.parallel == Parallel()
    given = job(tmp_path, "parallel: {stages: 2, replicas: auto, updates: 500}")
    assert isinstance(given.program, Command)
    assert given.program.parallel == Parallel(stages=2, updates=500)
    for spec in (auto, given):
        assert restored(written(spec), tmp_path) == spec
    named = tmp_path / "other.json"
    (tmp_path / "profile.json").rename(named)
    found = loads(f"{JOB}parallel: {{profile: other.json}}\n", tmp_path / "job.yaml")
    assert [one.microbatch for one in profiles_of([found])["job"]] == [2, 4]
    with pytest.raises(
        BadRequest, match=r"parallel: there is no file 'profile.json' in .*; write it with spotctl"
    ):
        loads(f"{JOB}parallel: auto\n", tmp_path / "job.yaml")


def test_plan_uses_the_estimates(tmp_path: Path) -> None:
    job(tmp_path, "parallel: {device: K520, updates: 1000}")
    ended = spotctl("plan", tmp_path / "job.yaml", "--json")
    assert ended.code == 0, ended.err
    answer = json.loads(ended.out)
    assert answer["work"] == {"source": "1,000 updates", "assumed": False}
    rates = answer["throughputs"]
    assert rates
    assert "c4.xlarge" not in rates
    assert all(one["source"].startswith("planned: ") for one in rates.values())
