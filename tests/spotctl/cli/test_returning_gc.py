"""Orphaned machines, found by their tags and removed, on the local market with real processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pricing_data.units import DAY
from spotctl.agent.container.payload import Payload
from spotctl.agent.data.locations import MACHINE
from spotctl.agent.data.sets import FILES
from spotctl.clouds.local.provider import LocalProvider, LocalSettings
from spotctl.clouds.provider import Machine
from spotctl.home.installation import INSTALLATION_TAG, RUN_TAG, installation_id
from spotctl.run.stored_data import removing
from spotctl.run.stored_data.removing import DataUses
from tests.spotctl.clouds import markets
from tests.spotctl.clouds.leaving import kill_all, running
from tests.spotctl.command_line import spotctl
from tests.spotctl.run.stored_data.buckets import bucket_of
from tests.waiting import eventually


@pytest.fixture
def orphans(tmp_path: Path) -> Iterator[tuple[Machine, ...]]:
    """Two machines of a run that is in no log; their leases outlast the test."""
    provider = LocalProvider(
        tmp_path / "home" / "local", markets.market, LocalSettings(unwarned=0.0)
    )
    provider.begin(markets.BEGIN, 1.0)
    order = markets.order("lost", markets.CLOSES, 2, payload=Payload("sleeper", ("sleep", "1000")))
    yield provider.create(
        replace(
            order,
            tags={RUN_TAG: "lost-000000", INSTALLATION_TAG: installation_id(tmp_path / "home")},
        )
    )
    kill_all(tmp_path)


def test_orphaned_machines_are_found_and_removed_on_request(
    tmp_path: Path, orphans: tuple[Machine, ...]
) -> None:
    ids = {machine.id for machine in orphans}
    found = spotctl("gc", "--json").json
    assert {one["id"] for one in found["resources"]} == ids
    assert found["removed"] is False
    assert len(running(tmp_path)) > 0
    removed = spotctl("gc", "--yes")
    assert removed.code == 0
    assert all(one in removed.err for one in ids)
    eventually(lambda: not running(tmp_path))
    assert spotctl("gc", "--json").json["resources"] == []


def test_what_another_installation_bought_is_left_alone(
    tmp_path: Path, orphans: tuple[Machine, ...]
) -> None:
    """Two homes that share one local market, as two computers share a cloud account."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "local").symlink_to(tmp_path / "home" / "local")
    assert spotctl("--home", other, "gc", "--yes", "--json").json["resources"] == []
    assert installation_id(other) != installation_id(tmp_path / "home")
    assert {one["id"] for one in spotctl("gc", "--json").json["resources"]} == {
        one.id for one in orphans
    }


def test_an_unknown_cloud_is_named_before_any_is_searched(orphans: tuple[Machine, ...]) -> None:
    refused = spotctl("gc", "--yes", "--cloud", "local", "--cloud", "moon")
    assert refused.code == 2
    assert (
        refused.err.strip()
        == "spotctl: cloud 'moon' is not one of aws, gcp, azure, slurm, vast, runpod, local"
    )
    assert len(spotctl("gc", "--json").json["resources"]) == len(orphans)


def test_data_that_no_job_has_used_for_long_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "corpus").write_text("1,2")
    with bucket_of(tmp_path, monkeypatch) as bucket:
        place = bucket.launched()
        uses = DataUses(tmp_path / "home" / "data")
        (use,) = uses.all()
        uses.note(replace(use, used=use.used - 31 * DAY))
        monkeypatch.setattr(removing.remove_data, "__defaults__", (MACHINE,))
        found = spotctl("gc", "--json").json
        assert (found["removed"], found["resources"]) == (False, [])
        assert [(data["location"], data["bytes"], data["job"]) for data in found["data"]] == [
            (place, 3, "reading")
        ]
        assert spotctl("gc", "--data-days", "60", "--yes", "--json").json["data"] == []
        assert any(key.startswith(FILES) for key in bucket.store.objects)
        ended = spotctl("gc", "--yes")
        assert (ended.code, bucket.store.objects) == (0, {})
        assert f"data {place}: 3 bytes, last used by reading, launched " in ended.err
