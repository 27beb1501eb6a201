"""Images that a launch uses by default are in public catalogs or documentation, for the right
processors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from moto.ec2.models.instance_types import INSTANCE_TYPES

from pricing_data.market import Market
from spotctl.clouds.aws.orders import Ec2Hardware, parameter_for
from spotctl.clouds.azure.buyer import AzureSize, image_reference
from spotctl.clouds.errors import NotFound
from spotctl.clouds.gcp.cloud import GcpMachineSettings
from spotctl.clouds.gcp.orders import GcpHardware, instance
from spotctl.clouds.provider import MachineRequest
from spotctl.home.errors import BadRequest
from tests.cloud.azure_fleet import SIZES
from tests.cloud.images import images

_PLACE = ("us-central1-a", "spotctl-0a-1b-2c-0")
_DOCS = Path(__file__).parents[3] / "docs"


def of_aws() -> Iterator[tuple[str, str]]:
    """The image of each type that EC2 describes, with the type's architecture."""
    for row in INSTANCE_TYPES.values():
        hardware = Ec2Hardware.of(row)
        try:
            yield parameter_for(hardware), hardware.architecture
        except (NotFound, BadRequest):
            assert not hardware.architecture or hardware.gpus, hardware


def of_gcp() -> Iterator[tuple[str, str]]:
    request = MachineRequest(
        "t" * 40, Market("gcp", "us-central1", "us-central1-a", "n2-standard-4"), 1, 1, 0, {}
    )
    for is_arm, has_gpus in product((False, True), repeat=2):
        hardware = GcpHardware("n2-standard-4", is_arm=is_arm, has_own_gpus=has_gpus)
        body = instance(request, GcpMachineSettings(), hardware, _PLACE, "", 0)
        yield body["disks"][0]["initialize_params"]["source_image"], "arm64" if is_arm else "x86_64"


def of_azure() -> Iterator[tuple[str, str]]:
    """The image of each size that the simulated cloud sells, without its version."""
    for row in SIZES:
        capabilities = {one["name"]: one["value"] for one in row["capabilities"]}
        try:
            found = image_reference(AzureSize(row["name"], capabilities), None)
        except BadRequest:
            continue
        architecture = "arm64" if capabilities.get("CpuArchitectureType") == "Arm64" else "x86_64"
        yield ":".join(found[part] for part in ("publisher", "offer", "sku")), architecture


DEFAULTS = {
    "aws": (of_aws, 4),
    "gcp": (of_gcp, 4),
    "azure": (of_azure, 4),
}


@pytest.mark.parametrize("cloud", DEFAULTS)
def test_each_default_has_a_source_outside_of_this_project(cloud: str) -> None:
    defaults, kinds = DEFAULTS[cloud]
    used = set(defaults())
    assert len(used) == kinds
    for name, architecture in used:
        known = images(cloud)[name.lower()]
        assert (known.name, known.architecture) == (name, architecture)
        assert known.source.startswith("https://")


def test_the_page_about_evidence_names_each_default() -> None:
    page = (_DOCS / "proof.md").read_text(encoding="utf-8")
    for cloud, (defaults, _) in DEFAULTS.items():
        for name, _ in set(defaults()):
            row = next(line for line in page.splitlines() if f"`{name}`" in line)
            assert re.findall(r"\((https://[^)]+)\)", row) == [images(cloud)[name.lower()].source]
