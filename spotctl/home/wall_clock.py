"""The clock of real clouds: this computer's."""

import time


def wall_us() -> int:
    """Microseconds UTC."""
    return time.time_ns() // 1000


class WallClock:
    """See `CloudProvider.now` and `speed`."""

    speed = 1.0
    """Seconds of the clock per second."""

    def now(self) -> int:
        """Microseconds UTC."""
        return wall_us()
