"""What a run leaves behind is found by its tags."""

from __future__ import annotations

import json

import pytest

from spotctl.clouds.errors import Unanswered
from spotctl.clouds.provider import EndReason, MachineState, Resource
from spotctl.home.errors import BadRequest
from spotctl.home.installation import INSTALLATION_TAG, INTENT_TAG, RUN_TAG
from tests.servers.gcp import refusal
from tests.servers.loopback import Fault
from tests.spotctl.clouds.gcp.world import RUN, A, World, body, ended, order, the
from tests.waiting import eventually


def test_what_was_left_is_found_by_its_tags_and_removed(made: World) -> None:
    provider = made.provider(labels={"team": "research"})
    (machine,) = provider.create(order(machines=1))
    labels = dict(body(made).labels)
    made.server.leave_disk(A, "half-made", labels)
    made.server.leave_address("us-central1", "left", labels)
    made.server.leave_disk(A, "strange", {"spotctl-installation": RUN[INSTALLATION_TAG]})
    found = provider.resources(RUN)
    assert [(one.kind, one.tags[RUN_TAG]) for one in found] == [
        (kind, RUN[RUN_TAG])
        for kind in ("machine", "disk", "address", "firewall rule", "firewall rule")
    ]
    assert all(one.id.startswith("gcp:") and "team" not in one.tags for one in found)
    assert provider.resources({INSTALLATION_TAG: "another"}) == ()
    provider.remove(found)
    provider.remove(found)
    eventually(lambda: not provider.resources({}))
    assert [left.id for left in made.server.resources()] == ["strange"]
    (gone,) = provider.list(RUN)
    assert (gone.id, gone.end_reason) == (machine.id, EndReason.RETURNED)


def test_a_run_finds_its_machines_whatever_labels_its_job_has(made: World) -> None:
    tags = {**RUN, INTENT_TAG: "7", "team": "R&D Zürich", "stage": ""}
    kept, machine = made.provider().create(order(tags=tags))
    assert kept.tags == the(made.provider(), kept).tags == tags
    made.server.evict(machine.id, None)
    ended(made, machine)
    found = {one.id: one for one in made.provider().list(RUN)}
    assert (found[machine.id].state, found[machine.id].tags) == (MachineState.GONE, tags)
    made.provider().terminate([kept.id])
    ended(made, kept)
    assert [one.tags[INTENT_TAG] for one in made.provider().list(RUN)] == ["7", "7"]
    for key, value in (("Team", "a"), ("team", "x" * 64), ("spotctl-bid", "1")):
        with pytest.raises(BadRequest, match=key):
            made.provider().create(order("t2", tags={**RUN, key: value}))
    assert len(made.server.machines()) == 2


def test_what_another_made_is_never_deleted(made: World) -> None:
    made.server.leave_disk(A, "theirs", {"owner": "somebody"})
    provider = made.provider()
    provider.terminate([f"gcp:{A}:database", "aws:us-east-1:i-0", "never"])
    assert not made.called("DELETE", "instances")
    assert provider.resources({}) == ()


def test_resources_are_described_in_json_that_people_can_read(made: World) -> None:
    made.provider().create(order(machines=1))
    assert json.loads(made.server.rules()[0].description) == RUN
    strange = Resource("firewall rule", "gcp:global:never", RUN)
    made.provider().remove([strange])


def test_what_cannot_be_removed_keeps_nothing_else(made: World) -> None:
    provider = made.provider()
    provider.create(order(machines=1))
    labels = dict(body(made).labels)
    for name in ("stuck", "other"):
        made.server.leave_disk(A, name, labels)
    found = provider.resources(RUN)
    made.server.http.faults += [Fault("/disks/stuck", refusal(503), times=1000)]
    with pytest.raises(Unanswered):
        provider.remove(found)
    eventually(lambda: [left.id for left in made.server.resources()] == ["stuck"])
