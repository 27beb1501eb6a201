"""A home whose jobs rent containers of a simulated cloud, and the market as this computer sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.servers.loopback import LoopbackServer
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
JOB = """\
name: {name}
kind: command
run: {run}
resources: {{clouds: [{cloud}], types: [1xRTX_4090]}}
hours: 15m
budget: 1 USD
"""


class Bought(NamedTuple):
    """A container that was ever bought: its machine's id, its label, and what it has cost."""

    machine: str
    label: str | None
    usd: float


@dataclass
class RentingLaptop(ABC):
    """A home. The market and its containers are those of a cloud, which says what they mean."""

    home: Path
    market: Any
    containers: Any
    server: LoopbackServer

    cloud = ""

    @abstractmethod
    def outbid(self, one: Any) -> None:  # noqa: ANN401 - what its cloud sells
        """Another renter bids more for the machine of a container."""

    @abstractmethod
    def withdraw(self) -> None:
        """The other renters leave."""

    @abstractmethod
    def bought(self) -> Iterable[Bought]:
        """All containers that were ever bought."""

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(ROOT), "SPOTCTL_HOME": str(self.home)}

    def begun(self, *words: str, dies: str = "") -> subprocess.Popen[str]:
        """A command, which kills itself at a point of `tests.spotctl.dying`."""
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                *(["tests.spotctl.dying", dies, "0"] if dies else ["spotctl"]),
                *words,
            ],
            cwd=self.home,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def spotctl(self, *words: str) -> str:
        """The output of a command that succeeds."""
        process = self.begun(*words)
        out, err = process.communicate()
        assert process.returncode == 0, out + err
        return out

    def job(self, name: str, run: str) -> str:
        folder = self.home / "jobs"
        folder.mkdir(exist_ok=True)
        text = JOB.format(name=name, run=run, cloud=self.cloud)
        (folder / f"{name}.yaml").write_text(text)
        return str(folder / f"{name}.yaml")

    def working(self, seen: set[Any]) -> Any:  # noqa: ANN401 - what its cloud sells
        """The next container that runs the job's command."""
        working = list[Any]()

        def works() -> bool:
            new = (one for one in self.market.alive() if one.id not in seen)
            working[:] = [
                one
                for one in new
                if self.market.runs(one) and self.containers.has(one, "/tmp/working")
            ]
            return bool(working)

        eventually(works)
        return working[0]
