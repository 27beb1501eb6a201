"""`gc` on a simulated cloud that is slow to answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cloud.clouds import recorded
from tests.cloud.gcp import GcpServer
from tests.cloud.laptop import Laptop
from tests.servers.loopback import Fault

pytestmark = pytest.mark.cloud


def test_gc_says_which_cloud_it_waits_for(tmp_path: Path) -> None:
    """Its answer takes longer than a wait that is not said."""
    with recorded("gcp") as cloud:
        assert isinstance(cloud.server, GcpServer)
        laptop = Laptop(tmp_path, cloud.environment)
        cloud.server.http.faults.append(Fault("instances", delay_seconds=6.0))
        ended = laptop.run("gc", "--cloud", "gcp")
    assert ended.returncode == 0, ended.stderr
    said, found = ended.stderr.splitlines()
    assert re.fullmatch(
        r"waiting until \S+Z at the latest for gcp to list what they hold; machines there cost their price meanwhile,"
        r" and shut themselves down when nothing has renewed their leases for 16 minutes",
        said,
    )
    assert found == "0 orphaned resources"
