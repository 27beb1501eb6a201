"""`python -m tests.cloud.figures [aws] [gcp] [azure]`: seconds from launch to the first clock, and
calls per hour.

A training runs on each simulated cloud, with its runner on this computer. Seconds are those of this
computer, whose machines boot without disks and downloads. Calls are those to the cloud's servers in
a minute of the training.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.cloud.aws import AwsServer
from tests.cloud.azure import AzureServer
from tests.cloud.clouds import SimulatedCloud, simulated
from tests.cloud.gcp import GcpServer
from tests.cloud.laptop import Laptop
from tests.cloud.test_launch import TRAINING, running
from tests.servers.loopback import Request

WATCHED_SECONDS = 60.0
LIMITS = {
    "aws": (
        20 * 3600,
        "Describe calls an hour in a region (EC2 Developer Guide, Request throttling)",
    ),
    "gcp": (1500 * 60, "read requests an hour in a region (Compute Engine, API rate quotas)"),
    "azure": (
        25 * 3600,
        "reads an hour of a subscription (Azure Resource Manager, Throttling limits)",
    ),
}
"""What an account may do for as long as it likes, as the clouds document it by default."""


def main(names: Sequence[str]) -> None:
    for name in names or LIMITS:
        with tempfile.TemporaryDirectory() as folder, simulated(name) as cloud:
            sys.stdout.write(measured(cloud, Path(folder)))
            sys.stdout.flush()


def measured(cloud: SimulatedCloud, folder: Path) -> str:
    """The figures of one cloud, as lines."""
    laptop = Laptop(folder, cloud.environment)
    laptop.run(
        "prices", "fetch", "--cloud", cloud.name, "--region", cloud.region, "--type", cloud.type
    )
    job = laptop.job(
        TRAINING.format(clocks=1_000_000, cloud=cloud.name, region=cloud.region, type=cloud.type)
    )
    began = time.monotonic()
    with laptop.launched("launch", job, "--attached", "--yes") as launched:
        launched.wait_for(lambda: laptop.clock("line") >= 1)
        first = time.monotonic() - began
        made = len(requests_to(cloud))
        started, machines = time.monotonic(), len(running(cloud.server))
        time.sleep(WATCHED_SECONDS)
        calls = len(requests_to(cloud)) - made
        hourly = calls / (time.monotonic() - started) * 3600
    most, what = LIMITS[cloud.name]
    return (
        f"{cloud.name}: {first:.0f} s from launch to the first clock, {made} calls until then\n"
        f"  {hourly:,.0f} calls an hour with {machines} machines, {hourly / machines:,.0f} for "
        f"each; {hourly / most:.1%} of {most:,} {what}\n"
    )


def requests_to(cloud: SimulatedCloud) -> Sequence[Request]:
    """All requests to the servers of a cloud, also those of its machines."""
    server = cloud.server
    if isinstance(server, GcpServer):
        return server.http.requests
    assert isinstance(server, AwsServer | AzureServer)
    return server.server.requests


if __name__ == "__main__":
    main(sys.argv[1:])
