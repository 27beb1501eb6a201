"""What a client does once a run has ended whose runner lived elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from socket import create_server
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pricing_data.market import Market
from spotctl.cli.runs import remote_runner
from spotctl.cli.session import Session
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.log import events as ev
from spotctl.log.state import Allocation, Held, RunState
from spotctl.log.store import EventLog
from spotctl.run import following
from spotctl.run.remote_runner import client, fence, homes
from spotctl.run.remote_runner.fence import SILENT_SECONDS, Claim
from spotctl.run.remote_runner.place import RunnerLost, RunPlace, keep
from tests.spotctl.command_line import spotctl
from tests.spotctl.run.remote_runner.test_fence import Cell, Clock

if TYPE_CHECKING:
    from spotctl.run.remote_runner.client import RunnerClient


PLACE = RunPlace("job", "job-1", "gs://bucket/job/spotctl/job-1")


class Runner:
    """Its machine is gone at the last look. It copies what machines printed before that, and after
    the run's end.
    """

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
    """A runner that does not answer and no longer renews its claim; its machine goes on, for at
    most $0.60 an hour.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 10**6)
        self.asked = 0
        order = Allocation(1, Market("gcp", "r", "z", "t"), None, 600_000_000, 1.0, True, 0)
        self.state = RunState(
            allocations={1: order}, machines={"runner": Held("runner", 1, 0, 100, running=True)}
        )

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
    now = [0.0]

    def clock() -> float:
        now[0] += 5.0
        return now[0]

    monkeypatch.setattr("time.monotonic", clock)
    monkeypatch.setattr("time.sleep", lambda _: None)
    runner = Silent(tmp_path)
    with pytest.raises(RunnerLost, match="its runner is silent"):
        client._ask(cast("RunnerClient", runner))
    assert now[0] == pytest.approx(SILENT_SECONDS, abs=10)
    assert runner.asked > 1


def test_a_runner_that_lives_but_hears_nothing_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It renews its claim, and no command reaches it. The user knows what is waited for, and what
    that costs.
    """
    said, over, runner = list[str](), Event(), Silent(tmp_path)
    monkeypatch.setattr(following, "SAY_AFTER", 0.0)
    monkeypatch.setattr(client, "HEAR_SECONDS", 1.0)
    monkeypatch.setattr(client, "_ask", lambda _: over.wait())
    monkeypatch.setattr(client, "take_over", lambda *_: "taken over")
    monkeypatch.setattr(client, "clear_up", lambda *_: None)
    assert client.stop_run(cast("RunnerClient", runner), lambda _: None, said.append) == cast(
        "Any", "taken over"
    )
    over.set()
    assert said[-1] == "run job-1: its runner has not heard that its run ends"
    assert (
        "for the runner of job-1 to hear that its run ends; if it does not, or is silent for 35 s,"
        in said[0]
    )
    assert said[0].endswith(
        "this computer returns its machines; they cost at most $0.6000 an hour meanwhile"
    )


@pytest.mark.parametrize("looks", [1, 3])
def test_what_the_runner_copies_last_is_fetched_before_its_keys_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    runner = Runner(tmp_path, looks)
    monkeypatch.setattr(
        homes, "place_of", lambda *_: SimpleNamespace(bucket=runner, prefix="output/")
    )
    monkeypatch.setattr("time.sleep", lambda _: None)
    client.clear_up(cast("RunnerClient", runner), print)
    assert (Paths(tmp_path / "home").output("job-1") / "machine").read_bytes() == b"count 3"
    assert not runner.settings.home.exists()


def test_what_is_left_after_a_while_is_left_to_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Runner(tmp_path, 2)
    monkeypatch.setattr(
        homes, "place_of", lambda *_: SimpleNamespace(bucket=runner, prefix="output/")
    )
    monkeypatch.setattr("time.sleep", lambda _: None)
    client.clear_up(cast("RunnerClient", runner), print, 0.0)
    assert runner.settings.home.exists()
    client.clear_up(cast("RunnerClient", runner), print, 0.0)
    assert not runner.settings.home.exists()


class Kept(Runner):
    """Its call to return its own machine got no answer."""

    def machines(self) -> tuple[Any, ...]:
        return (SimpleNamespace(id="runner"),) if self.looks else ()

    def terminate(self, ids: Sequence[str]) -> None:
        assert ids == ["runner"]
        self.looks = 0


def test_a_machine_that_its_runner_has_not_returned_is_returned_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Kept(tmp_path, 1)
    monkeypatch.setattr(
        homes, "place_of", lambda *_: SimpleNamespace(bucket=runner, prefix="output/")
    )
    monkeypatch.setattr(client, "_LOOK_SECONDS", 0.01)
    client.clear_up(cast("RunnerClient", runner), print, 0.1)
    assert not runner.looks
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
    monkeypatch.setattr(
        homes, "place_of", lambda *_: SimpleNamespace(bucket=bucket, prefix="output/")
    )

    class Stop:
        def wait(self, _: float) -> bool:
            """Until the next copy, the machine may print something."""
            with (tmp_path / "machine").open("a") as file:
                printed = next(looks, None)
                file.write(printed or "")
            return printed is None

    homes.OutputCopier(tmp_path, "gs://bucket/run", lambda: None).run(cast("Event", Stop()))
    # The first copy failed, so that the second one has what the first one should have.
    assert bucket.written == [("output/machine", b"1\n"), ("output/machine", b"1\n2\n")]


def test_a_runner_that_stood_still_does_not_overwrite_what_its_successor_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing has told it yet that another took over: it finds out when it is about to write."""
    bucket, cell, clock = Bucket(), Cell(), Clock()
    bucket.refusals = 0
    monkeypatch.setattr(
        homes, "place_of", lambda *_: SimpleNamespace(bucket=bucket, prefix="output/")
    )
    folders, copiers = [tmp_path / name for name in ("old", "new")], list[homes.OutputCopier]()
    for folder, printed in zip(folders, ("1\n", "1\n2\n"), strict=True):
        folder.mkdir()
        (folder / "machine").write_text(printed)
        copiers.append(
            homes.OutputCopier(
                folder, "gs://bucket/run", fence.Fence(cell, folder.name, clock).hold
            )
        )
        clock.now += 2 * fence.STALE_SECONDS
    copiers[1].copy()
    looks = iter([False, True])
    copiers[0].run(cast("Event", SimpleNamespace(wait=lambda _: next(looks))))
    assert next(looks), "it has ended"
    assert bucket.written == [("output/machine", b"1\n2\n")]


