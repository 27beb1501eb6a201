"""Machines of a launcher with a slow network: leases are renewed while it sends, and it sends each
archive once.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotctl.agent import layout
from spotctl.clouds.errors import ProviderError, Unanswered
from spotctl.clouds.remote.ssh import SshConnection
from tests.cloud.namespaces import namespaces
from tests.spotctl.clouds.remote.rented import Rented, after, renting, shell
from tests.waiting import eventually

pytestmark = [pytest.mark.cloud, pytest.mark.slow]

MEGABITS, LEASE_SECONDS = 2.0, 20.0
LARGE = 10 << 20
"""Takes twice the first lease to send."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    job = tmp_path / "job"
    job.mkdir()
    (job / "data").write_bytes(random.Random(7).randbytes(LARGE))
    return job


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The large files that this computer has sent."""
    files = list[Path]()
    send = SshConnection.send

    def counted(self: SshConnection, command: str, file: Path, progress: object) -> str:
        answer = send(self, command, file, progress)  # type: ignore[arg-type]
        if file.stat().st_size > LARGE // 2:
            files.append(file)
        return answer

    monkeypatch.setattr(SshConnection, "send", counted)
    return files


def test_a_lease_that_is_shorter_than_the_transfer_is_renewed_meanwhile(
    tmp_path: Path, folder: Path
) -> None:
    with namespaces(MEGABITS) as host, renting(host, tmp_path, folder=folder) as one:
        one.start(shell("sleep 999"), lease=LEASE_SECONDS)
        link, said = one.agents.link(one.machine), set[str]()

        def is_up() -> bool:
            assert not one.ended, one.console
            one.agents.prepare(one.machine, one.supplies)
            with contextlib.suppress(Unanswered):
                link.renew(after(LEASE_SECONDS))
            try:
                return link.status().work == "work"
            except ProviderError as error:
                said.add(str(error))
                return False

        eventually(is_up)
        progress = [
            text for text in said if "sending the job's folder (" in text and "of 10.0 MiB" in text
        ]
        assert len(progress) > 1, said


@contextlib.contextmanager
def three(tmp_path: Path, folder: Path) -> Iterator[list[Rented]]:
    with namespaces() as host, contextlib.ExitStack() as stack:
        machines = [stack.enter_context(renting(host, tmp_path, folder=folder)) for _ in range(3)]
        for one in machines:
            one.agents = machines[0].agents
            one.start(shell("sleep 999"))
        for one in machines:
            eventually(lambda one=one: "spotctl: ready" in one.console)  # type: ignore[misc]
        yield machines


def test_one_copy_is_sent_and_the_other_machines_get_theirs_from_the_first(
    tmp_path: Path, folder: Path, sent: list[Path]
) -> None:
    with three(tmp_path, folder) as machines:
        for one in machines:
            one.agents.prepare(one.machine, one.supplies)
        for one in machines:
            one.prepared()
            assert one.sh(f"stat -Lc %s {layout.JOB_FOLDER}/data").strip() == str(LARGE)
        assert len(sent) == 1


def test_machines_that_do_not_reach_each_other_get_all_from_the_launcher(
    tmp_path: Path, folder: Path, sent: list[Path]
) -> None:
    with three(tmp_path, folder) as machines:
        for one in machines:
            one.sh(
                "iptables -A INPUT -i eth0 -p tcp ! --dport 22 -j REJECT --reject-with tcp-reset"
            )
            one.agents.prepare(one.machine, one.supplies)
        for one in machines:
            one.prepared()
        assert len(sent) == 3
