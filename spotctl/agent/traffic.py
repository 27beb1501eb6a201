"""Counts the bytes that this machine has received and sent since its boot, from its kernel's counters."""

from dataclasses import dataclass
from pathlib import Path

COUNTERS = Path("/proc/net/dev")

_INNER_INTERFACES = ("lo", "docker", "veth", "br-", "virbr", "podman", "cni")
"""Interfaces to the machine itself and to its containers. Bytes that leave the machine pass an outer interface, too."""
_RECEIVED, _SENT = 0, 8
"""Columns of the counters."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes on all network interfaces."""

    received: int
    sent: int


def traffic(counters: Path = COUNTERS) -> Traffic | None:
    """The machine's traffic; None if the kernel has no counters."""
    try:
        lines = counters.read_text().splitlines()
        named = [line.split(":", 1) for line in lines if ":" in line]
        outside = [figures.split() for name, figures in named if not name.strip().startswith(_INNER_INTERFACES)]
        return Traffic(sum(int(row[_RECEIVED]) for row in outside), sum(int(row[_SENT]) for row in outside))
    except (OSError, ValueError, IndexError):
        return None
