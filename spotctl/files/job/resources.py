"""Machines that a job may rent, with the keys of a job file that describe them."""

from dataclasses import dataclass, make_dataclass
from typing import Any, ClassVar

from spotctl.files.job import forms
from spotctl.files.job.conversions import AUTO
from spotctl.files.job.forms import ANY
from spotctl.files.job.reservations import RESERVATION, Reservation
from spotctl.files.job.sections import ListOf, key
from spotctl.files.job.values import Accelerators, Range
from spotctl.home.cloud import cloud_of, rented_clouds


@dataclass(frozen=True, slots=True)
class Needs:
    """Requirements of a machine, whatever its type."""

    vcpus: Range[int] | None = key(forms.VCPU_RANGE, "Number of vCPUs.", "8..")
    memory_gib: Range[float] | None = key(forms.MEMORY_RANGE, "Memory in GiB.", "16..")
    accelerators: Accelerators | None = key(
        forms.ACCELERATORS, "Model and number of accelerators.", "V100:1.."
    )


@dataclass(frozen=True, slots=True)
class Reliable:
    """On-demand machines, which are never evicted, held from start to end in addition to the spot
    machines.

    `machines` is None if the plan decides between one and none.
    """

    machines: int | None = key(
        forms.AUTO_OR_MACHINES,
        "How many. agileml keeps the model there; with 0 it continues from the last checkpoint "
        "after losing all"
        " machines, and auto takes what is cheaper. If left out: auto for agileml on the local "
        "market, 1 elsewhere, where the runner lives there; 0 for a command.",
        1,
        "auto",
        default=0,
    )
    type: str | None = key(
        forms.TYPE_NAME, "Their type; the cheapest allowed one if left out.", "c6i.large"
    )


@dataclass(frozen=True, slots=True)
class Resources:
    """Machines that may be rented."""

    spellings: ClassVar = {
        "accelerators": ("types", "accelerators"),
        "gpu": ("types", "accelerators"),
    }
    """As other tools spell keys, and where these are here."""

    clouds: tuple[str, ...] = key(
        ListOf(forms.CLOUD),
        "Where to rent; local is a market that is replayed on this computer, and free. Required, "
        "except with engine: ray.",
        ["local"],
        ["aws", "gcp"],
        default=(),
    )
    machines: Range[int] = key(
        forms.MACHINE_RANGE,
        "Transient machines at one time. Required for agileml; a command always has as many as it "
        "has nodes.",
        "4..64",
        default=Range(0),
    )
    reliable: Reliable = key(
        Reliable,
        "On-demand machines in addition to the spot machines.",
        {"machines": 1},
        default=Reliable(0),
    )
    types: tuple[str, ...] = key(
        ListOf(forms.TYPE_GLOB),
        "Machine types by name or glob; any if left out.",
        ["c6i.2xlarge", "n2-standard-8"],
        default=(),
    )
    needs: Needs = key(
        Needs,
        "Instead of names: what a machine must have.",
        {"vcpus": "8..", "memory_gib": "16.."},
        name="types",
        default=Needs(),
    )
    arch: str | None = key(
        forms.ARCHITECTURE,
        "Processors that the job's programs and image run on: x86_64, arm64 or any; x86_64 if left "
        "out.",
        "arm64",
    )
    memory: float | None = key(
        forms.MEMORY,
        "Least memory of a machine; 2 GiB if left out, except for types that are named without a "
        "glob.",
        "4 GiB",
    )
    burstable: bool | None = key(
        forms.FLAG,
        "Whether to rent burstable types, which may use only a share of their vCPUs all the time, "
        "and are compared by that share. If left out, only those that types names.",
        False,
    )
    placement: str | None = key(
        forms.PLACEMENT,
        "close: the machines of a command with several nodes stand next to each other, for a fast "
        "network between them. They are harder to get, and some types cannot.",
        "close",
    )
    regions: tuple[str, ...] = key(
        ListOf(forms.REGION, word=ANY),
        "Regions to rent in; all if left out. A command with a checkpoint and a deadline may move "
        "between them to where spot machines are.",
        ["us-east-1", "us-central1"],
        ANY,
        default=(),
    )
    reservations: tuple[Reservation, ...] = key(
        ListOf(RESERVATION),
        "Machines that you have reserved in one region of a cloud, with your price for each (0: "
        "paid already) and their"
        " end. They are used before machines that cost more, and never evicted. block: true names "
        "a Capacity Block of AWS.",
        [
            {
                "id": "cr-0abc",
                "cloud": "aws",
                "zone": "us-east-1a",
                "type": "p5.48xlarge",
                "machines": 2,
                "price": 0,
                "until": "2026-12-01T11:30Z",
            }
        ],
        default=(),
    )
    zones: tuple[str, ...] = key(
        ListOf(forms.ZONE, word=ANY),
        "Zones to rent in; all if left out.",
        ["us-east-1a", "us-east-1b"],
        default=(),
    )


_ImagesByCloud: Any = make_dataclass(
    "_ImagesByCloud",
    [
        (cloud, str | None, key(forms.IMAGE, keys.image_help, keys.image_example, name=keys.image))
        for cloud in rented_clouds()
        if (keys := cloud_of(cloud).job) is not None
    ],
    frozen=True,
)
"""A key for each cloud that rents machines."""


@dataclass(frozen=True)
class Image(_ImagesByCloud):  # type: ignore[misc] # a class that is made when the clouds are known
    """The image of cloud machines; `auto`, the default, is Ubuntu, with drivers on machines with
    GPUs.

    The job runs directly on the machine, or in a `container`.
    """

    disk_gib: int | None = key(forms.DISK, "Size of a machine's disk.", 100)
    container: str | None = key(
        forms.CONTAINER, "Container image in which the job runs.", "ghcr.io/me/train:1"
    )
    login: str | None = key(
        forms.VARIABLE,
        "One of secrets, with USER:PASSWORD for the container's registry; the container does not "
        "get it.",
        "REGISTRY_LOGIN",
    )

    def of(self, cloud: str) -> str | None:
        """The image on a cloud; None leaves the choice to its provider."""
        image: str | None = getattr(self, cloud, None)
        return None if image == AUTO else image
