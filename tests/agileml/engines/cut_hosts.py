"""Single connections between hosts that break, at random moments: each job must end with the same
model.

`python -m tests.agileml.engines.cut_hosts 0 20` runs 20 jobs, as root. The controller is on one of
three hosts made of network namespaces, a reliable node on each of the others, and two more nodes;
each node breaks connections of its own, one at a time. A node that is given up for it is replaced.
Which node breaks how many depends on the seed and on the node's name, when and which also on
timing.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from agileml.transport import TcpAddress
from tests.agileml.engines.attached_jobs import (
    PACE,
    PATIENCE_SECONDS,
    SECRET,
    TRAINER,
    AttachedTraining,
    write_trainer,
)
from tests.agileml.engines.hosts import Host, hosts
from tests.spotctl.command_line import spotctl

CLOCKS = 12
_STEP = "        helpers.pace.wait(self.hurry)\n"
_CUTTING = """\
        global begun
        if not begun:
            begun = True
            cut_some({seed}, node_of(sys.argv))
        time.sleep(0.005)
"""
_HEAD = """\
import sys
import time
from tests.agileml.cut_links import cut_some
from tests.agileml.engines.cut_hosts import node_of

begun = False
"""


def node_of(words: list[str]) -> str:
    """The name of the node that was started with these words."""
    return words[words.index("--name") + 1] if "--name" in words else ""


@contextmanager
def training(seed: int) -> Iterator[tuple[AttachedTraining, list[Host]]]:
    """A training whose command runs on the first of three hosts, and whose nodes break
    connections."""
    trainer = _HEAD + TRAINER.replace(_STEP, _CUTTING.format(seed=seed))
    with (
        tempfile.TemporaryDirectory() as seen,
        tempfile.TemporaryDirectory(prefix="h-", dir="/tmp") as name,
        hosts(3, here := Path(name)) as started,
    ):
        for host in started:
            host.write("job.secret", SECRET)
        for file, content in {
            "decades.py": trainer,
            "helpers/__init__.py": "",
            "helpers/pace.py": PACE,
        }.items():
            started[0].write(f"code/{file}", content)
        at, code = TcpAddress(started[0].address, 7000), str(here / "code" / "decades.py")
        words = ("--nodes", "2+2", "--clocks", str(CLOCKS), "--timeouts", "heartbeat=5")
        secret, prefix = here / "job.secret", started[0].command()
        with closing(
            AttachedTraining(Path(seen), at, code, *words, secret=secret, prefix=prefix)
        ) as job:
            yield job, started


def play(seed: int) -> tuple[str, int]:
    """The digest of the model after one schedule, and how many nodes were lost in it."""
    with training(seed) as (job, (first, second, third)):
        places = [(second, ["--reliable"]), (third, ["--reliable"]), (first, []), (third, [])]
        nodes = {f"n{number}": place for number, place in enumerate(places)}
        for node, (host, options) in nodes.items():
            job.join(node, *options, prefix=host.command())
        give_up = time.monotonic() + PATIENCE_SECONDS
        while job.command.poll() is None and time.monotonic() < give_up:
            for node in [node for node in nodes if job.has_failed(node)]:
                host, options = nodes[f"{node}-"] = nodes.pop(node)
                job.join(f"{node}-", *options, prefix=host.command())
            time.sleep(0.1)
        digest = str(job.ended()["model_sha256"])
        return digest, sum(" lost" in event for event in job.events)


def undisturbed() -> str:
    """The digest of the model that the simulation trains."""
    with tempfile.TemporaryDirectory() as name:
        trainer, words = (
            write_trainer(Path(name) / "code"),
            ("--nodes", "1+2", "--clocks", str(CLOCKS)),
        )
        ended = spotctl(
            "lab", "train", trainer, "--engine", "sim", "--deterministic", "--json", *words
        )
        return str(ended.json["model_sha256"])


def main(first: int, last: int) -> int:
    """Runs the schedules of these seeds; prints those that failed."""
    expected = undisturbed()
    played = {seed: play(seed) for seed in range(first, last)}
    failed = [seed for seed, (digest, _) in played.items() if digest != expected]
    lines = [
        *(f"seed {seed}: the model is not that of the undisturbed run" for seed in failed),
        f"seeds {first} to {last - 1}: {len(played) - len(failed)} jobs of {CLOCKS} clocks between "
        "hosts ended with",
        f"the undisturbed model, in which {sum(lost for _, lost in played.values())} nodes were "
        "lost with a connection",
    ]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
