"""`python -m tests.agileml.torch.attached`: examples/trainers/digits.py on nodes that join from elsewhere.

One node is killed and one is warned; the model must be the same, bit for bit, as without them. Takes minutes.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from agileml.transport import TcpAddress
from tests.agileml.engines.attached_jobs import AttachedTraining, free_port, secret_file
from tests.spotctl.cli import spotctl

TRAINER = Path(__file__).parents[3] / "examples" / "trainers" / "digits.py"
OPTIONS = ("--clocks", "120", "--seed", "3", "--deterministic", "--heartbeat-timeout", "10")


def main() -> int:
    """0 if the model is right."""
    name = f"{TRAINER}:trainer"
    with tempfile.TemporaryDirectory() as folder:
        listen, secret = TcpAddress("127.0.0.1", free_port()), secret_file(Path(folder))
        job = AttachedTraining(Path(folder), listen, name, "--nodes", "1+2", *OPTIONS, secret=secret)
        with closing(job):
            job.join("r0", "--reliable")
            for node in ("t1", "t2", "t3"):
                job.join(node)
            job.until_clock(10)
            job.signal("t1", signal.SIGKILL)
            job.until_event("t1")
            job.signal("t2", signal.SIGTERM)
            answer = job.ended()
    expected = spotctl("train", name, "--engine", "sim", "--nodes", "1+2", *OPTIONS[:-2], "--json").json
    same = answer["model_sha256"] == expected["model_sha256"]
    lost = f"{answer['failures']} failures, {answer['evictions']} evictions, {answer['updates_lost']} updates lost"
    sys.stdout.write(f"{answer['clocks']} clocks, {lost}; the model is {'the same' if same else 'ANOTHER'}\n")
    return int(not same)


if __name__ == "__main__":
    sys.exit(main())
