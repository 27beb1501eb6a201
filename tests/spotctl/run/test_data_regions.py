"""Data in another region than the machines is said, with what reading it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pricing_data.list_prices import Location
from spotctl.agent.data import stores
from spotctl.agent.data.locations import MACHINE
from spotctl.cli.runs import launches
from spotctl.cli.runs.launches import say_which_data_is_far
from spotctl.files.job.reader import load
from spotctl.run.start.admission import bucket_location, far_data, misplaced_buckets
from tests.servers.loopback import Reply, Request, serving

JOB = """\
name: reading
kind: command
run: "true"
data: {{corpus: {data}}}
outputs: {{read: s3://far/read/}}
resources: {{clouds: [aws], regions: [us-east-1], types: [c6i.large]}}
"""


class Regions:
    """S3 and Cloud Storage where they say where a bucket is."""

    def answer(self, request: Request) -> Reply:
        if request.path == "/storage/v1/b/several":
            return Reply.of_json({"location": "US", "locationType": "multi-region"})
        if request.path.startswith("/storage/v1/b/"):
            return Reply.of_json({"location": "EUROPE-WEST4", "locationType": "region"})
        return (
            Reply(301, headers={"x-amz-bucket-region": "us-west-2"})
            if request.path == "/far"
            else Reply(403)
        )


@pytest.fixture(autouse=True)
def _clouds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(stores, "FIRST_PAUSE", 0.001)
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "token")
    with serving(Regions()) as server:
        for name in ("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", "AWS_ENDPOINT_URL_S3"):
            monkeypatch.setenv(name, server.url)
        yield


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("s3://far/x/", Location("aws", "us-west-2")),
        ("s3://secret/x/", None),
        ("gs://near/x/", Location("gcp", "europe-west4")),
        ("gs://several/x/", None),
        ("az://box@account/x", None),
    ],
)
def test_a_bucket_says_where_it_is(location: str, place: Location | None) -> None:
    assert bucket_location(location, MACHINE) == place


def plan(folder: Path, data: str) -> Any:  # noqa: ANN401  # of a plan, only these parts are read
    (folder / "job.yaml").write_text(JOB.format(data=data))
    market = SimpleNamespace(cloud="aws", region="us-east-1")
    choice = SimpleNamespace(rent=SimpleNamespace(offer=SimpleNamespace(market=market)))
    cost = SimpleNamespace(choice=[choice])
    return SimpleNamespace(cost=cost, job=SimpleNamespace(spec=load(folder / "job.yaml")))


@pytest.mark.parametrize(
    ("data", "place", "lines"),
    [
        ("s3://far/x/", Location("aws", "us-east-1"), []),
        ("s3://far/x/", None, []),
        (
            "s3://far/x/",
            Location("aws", "us-west-2"),
            [
                "data corpus: s3://far/x/ is in us-west-2, and the machines are in us-east-1: each "
                "of them reads it from there, for about $0.02 per GB"
            ],
        ),
        (
            "corpus",
            Location("gcp", "europe-west4"),
            [
                "data corpus: s3://far is in gcp/europe-west4, and the machines are in us-east-1: "
                "each of them reads it from there, for about $0.12 per GB"
            ],
        ),
    ],
)
def test_a_plan_with_far_data_says_so(
    tmp_path: Path, data: str, place: Location | None, lines: list[str]
) -> None:
    region_of: Callable[[str], Location | None] = lambda _: place  # noqa: E731
    assert list(far_data(plan(tmp_path, data), region_of)) == lines


def test_a_region_with_a_bucket_gets_a_copy_once(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    reading = plan(tmp_path, "corpus")
    reading.job.spec = replace(reading.job.spec, data_buckets={"us-east-1": "s3://near/"})
    assert list(far_data(reading, lambda _: Location("aws", "us-west-2"))) == [
        "data corpus: s3://far is in us-west-2, and the machines are in us-east-1: it is copied to "
        "s3://near once, and until then each of them reads it from there, for about $0.02 per GB"
    ]
    # Objects below a prefix are not copied.
    reading.job.spec = replace(reading.job.spec, data={"corpus": "s3://far/x/"})
    (line,) = far_data(reading, lambda _: Location("aws", "us-west-2"))
    assert "each of them reads it from there" in line


@pytest.mark.parametrize(
    ("place", "lines"),
    [
        (Location("aws", "us-east-1"), []),
        (None, []),
        (
            Location("aws", "us-west-2"),
            ["data_buckets.us-east-1: s3://near is in us-west-2; name a bucket in us-east-1"],
        ),
    ],
)
def test_a_bucket_in_another_region_than_its_own_is_said(
    tmp_path: Path, place: Location | None, lines: list[str]
) -> None:
    spec = replace(plan(tmp_path, "s3://far/x/").job.spec, data_buckets={"us-east-1": "s3://near"})
    assert list(misplaced_buckets(spec, lambda _: place)) == lines


class Said:
    """A session that keeps what it says."""

    def __init__(self) -> None:
        self.remarks: list[str] = []

    def remark(self, *lines: str) -> None:
        self.remarks += lines


def test_only_a_launch_whose_machines_read_data_asks_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[str] = []

    @contextmanager
    def waiting(_: object, what: str) -> Iterator[None]:
        waits.append(what)
        yield

    monkeypatch.setattr(launches, "waiting", waiting)
    said = Said()
    session: Any = said
    reading = plan(tmp_path, "s3://far/x/")
    idle = SimpleNamespace(
        **{**vars(reading), "job": SimpleNamespace(spec=replace(reading.job.spec, data={}))}
    )
    say_which_data_is_far(session, [idle])  # type: ignore[list-item]
    assert (waits, said.remarks) == ([], [])
    monkeypatch.setattr(launches, "bucket_location", lambda _: Location("aws", "us-west-2"))
    say_which_data_is_far(session, [idle, reading])  # type: ignore[list-item]
    assert (waits, len(said.remarks)) == (["asking where the data is"], 1)
