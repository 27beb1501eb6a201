"""`MachineTraits`: facts about a machine type that decide whether a job can use it, and how fast it is."""

from dataclasses import dataclass, fields

X86, ARM = "x86_64", "arm64"
XEN = "xen"
"""The hypervisor of EC2's types before Nitro."""


@dataclass(frozen=True, slots=True, order=True)
class MachineTraits:
    """Facts beyond a type's size; None where they are unknown.

    `baseline` is the share of its vCPUs that a burstable type may use all the time; it is 1 for other types. `boots`
    lists the ways in which its machines boot, in the cloud's words (`legacy-bios uefi`, `V1`), and `driver` is the
    family of drivers that its accelerators need. `spot` says whether it is sold as spot machines, `retires` since when
    it is not sold any more.
    """

    architecture: str | None = None
    baseline: float | None = None
    hypervisor: str | None = None
    boots: str | None = None
    spot: bool | None = None
    accelerator_gib: float | None = None
    driver: str | None = None
    local_disk_gb: float | None = None
    retires: int | None = None

    def filled(self, other: "MachineTraits") -> "MachineTraits":
        """These facts, with those of `other` where they are unknown."""
        known = (getattr(self, field.name) for field in fields(self))
        pairs = zip(known, (getattr(other, field.name) for field in fields(other)), strict=True)
        return MachineTraits(*(second if first is None else first for first, second in pairs))


NO_TRAITS = MachineTraits()
