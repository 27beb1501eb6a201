"""The three simulated clouds by name, for tests that cover all of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pricing_data.units import DAY
from tests.cloud.api import ApiServer, now_micros
from tests.cloud.aws import RUNNER, AwsServer
from tests.cloud.azure import AzureServer
from tests.cloud.azure_fleet import IDENTITY
from tests.cloud.buckets import ACCOUNT, RESULTS
from tests.cloud.debian import Release, release_of_all
from tests.cloud.gcp import GcpServer
from tests.cloud.gcp_prices import T2A
from tests.cloud.host import LAPTOP, MachineHost, Records
from tests.cloud.namespaces import namespaces
from tests.servers.gcp import PROJECT
from tests.spotctl.clouds.remote.indexes import index_variables

DEBIAN = "/aws/service/debian/release/12/latest/"
_ARM_TYPES = {"gcp": str(T2A.name)}
_DEBIAN_12 = re.compile(r"(debian-|debian/release/)12(:12-)?")


@dataclass(frozen=True)
class SimulatedCloud:
    """A cloud with a region and a machine type whose price is known. `environment` is what a laptop
    needs to use it.

    `identity` may write to the objects in `bucket`. The settings name Debian 12, whose Python the
    machines have.
    """

    name: str
    host: MachineHost
    server: ApiServer
    region: str
    type: str
    identity: str
    bucket: str
    environment: Mapping[str, str]


EVERYTHING = os.environ.get("SPOTCTL_TEST_CLOUDS") == "all"
"""Whether the tests that take long run as a whole, as with `make cloud-all`, or a sample of
them."""

WHOLE_RUN = pytest.mark.sampled(4, of="whole runs on a simulated cloud")
"""Tests of whole runs take minutes each, and differ in what happens to the run. As with
their clouds, `make cloud-all` and `make all-tests` have all of them."""


def sampled(name: str) -> Sequence[str]:
    """The clouds of a test that takes long: all of them, or one."""
    return tuple(_CLOUDS) if EVERYTHING else (name,)


@contextmanager
def simulated(
    name: str,
    megabits: float | None = None,
    release: Release | None = None,
    software: Path | None = None,
) -> Iterator[SimulatedCloud]:
    """A cloud whose machines are namespaces of this computer. `megabits` limits each machine's
    network, per second; with a release, the machines are that one instead of this computer's own.
    Their image has the files of `software`, too. With the release for ARM machines, their Python is
    its, and the cloud's type is one of ARM machines."""
    release = release or release_of_all()
    base = release.root if release and not release.is_arm else Path("/")
    if release and release.is_arm:
        assert software is None, "one folder of software at a time"
        software = release.root
    with namespaces(megabits, base, software) as host, _served(name, host) as cloud:
        yield _of_release(release, cloud) if release else cloud


def _of_release(release: Release, cloud: SimulatedCloud) -> SimulatedCloud:
    machine_type = _ARM_TYPES[cloud.name] if release.is_arm else cloud.type
    return replace(cloud, type=machine_type, environment=_naming(release, cloud.environment))


def _naming(release: Release, environment: Mapping[str, str]) -> dict[str, str]:
    """Settings that name the release, and a package index that has wheels for its Python."""

    def renamed(image: re.Match[str]) -> str:
        processor = "-arm64" if release.is_arm else ""
        return f"{image[1]}{release.number}{processor}" + (
            f":{release.number}-" if image[2] else ""
        )

    named = {name: _DEBIAN_12.sub(renamed, value) for name, value in environment.items()}
    return {**named, **index_variables(release.wheels)}


@contextmanager
def recorded(name: str) -> Iterator[SimulatedCloud]:
    """A cloud whose machines are only records, for launches that come to none."""
    with _served(name, Records()) as cloud:
        yield cloud


@contextmanager
def _served(name: str, host: MachineHost) -> Iterator[SimulatedCloud]:
    cloud = _CLOUDS[name](host)
    try:
        yield cloud
    finally:
        cloud.server.close()


def _aws(host: MachineHost) -> SimulatedCloud:
    server = AwsServer(host)
    for zone in ("us-east-1a", "us-east-1b"):
        changes = server.market.spot_changes(zone, "c6i.large")
        changes[:] = [(now_micros() - days * DAY, changes[0][1]) for days in range(14, -1, -1)]
    environment = {
        **server.environment(),
        "SPOTCTL_AWS": f'ssh_from = ["127.0.0.1/32"]\nimage = "{DEBIAN}amd64"',
    }
    return SimulatedCloud(
        "aws", host, server, "us-east-1", "c6i.large", RUNNER, f"s3://{server.bucket}", environment
    )


def _azure(host: MachineHost) -> SimulatedCloud:
    server = AzureServer(host)
    bucket, environment = f"az://{RESULTS}@{ACCOUNT}", dict(server.environment())
    environment["SPOTCTL_AZURE"] += '\nimage = "Debian:debian-12:12-gen2:latest"'
    return SimulatedCloud(
        "azure", host, server, "eastus", "Standard_D4s_v5", IDENTITY, bucket, environment
    )


def _gcp(host: MachineHost) -> SimulatedCloud:
    """Its network is not the default one, so only the firewall rules of the run admit ssh."""
    server = GcpServer(host)
    server.networks["research"] = "global/networks/research"
    account = f'service_account = "spotctl-machines@{PROJECT}.iam.gserviceaccount.com"'
    image = 'image = "projects/debian-cloud/global/images/family/debian-12"'
    settings = {
        "SPOTCTL_GCP": f'network = "research"\nssh_from = ["{LAPTOP[0]}"]\n{account}\n{image}'
    }
    environment = {**server.environment(), **settings}
    return SimulatedCloud(
        "gcp",
        host,
        server,
        "us-central1",
        "n2-standard-4",
        "default",
        f"gs://{RESULTS}",
        environment,
    )


_CLOUDS: Mapping[str, Callable[[MachineHost], SimulatedCloud]] = {
    "aws": _aws,
    "azure": _azure,
    "gcp": _gcp,
}
