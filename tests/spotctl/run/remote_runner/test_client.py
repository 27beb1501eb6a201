"""What a client does once a run has ended whose runner lived elsewhere."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.run.remote_runner import client, homes
from spotctl.run.remote_runner.place import RunPlace

if TYPE_CHECKING:
    from spotctl.run.remote_runner.client import RunnerClient


PLACE = RunPlace("job", "job-1", "gs://bucket/job/spotctl/job-1")


class Runner:
    """Its machine is gone at the last look. It copies what machines printed before that, and after the run's end."""

    def __init__(self, folder: Path, looks: int) -> None:
        self.tags = {"run": "job-1"}
        self.place, self.settings = PLACE, Settings(folder / "elsewhere")
        self.own_settings = Settings(folder / "home")
        self.provider, self.bucket = self, dict[str, bytes]()
        self.looks = looks
        self.settings.home.mkdir()

    def machines(self) -> tuple[str, ...]:
        self.looks -= 1
        if self.looks:
            return ("runner",)
        self.bucket["output/machine"] = b"count 3"
        return ()

    def resources(self, _: object) -> tuple[()]:
        return ()

    def remove(self, _: object) -> None:
        """Nothing is left."""

    def get(self, key: str) -> list[bytes]:
        return [self.bucket[key]]

    def list(self, _: str) -> tuple[str, ...]:
        return tuple(self.bucket)


@pytest.mark.parametrize("looks", [1, 3])
def test_what_the_runner_copies_last_is_fetched_before_its_keys_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    runner = Runner(tmp_path, looks)
    monkeypatch.setattr(homes, "place_of", lambda *_: SimpleNamespace(bucket=runner, prefix="output/"))
    monkeypatch.setattr("time.sleep", lambda _: None)
    client.clear_up(cast("RunnerClient", runner))
    assert (Paths(tmp_path / "home").output("job-1") / "machine").read_bytes() == b"count 3"
    assert not runner.settings.home.exists()


def test_what_is_left_after_a_while_is_left_to_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Runner(tmp_path, 2)
    monkeypatch.setattr(homes, "place_of", lambda *_: SimpleNamespace(bucket=runner, prefix="output/"))
    monkeypatch.setattr("time.sleep", lambda _: None)
    client.clear_up(cast("RunnerClient", runner), -1.0)
    assert runner.settings.home.exists()
    client.clear_up(cast("RunnerClient", runner), -1.0)
    assert not runner.settings.home.exists()
