"""Notices of the three clouds, from metadata services on loopback to a real agent."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spotctl.agent.lease.notices import NoticeRelay, poller_of
from spotctl.clouds.aws.machine import AwsNotices
from spotctl.clouds.azure.machine import AzureNotices
from tests.servers.loopback import Fault, LoopbackServer, Reply, Request, serving
from tests.spotctl.agent.agents import Agent, python
from tests.waiting import eventually

UNTIL = 1_900_000_000
UNTIL_US = UNTIL * 10**6


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Metadata:
    """All three services. `action` and `rebalance` are AWS's, `preempted` is Google's, `events` are
    Azure's.
    """

    action: dict[str, str] | None = None
    rebalance: dict[str, str] | None = None
    preempted: threading.Event = field(default_factory=threading.Event)
    events: list[dict[str, Any]] = field(default_factory=list)
    token: str = "token-1"
    started: list[Any] = field(default_factory=list)

    def answer(self, request: Request) -> Reply:
        if request.path.startswith("/latest/"):
            return self._aws(request)
        if request.path == "/computeMetadata/v1/instance/preempted":
            return self._google(request)
        return self._azure(request)

    def _aws(self, request: Request) -> Reply:
        if request.path == "/latest/api/token":
            lifetime = request.headers.get("x-aws-ec2-metadata-token-ttl-seconds")
            return (
                Reply(200, self.token.encode())
                if request.method == "PUT" and lifetime
                else Reply(400)
            )
        if request.headers.get("x-aws-ec2-metadata-token") != self.token:
            return Reply(401)
        values = {
            "spot/instance-action": self.action,
            "events/recommendations/rebalance": self.rebalance,
        }
        value = values.get(request.path.removeprefix("/latest/meta-data/"))
        return Reply(404) if value is None else Reply.of_json(value)

    def _google(self, request: Request) -> Reply:
        if request.headers.get("metadata-flavor") != "Google":
            return Reply(403)
        if request.query.get("wait_for_change") == ["true"] and request.query.get("last_etag") == [
            "E-False"
        ]:
            self.preempted.wait(float(request.query["timeout_sec"][0]))
        now = self.preempted.is_set()
        return Reply(200, b"TRUE" if now else b"FALSE", {"ETag": f"E-{now}"})

    def _azure(self, request: Request) -> Reply:
        if request.headers.get("metadata") != "true":
            return Reply(400)
        if request.path == "/metadata/instance":
            return Reply.of_json({"compute": {"name": "machine-0"}})
        if request.method == "POST":
            self.started += request.json()["StartRequests"]
            return Reply(200)
        return Reply.of_json({"DocumentIncarnation": 1, "Events": self.events})


@contextmanager
def metadata() -> Iterator[tuple[Metadata, LoopbackServer, str]]:
    service = Metadata()
    with serving(service) as server:
        yield service, server, server.url.removeprefix("http://")


def scheduled_event(kind: str = "Preempt", **values: object) -> dict[str, Any]:
    not_before = datetime.fromtimestamp(UNTIL, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    event = {
        "EventId": "e-1",
        "EventType": kind,
        "Resources": ["machine-0"],
        "NotBefore": not_before,
    }
    return {**event, **values}


class TestNoticeRelay:
    def test_a_notice_reaches_the_payload_once_and_is_acknowledged_when_that_has_ended(
        self, tmp_path: Path
    ) -> None:
        agent = Agent(tmp_path)
        try:
            agent.assign(python("import signal; signal.pause()"))
            with metadata() as (service, _, host):
                relay = NoticeRelay(AzureNotices(host), agent.connect, time.sleep)
                relay.turn()
                service.events = [scheduled_event(NotBefore="")]
                relay.turn()
                relay.turn()
                assert [one["kind"] for one in agent.call("notices")["notices"]] == ["evict"]
                assert agent.result() == -signal.SIGTERM
                relay.turn()
                assert service.started == [{"EventId": "e-1"}]
        finally:
            agent.close()

    def test_a_service_that_fails_is_asked_again(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        agent = Agent(tmp_path)
        pauses: list[float] = []
        done = threading.Event()

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) > 4:
                done.wait()

        try:
            with metadata() as (service, server, host):
                service.action = {"action": "terminate", "time": _iso(UNTIL)}
                server.faults.append(Fault("api/token", Reply(503), times=3))
                relay = NoticeRelay(AwsNotices(host), agent.connect, sleep)
                threading.Thread(target=relay.run, daemon=True).start()
                eventually(lambda: agent.call("notices")["notices"])
                assert pauses[:3] == [1.0, 2.0, 4.0]
                eventually(lambda: len(pauses) > 4)
            assert capsys.readouterr().err.count("503") == 1
        finally:
            agent.close()


def test_a_machine_of_no_cloud_has_no_notices() -> None:
    assert poller_of("elsewhere", {}) is None


def test_the_address_of_the_services_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    with metadata() as (service, _, host):
        service.preempted.set()
        service.action = {"action": "terminate", "time": _iso(UNTIL)}
        monkeypatch.setenv("GCE_METADATA_HOST", host)
        google = poller_of("gcp", {})
        aws = poller_of("aws", {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{host}/"})
        assert google is not None
        assert aws is not None
        assert [one.source for one in (*google.poll(), *aws.poll())] == ["gcp", "aws"]
