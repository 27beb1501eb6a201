"""What a client does once a run has ended whose runner lived elsewhere."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pricing_data.market import Market
from spotctl.cli.runs import remote_runner
from spotctl.cli.session import Session
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.log.state import Allocation, Held, RunState
from spotctl.run.remote_runner import client, fence, homes
from spotctl.run.remote_runner.fence import SILENT_SECONDS, Claim
from spotctl.run.remote_runner.place import RunPlace, keep
from spotctl.run.remote_runner.start import RunnerLost

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


class Silent(Runner):
    """A runner that does not answer and no longer renews its claim; its machine goes on, for at most $0.60 an hour."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 10**6)
        self.asked = 0
        order = Allocation(1, Market("gcp", "r", "z", "t"), None, 600_000_000, 1.0, True, 0)
        self.state = RunState(allocations={1: order}, machines={"runner": Held("runner", 1, 0, 100, running=True)})

    def ask(self, *_: object) -> bool:
        self.asked += 1
        return False

    def claim(self) -> Claim:
        return Claim(1, "runner", "key", beat=7)

    def read_state(self) -> RunState:
        return self.state

    def runner(self) -> str:
        return "runner"

    def machines(self) -> tuple[Any, ...]:
        return (SimpleNamespace(id="runner"),)


def test_a_runner_that_should_stop_is_given_up_once_it_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then, the user knows what is waited for, and what it costs."""
    now, said = [0.0], list[str]()

    def clock() -> float:
        now[0] += 5.0
        return now[0]

    monkeypatch.setattr("time.monotonic", clock)
    monkeypatch.setattr("time.sleep", lambda _: None)
    runner = Silent(tmp_path)
    with pytest.raises(RunnerLost, match="its runner is silent"):
        client._ask(cast("RunnerClient", runner), said.append)
    assert now[0] == pytest.approx(SILENT_SECONDS, abs=10)
    assert runner.asked > 1
    (line,) = said
    assert "once it is silent for 35 s" in line
    assert "which cost at most $0.6000 an hour meanwhile" in line


@pytest.mark.parametrize("looks", [1, 3])
def test_what_the_runner_copies_last_is_fetched_before_its_keys_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    runner = Runner(tmp_path, looks)
    monkeypatch.setattr(homes, "place_of", lambda *_: SimpleNamespace(bucket=runner, prefix="output/"))
    monkeypatch.setattr("time.sleep", lambda _: None)
    client.clear_up(cast("RunnerClient", runner), print)
    assert (Paths(tmp_path / "home").output("job-1") / "machine").read_bytes() == b"count 3"
    assert not runner.settings.home.exists()


def test_what_is_left_after_a_while_is_left_to_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Runner(tmp_path, 2)
    monkeypatch.setattr(homes, "place_of", lambda *_: SimpleNamespace(bucket=runner, prefix="output/"))
    monkeypatch.setattr("time.sleep", lambda _: None)
    client.clear_up(cast("RunnerClient", runner), print, -1.0)
    assert runner.settings.home.exists()
    client.clear_up(cast("RunnerClient", runner), print, -1.0)
    assert not runner.settings.home.exists()


class Bucket:
    """A bucket that refuses the first write."""

    def __init__(self) -> None:
        self.written: list[tuple[str, bytes]] = []
        self.refusals = 1

    def write(self, key: str, pieces: list[bytes]) -> None:
        if self.refusals:
            self.refusals -= 1
            raise OSError("no answer")
        self.written.append((key, b"".join(pieces)))


def test_what_machines_print_is_copied_while_the_run_goes_on_and_only_if_there_is_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, looks = Bucket(), iter(["1\n", "", "2\n"])
    monkeypatch.setattr(homes, "place_of", lambda *_: SimpleNamespace(bucket=bucket, prefix="output/"))

    class Stop:
        def wait(self, _: float) -> bool:
            """Until the next copy, the machine may print something."""
            with (tmp_path / "machine").open("a") as file:
                printed = next(looks, None)
                file.write(printed or "")
            return printed is None

    homes.OutputCopier(tmp_path, "gs://bucket/run").run(cast("Event", Stop()))
    # The first copy failed, so that the second one has what the first one should have.
    assert bucket.written == [("output/machine", b"1\n"), ("output/machine", b"1\n2\n")]


def test_a_store_that_does_not_answer_holds_up_no_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run is shown as far as this home knows it; stop says that the store could not be reached."""
    session, over = Session(tmp_path), Event()
    Paths(tmp_path).elsewhere("far").mkdir(parents=True)
    keep(RunPlace("far", "far-1", "s3://results/spotctl/far-1"), session.settings)
    monkeypatch.setattr(client, "refresh_run", lambda *_: over.wait())
    monkeypatch.setattr(client.RunnerClient, "claim", lambda _: over.wait())
    monkeypatch.setattr(fence, "SILENT_SECONDS", 0.0)
    monkeypatch.setattr(remote_runner, "_REFRESH_SECONDS", 0.0)
    assert remote_runner.refresh(session) == set()
    with pytest.raises(RunnerLost, match="the claim of run far-1 did not come within 0 s"):
        remote_runner.stop(session, "far")
    over.set()
    assert capsys.readouterr().err == "the state of run far-1 did not come within 0 s\n"
