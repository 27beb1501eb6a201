"""Notices of EC2 on a machine."""

from __future__ import annotations

import pytest

from spotctl.agent.lease.lease_files import MachineNotice
from spotctl.clouds.aws.machine import AwsNotices
from tests.spotctl.agent.lease.test_notices import UNTIL, UNTIL_US, _iso, metadata


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