def test_a_store_that_does_not_answer_holds_up_no_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run is shown as far as this home knows it; stop says that the store could not be
    reached."""
    session, over = Session(tmp_path), Event()
    Paths(tmp_path).elsewhere("far").mkdir(parents=True)
    keep(RunPlace("far", "far-1", "s3://results/spotctl/far-1"), session.settings)
    monkeypatch.setattr(client, "refresh_run", lambda *_: over.wait())
    monkeypatch.setattr(client.RunnerClient, "claim", lambda _: over.wait())
    monkeypatch.setattr(remote_runner, "_CLAIM_SECONDS", 0.0)
    monkeypatch.setattr(remote_runner, "_REFRESH_SECONDS", 0.0)
    assert remote_runner.refresh(session) == set()
    with pytest.raises(RunnerLost, match="the claim of run far-1 did not come within 0 s"):
        remote_runner.stop(session, "far")
    over.set()
    assert capsys.readouterr().err == "the state of run far-1 did not come within 0 s\n"


def test_stop_ends_though_cloud_and_store_are_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their sockets take connections and never answer. What may go on is named, with its cost and
    its end.
    """
    home, market = Paths(tmp_path / "home"), Market("aws", "us-east-1", "us-east-1a", "c6i.large")
    home.elsewhere("far").mkdir(parents=True)
    keep(RunPlace("far", "far-1", "s3://results/spotctl/far-1"), Settings(tmp_path / "home"))
    with EventLog(home.log) as log:
        log.append("far-1", 0, ev.RunBegan("far", "aws", {}, "/nowhere", 0))
        log.append("far-1", 0, ev.RentIntended(1, market, 1, None, 85_000_000, 1.0, True, 10**15))
        log.append("far-1", 0, ev.Rented(1, (ev.Granted("aws:us-east-1:i-1", 0),)))
    monkeypatch.setattr(remote_runner, "_CLAIM_SECONDS", 1.0)
    monkeypatch.setattr(following, "REACH_SECONDS", 2.0)
    with create_server(("127.0.0.1", 0), backlog=64) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        keys = {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        ended = spotctl(
            "stop", "far", AWS_ENDPOINT_URL=address, SPOTCTL_HOME=str(tmp_path / "home"), **keys
        )
    assert ended.code == 1
    said = ended.err.splitlines()
    assert "the claim of run far-1 did not come within 1 s" in said
    assert "aws: not searched: no answer within 2 s; try again" in said
    assert said[-2].startswith("machines that a cloud did not show shut themselves down by 2")
    assert said[-2].endswith(
        "; of those that the log knows, aws:us-east-1:i-1, an hour costs at most $0.0850"
    )
    assert (
        said[-1]
        == "'spotctl stop far' writes down the end of the run once its object store answers"
    )
