"""Notices of Compute Engine on a machine."""

from __future__ import annotations

import threading
import time

from spotctl.clouds.gcp.machine import GoogleNotices
from tests.spotctl.agent.lease.test_notices import metadata


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
