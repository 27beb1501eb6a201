"""What machines left behind in stores."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from spotctl.agent.data.locations import MACHINE
from spotctl.run.stored_data.storing import drop_abandoned_parts
from tests.servers.loopback import Fault, Reply, serving
from tests.servers.objects import (
    S3Dialect,
)

pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.parametrize("dialect", ["s3", "gs"])
def test_parts_that_machines_left_behind_are_removed_after_a_day(
    dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machines were killed, so they could not remove them. Uploads that go on, and those
    elsewhere, stay.
    """
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_REGION",
        "GOOGLE_OAUTH_ACCESS_TOKEN",
    ):
        monkeypatch.setenv(name, "us-east-1")
    left = {"jobs/a-b/old/1": 25, "jobs/a-b/recent/2": 23, "jobs/other/3": 99}
    store = S3Dialect("bucket", lambda _: None)
    for number, hours in left.items():
        store.parts[number], store.begun[number] = (
            {"1": b"left"},
            datetime.now(UTC) - timedelta(hours=hours),
        )
    with serving(store) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", server.url)
        drop_abandoned_parts(f"{dialect}://bucket/jobs/a-b/", MACHINE)
        assert set(store.parts) == {"jobs/a-b/recent/2", "jobs/other/3"}
        # An identity that may not list uploads can launch.
        server.faults.append(Fault("bucket", Reply(403)))
        drop_abandoned_parts(f"{dialect}://bucket/jobs/a-b/", MACHINE)
