"""Settings of machines on the toy cloud."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ToySettings:
    """`[toy]`. `image` and `badge` are for jobs that name none. At most `most_machines` run at a
    time.
    """

    image: str = "wood"
    badge: str | None = None
    most_machines: int = 8
