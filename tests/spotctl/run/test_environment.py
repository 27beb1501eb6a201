"""Orders of machines read these keys of a job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pricing_data.market import Market
from pricing_data.units import SECOND, parse_time
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import MachineRequest
from spotctl.files.job.programs import Command
from spotctl.files.job.reader import loads
from spotctl.files.job.spec import JobSpec
from spotctl.home.paths import Paths
from spotctl.log.events import RentIntended
from spotctl.run.environment import environment_of
from spotctl.run.turn.execute import request_of
from spotctl.run.work.command_workload import CommandWorkload
from spotctl.run.work.training_workload import TrainingWorkload
from tests.spotctl.clouds.fake import FakeProvider
from tests.spotctl.files.job.test_spec_consumers import COMMAND, ORDERED, TRAINING


def requested(spec: JobSpec, home: Path, market: Market | None = None) -> MachineRequest:
    """What a provider is asked for when the job needs a machine."""
    cloud = spec.resources.clouds[0]
    environment = environment_of(spec, "run", home, FakeProvider(Replayed.of(()), 0), Paths(home))
    order = RentIntended(
        1, market or Market(cloud, "somewhere", "-", "m3.medium"), 1, None, 100, 1.0, False, 0
    )
    if isinstance(spec.program, Command):
        return request_of(
            order, environment, CommandWorkload(spec, environment, lambda *_: 1e12, lambda: SECOND)
        )
    return request_of(order, environment, TrainingWorkload(spec, environment))


@pytest.mark.parametrize("key", ORDERED)
def test_an_order_of_machines_reads(key: str, tmp_path: Path) -> None:
    cloud, line = ORDERED[key]
    text = TRAINING.replace("clouds: [local]", f"clouds: [{cloud}]")
    requests = []
    for content in (text, text, f"{text}{line}\n"):
        spec = loads(content, tmp_path / "job.yaml")
        requests.append(requested(spec, tmp_path))
    assert requests[0] == requests[1] != requests[2]
    # Only where machines share no network, they have ports that a router forwards.
    assert bool(requests[0].ports) is (cloud in ("vast", "runpod"))


def test_an_order_of_reserved_machines_has_the_id_and_says_whether_it_is_a_block(
    tmp_path: Path,
) -> None:
    named = (
        "{id: cr-0abc, cloud: aws, zone: us-east-1a, type: p5.48xlarge, machines: 2, price: 0, "
        "until: 2026-12-01T00:00Z"
    )
    text = (
        "name: job\nkind: command\nrun: echo\n"
        f"resources: {{clouds: [aws], reservations: [{named}, block: true}}]}}\n"
    )
    spec = loads(text, tmp_path / "job.yaml")
    (reservation,) = spec.resources.reservations
    assert reservation.leave == parse_time("2026-11-30T23:28Z")
    asked = requested(spec, tmp_path, reservation.market)
    assert (asked.reservation, asked.block) == ("cr-0abc", True)
    assert (requested(spec, tmp_path).reservation, requested(spec, tmp_path).block) == ("", False)


def test_an_order_of_close_machines_says_so(tmp_path: Path) -> None:
    text = COMMAND.replace("clouds: [local]", "clouds: [aws]").replace(
        "path: ckpt", "path: s3://b/ckpt"
    )
    specs = [
        loads(text.replace("[aws]", f"[aws]{more}"), tmp_path / "job.yaml")
        for more in ("", ", placement: close")
    ]
    assert [requested(spec, tmp_path).close for spec in specs] == [False, True]


def test_an_order_of_machines_names_the_copies_near_them(tmp_path: Path) -> None:
    stored = f"spotctl-data/sets/{'a' * 64}"
    more = f"data: {{in: 's3://b/{stored}'}}\ndata_buckets: {{us-west-2: s3://west}}\n"
    for text in (COMMAND, TRAINING):
        rented = text.replace("clouds: [local]", "clouds: [aws]").replace(
            "path: ckpt", "path: s3://b/ckpt"
        )
        spec = loads(rented + more, tmp_path / "job.yaml")
        for region, near in (("us-west-2", {"DATA_IN": f"s3://west/{stored}"}), ("us-east-1", {})):
            payload = requested(
                spec, tmp_path, Market("aws", region, f"{region}a", "c4.xlarge")
            ).payload
            assert payload is not None
            (task,) = [
                json.loads(word)
                for word in payload.in_former_words()["command"]
                if word.startswith("{")
            ]
            assert (task["data"], task.get("near", {})) == ({"DATA_IN": f"s3://b/{stored}"}, near)
