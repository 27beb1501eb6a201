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

from spotctl.agent.lease.lease_files import MachineNotice
from spotctl.agent.lease.notices import NoticeRelay, poller_of
from spotctl.clouds.aws.machine import AwsNotices
from spotctl.clouds.azure.machine import AzureNotices
from spotctl.clouds.gcp.machine import GoogleNotices
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


class TestAws:
    def test_an_interruption_notice_is_an_eviction_at_its_moment(self) -> None:
        with metadata() as (service, _, host):
            poller = AwsNotices(host)
            assert poller.poll() == []
            service.action = {"action": "terminate", "time": _iso(UNTIL)}
            assert poller.poll() == [MachineNotice("evict", UNTIL_US, "aws")]

    def test_a_rebalance_recommendation_is_a_hint(self) -> None:
        with metadata() as (service, _, host):
            service.rebalance = {"noticeTime": _iso(UNTIL)}
            assert AwsNotices(host).poll() == [MachineNotice("hint", UNTIL_US, "aws rebalance")]

    def test_a_token_is_used_again_and_renewed_when_it_is_refused(self) -> None:
        with metadata() as (service, server, host):
            poller = AwsNotices(host)
            poller.poll()
            poller.poll()
            assert [one.path for one in server.requests].count("/latest/api/token") == 1
            service.token = "token-2"
            with pytest.raises(OSError, match="status 401"):
                poller.poll()
            assert poller.poll() == []


class TestGoogle:
    def test_a_preemption_ends_the_wait_and_leaves_30_seconds(self) -> None:
        with metadata() as (service, _, host):
            poller = GoogleNotices(host)
            assert poller.poll() == []
            threading.Timer(0.1, service.preempted.set).start()
            before = time.time()
            (notice,) = poller.poll()
            assert (notice.kind, notice.source) == ("evict", "gcp")
            assert before + 30 <= notice.until / 1e6 <= time.time() + 30
            assert poller.poll() == [notice]

    def test_a_preemption_before_the_first_question_is_heard(self) -> None:
        with metadata() as (service, _, host):
            service.preempted.set()
            assert [one.kind for one in GoogleNotices(host).poll()] == ["evict"]


class TestAzure:
    def _event(self, kind: str = "Preempt", **values: object) -> dict[str, Any]:
        not_before = datetime.fromtimestamp(UNTIL, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        event = {
            "EventId": "e-1",
            "EventType": kind,
            "Resources": ["machine-0"],
            "NotBefore": not_before,
        }
        return {**event, **values}

    def test_a_preemption_is_an_eviction_at_its_moment(self) -> None:
        with metadata() as (service, _, host):
            poller = AzureNotices(host)
            service.events = [self._event()]
            assert poller.poll() == [MachineNotice("evict", UNTIL_US, "azure")]

    def test_a_started_event_has_no_moment_and_keeps_the_one_that_was_announced(self) -> None:
        with metadata() as (service, _, host):
            poller = AzureNotices(host)
            service.events = [self._event()]
            poller.poll()
            service.events = [self._event(NotBefore="", EventStatus="Started")]
            assert poller.poll() == [MachineNotice("evict", UNTIL_US, "azure")]

    def test_an_event_without_a_moment_counts_from_when_it_was_seen(self) -> None:
        with metadata() as (service, _, host):
            poller = AzureNotices(host)
            service.events = [self._event(NotBefore="")]
            (first,), (second,) = poller.poll(), poller.poll()
            assert first == second
            assert abs(first.until / 1e6 - time.time() - 30) < 20

    def test_events_of_other_machines_and_freezes_are_none_of_ours(self) -> None:
        with metadata() as (service, _, host):
            service.events = [self._event(Resources=["machine-1"]), self._event("Freeze")]
            assert AzureNotices(host).poll() == []

    def test_a_reboot_is_a_hint(self) -> None:
        with metadata() as (service, _, host):
            service.events = [self._event("Reboot")]
            assert AzureNotices(host).poll() == [MachineNotice("hint", UNTIL_US, "azure reboot")]

    def test_an_event_is_acknowledged_once_when_nothing_is_left_to_save(self) -> None:
        with metadata() as (service, _, host):
            poller = AzureNotices(host)
            service.events = [self._event(), self._event("Reboot", EventId="e-2")]
            poller.poll()
            assert service.started == []
            poller.payload_ended()
            poller.poll()
            poller.payload_ended()
            assert service.started == [{"EventId": "e-1"}]


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
                service.events = [TestAzure()._event(NotBefore="")]
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
