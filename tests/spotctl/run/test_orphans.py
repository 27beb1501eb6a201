"""What `gc` takes for orphaned, and where it looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import cast

import pytest

from pricing_data.market import Market
from spotctl.clouds.aws.cloud import AwsMachineSettings
from spotctl.clouds.errors import Throttled
from spotctl.clouds.provider import CloudProvider, Machine, MachineState, Resource
from spotctl.files.job.reader import loads, written
from spotctl.home.config import Settings
from spotctl.home.installation import RUN_TAG
from spotctl.home.paths import Paths
from spotctl.log import events as ev
from spotctl.log.store import EventLog
from spotctl.run import orphans as searching

JOB = """
name: far
kind: command
run: "true"
resources: {clouds: [aws], regions: [eu-west-1]}
"""


def began(settings: Settings) -> None:
    spec = loads(JOB, settings.home / "job.yaml")
    with EventLog(Paths(settings.home).log) as log:
        log.append("far-1", 0, ev.RunBegan("far", "aws", written(spec), "", 0))


class Cloud:
    """While it is asked what exists, another process launches a job."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:  # noqa: ARG002
        began(self._settings)
        return Resource("machine", "aws:eu-west-1:i-1", {RUN_TAG: "far-1"}), Resource(
            "machine", "aws:eu-west-1:i-2", {}
        )


def test_the_machines_of_a_run_that_begins_during_the_search_are_not_orphaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(home=tmp_path)
    monkeypatch.setattr(searching, "cloud_provider", lambda *_: Cloud(settings))
    (found,) = searching.orphans(settings, print, ["aws"])
    assert [one.id for one in found.resources] == ["aws:eu-west-1:i-2"]


@pytest.mark.parametrize(
    ("own", "searched"),
    [(("us-east-1",), ("us-east-1", "eu-west-1")), ((), ())],
    ids=["also those of jobs", "all"],
)
def test_the_regions_of_jobs_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: tuple[str, ...], searched: tuple[str, ...]
) -> None:
    settings, asked = (
        Settings(home=tmp_path, tables={"aws": AwsMachineSettings(regions=own)}),
        list[Sequence[str]](),
    )

    def provider(chosen: Settings, _: Sequence[str], regions: Sequence[str] = ()) -> Cloud:
        asked.append(tuple(regions))
        return Cloud(chosen)

    began(settings)
    monkeypatch.setattr(searching, "cloud_provider", provider)
    assert searching.orphans(settings, print, ["aws"])
    assert asked == [searched]


class Silent(Cloud):
    """Never answers."""

    def __init__(self, settings: Settings, over: Event) -> None:
        super().__init__(settings)
        self._over = over

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        self._over.wait()
        return super().resources(tags)

    def remove(self, resources: Sequence[Resource]) -> None:  # noqa: ARG002
        self._over.wait()


def test_a_cloud_that_never_answers_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, over = Settings(home=tmp_path), Event()
    silent = Silent(settings, over)
    monkeypatch.setattr(searching, "cloud_provider", lambda *_: silent)
    monkeypatch.setattr(searching, "SEARCH_SECONDS", 0.0)
    monkeypatch.setattr(searching, "REMOVAL_SECONDS", 0.0)
    (found,) = searching.orphans(settings, print, ["aws"])
    assert str(found.failure) == "no answer within 0 s; try again"
    provider, disk = cast("CloudProvider", silent), Resource("disk", "d", {})
    holding = searching.Orphans("aws", is_used=True, resources=(disk,), provider=provider)
    assert searching.remove_orphans([holding], print) == [
        "aws: not all was removed within 0 s; try again"
    ]
    over.set()


def test_a_cloud_without_an_account_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Google's metadata server was looked for on every computer, for fifteen seconds, and machines
    that might run there were said to cost their price."""
    asked, said = list[str](), list[str]()

    def provider(_: Settings, clouds: Sequence[str], __: Sequence[str]) -> Cloud:
        asked.extend(clouds)
        return Cloud(Settings(home=tmp_path))

    monkeypatch.setattr(searching, "cloud_provider", provider)
    monkeypatch.setattr(searching, "is_traced", lambda _, account: "aws.md" in account.guide)
    answers = searching.orphans(Settings(home=tmp_path), said.append)
    assert asked == ["aws"]
    assert said == []
    unasked = {part.cloud for part in answers if part.failure is not None}
    assert {"gcp", "azure"} <= unasked


class Answering(Cloud):
    """One machine runs until it is returned, which fails once."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.calls = 0

    def list(self, _: Mapping[str, str]) -> tuple[Machine, ...]:
        market = Market("gcp", "us-central1", "us-central1-a", "n2-standard-4")
        machine = Machine(
            "gcp:us-central1-a:one", market, None, MachineState.RUNNING, 0, {RUN_TAG: "far-1"}
        )
        return (machine,) if self.calls < 2 else ()

    def terminate(self, _: Sequence[str]) -> None:
        self.calls += 1
        if self.calls == 1:
            raise Throttled("slow down")


def test_a_cloud_that_never_answers_delays_no_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, over = Settings(home=tmp_path), Event()
    silent = Silent(settings, over)
    monkeypatch.setattr(silent, "list", silent.resources, raising=False)
    clouds = {"aws": silent, "gcp": Answering(settings)}
    monkeypatch.setattr(searching, "cloud_provider", lambda _, names, __: clouds[names[0]])
    ended = searching.return_shown(settings, print, "", list(clouds), seconds=5.0)
    over.set()
    assert [machine.id for machine in ended.returned] == ["gcp:us-central1-a:one"]
    assert ended.left == ()
    assert ended.failures == ("aws: not searched: no answer within 5 s; try again",)
