"""A node of a command whose object store fails for a time, or for good."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spotctl.agent.checkpoints.copying import CheckpointSync
from spotctl.agent.checkpoints.stored import CheckpointRecord, StoredCheckpoints
from spotctl.agent.container.payload import CheckpointPolicy, NodeTask
from spotctl.agent.container.processes import MARK
from spotctl.agent.data import stores, transfer
from spotctl.agent.errors import TransferFailed
from spotctl.agent.lease.job_lease import SAVED_AND_ENDED
from spotctl.agent.node import CommandNode
from tests.servers.loopback import Fault, LoopbackServer, Reply, serving
from tests.servers.objects import S3Dialect, bearer

FAILURES = 3 * stores.ATTEMPTS + 1
"""Requests that fail: more than one attempt to store something."""

KEPT = "gs://bucket/kept"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    monkeypatch.setattr(stores, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(transfer, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "token")
    usual = signal.getsignal(signal.SIGTERM)
    with serving(S3Dialect("bucket", bearer("token"))) as running:
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", running.url)
        yield running
    signal.signal(signal.SIGTERM, usual)


def node(folder: Path) -> CommandNode:
    """Continues from a number in its checkpoint, and leaves the next one there and in its
    result."""
    run = (
        "read n <$SPOTCTL_CHECKPOINT_DIR/n || n=0; echo $((n + 1)) | tee $SPOTCTL_CHECKPOINT_DIR/n "
        ">$OUTPUT_RESULT/n"
    )
    policy = CheckpointPolicy(KEPT, None, None, 1.0, 60.0)
    task = NodeTask(
        "r.1", run=run, outputs={"OUTPUT_RESULT": "gs://bucket/out"}, checkpoint=policy, marks=KEPT
    )
    return CommandNode(task, {MARK: str(folder / "machine"), "PATH": "/bin:/usr/bin"})


def objects(server: LoopbackServer) -> dict[str, bytes]:
    assert isinstance(server.api, S3Dialect)
    return {key: one.content for key, one in server.api.objects.items()}


def test_an_outage_from_any_request_on_changes_nothing(
    server: LoopbackServer, tmp_path: Path
) -> None:
    number = 0
    while True:
        number += 1
        server.requests.clear()
        outage = Fault("", Reply(503), times=FAILURES, skip=number - 1)
        server.faults[:] = [outage]
        assert node(tmp_path).run() == 0
        assert objects(server)["out/n"] == f"{number}\n".encode()
        assert "kept/ended/r.1/node-0" in objects(server)
        if outage.times == FAILURES:
            break
    assert number > 8


def test_a_checkpoint_that_cannot_be_read_now_is_not_replaced_by_an_older_one(
    server: LoopbackServer, tmp_path: Path
) -> None:
    stored = StoredCheckpoints(KEPT, 0)
    for number in (1, 2):
        (tmp_path / "n").write_text(f"{number}\n")
        stored.put_files("r.0", number, tmp_path, ["n"])
        stored.put_record(CheckpointRecord("r.0", number, 1.0, 2, 60.0), ["n"])
    server.faults.append(Fault("node-0/000000000002", Reply(503), times=FAILURES))
    assert node(tmp_path).run() == 0
    assert objects(server)["out/n"] == b"3\n"


def test_a_store_that_refuses_for_good_is_not_waited_for(
    server: LoopbackServer, tmp_path: Path
) -> None:
    server.faults.append(Fault("out/n", Reply(403), times=1))
    with pytest.raises(TransferFailed, match="may not do this"):
        node(tmp_path).run()


def test_a_machine_whose_end_was_announced_does_not_wait(
    server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = CheckpointSync.look

    def warns(sync: CheckpointSync) -> bool:
        signal.raise_signal(signal.SIGTERM)
        return usual(sync)

    monkeypatch.setattr(CheckpointSync, "look", warns)
    server.faults.append(Fault("node-0/", Reply(503), times=10**6))
    node(tmp_path).run()
    assert not any(key.startswith("kept/node-0/") for key in objects(server))


@pytest.mark.parametrize("failing", ["", "out/n"])
def test_nor_one_whose_end_is_announced_while_it_waits(
    failing: str, server: LoopbackServer, tmp_path: Path
) -> None:
    server.faults.append(outage := Fault(failing, Reply(503), times=10**6))

    def announce() -> None:
        while outage.times == 10**6:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    with ThreadPoolExecutor() as pool:
        pool.submit(announce)
        assert node(tmp_path).run() == SAVED_AND_ENDED
