"""Notices of Azure on a machine."""

from __future__ import annotations

import time

from spotctl.agent.lease.lease_files import MachineNotice
from spotctl.clouds.azure.machine import AzureNotices
from tests.spotctl.agent.lease.test_notices import UNTIL_US, metadata, scheduled_event


class TestAzure:
    def test_a_preemption_is_an_eviction_at_its_moment(self) -> None:
        with metadata() as (service, _, host):
            poller = AzureNotices(host)
            service.events = [scheduled_event()]
            assert poller.poll() == [MachineNotice("evict", UNTIL_US, "azure")]

    def test_a_started_event_has_no_moment_and_keeps_the_one_that_was_announced(self) -> None:
        with metadata() as (service, _, host):
            poller = AzureNotices(host)
            service.events = [scheduled_event()]
            poller.poll()
            service.events = [scheduled_event(NotBefore="", EventStatus="Started")]
            assert poller.poll() == [MachineNotice("evict", UNTIL_US, "azure")]

    def test_an_event_without_a_moment_counts_from_when_it_was_seen(self) -> None:
        with metadata() as (service, _, host):
            poller = AzureNotices(host)
            service.events = [scheduled_event(NotBefore="")]
            (first,), (second,) = poller.poll(), poller.poll()
            assert first == second
            assert abs(first.until / 1e6 - time.time() - 30) < 20

    def test_events_of_other_machines_and_freezes_are_none_of_ours(self) -> None:
        with metadata() as (service, _, host):
            service.events = [scheduled_event(Resources=["machine-1"]), scheduled_event("Freeze")]
            assert AzureNotices(host).poll() == []

    def test_a_reboot_is_a_hint(self) -> None:
        with metadata() as (service, _, host):
            service.events = [scheduled_event("Reboot")]
            assert AzureNotices(host).poll() == [MachineNotice("hint", UNTIL_US, "azure reboot")]

    def test_an_event_is_acknowledged_once_when_nothing_is_left_to_save(self) -> None:
        with metadata() as (service, _, host):
            poller = AzureNotices(host)
            service.events = [scheduled_event(), scheduled_event("Reboot", EventId="e-2")]
            poller.poll()
            assert service.started == []
            poller.payload_ended()
            poller.poll()
            poller.payload_ended()
            assert service.started == [{"EventId": "e-1"}]
