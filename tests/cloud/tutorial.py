"""`python -m tests.cloud.tutorial`: types the cloud part of docs/tutorial.md on a simulated AWS,
and prints the times.

The job is examples/pytorch/aws.yaml. Its `environment` and `run` are replaced, because simulated machines
reach no package index: a shell loop counts where train.py trains. The launch is interrupted as soon
as the runner has moved to a rented machine, and then the spot machine is evicted.
"""

from __future__ import annotations

import re
import shlex
import signal
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.cloud.clouds import SimulatedCloud, simulated
from tests.cloud.laptop import Laptop
from tests.cloud.test_launch import spot

ROOT = Path(__file__).parents[2]
JOB = "examples/pytorch/aws.yaml"
_COUNT = """run: |
  cd $SPOTCTL_CHECKPOINT_DIR; first=$(cat last 2>/dev/null || echo 0)
  for i in $(seq $((first + 1)) 90); do sleep 1; echo $i >.last; mv .last last; echo "count $i"; done
"""


def commands() -> list[list[str]]:
    """The words of each command in the tutorial's blocks that need a cloud."""
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    lines = "".join(
        re.findall(r"^```sh cloud\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    ).splitlines()
    return [shlex.split(line.split("  #")[0])[1:] for line in lines if line.startswith("spotctl ")]


def job_for(bucket: str, identity: str) -> str:
    """The example with this bucket and identity, and with a command that needs no packages."""
    text = (ROOT / JOB).read_text(encoding="utf-8")
    text = re.sub(r"^environment: .*\n", "environment: none\n", text, flags=re.MULTILINE)
    text = re.sub(r"^run: .*\n", lambda _: _COUNT, text, flags=re.MULTILINE)
    return text.replace("s3://my-bucket", bucket).replace("aws: spotctl", f"aws: {identity}")


def walk(cloud: SimulatedCloud, folder: Path) -> int:
    """Types the commands; the highest of their exit codes, apart from that of the interrupted
    launch.
    """
    laptop, worst = Laptop(folder, cloud.environment), 0
    (folder / JOB).parent.mkdir(parents=True)
    (folder / JOB).write_text(job_for(cloud.bucket, cloud.identity), encoding="utf-8")
    for words in commands():
        begun = time.monotonic()
        if words[0] == "launch":
            said = _interrupted(laptop, cloud, words)
        else:
            if words[0] == "report":
                laptop.wait_until(
                    lambda: laptop.answer("status", "spirals-aws")["jobs"][0]["state"] != "running"
                )
            ended = laptop.run(*words, *(["--yes"] if words[0] == "try" else []))
            said, worst = ended.stdout + ended.stderr, max(worst, ended.returncode)
        sys.stdout.write(f"{time.monotonic() - begun:8.1f} s  spotctl {shlex.join(words)}\n")
        sys.stdout.writelines(f"            {line}\n" for line in said.splitlines()[-12:])
        sys.stdout.flush()
    left = cloud.server.resources()
    sys.stdout.write(
        f"left in the cloud: {', '.join(f'{one.kind} {one.id}' for one in left) or 'nothing'}\n"
    )
    return max(worst, bool(left))


def _interrupted(laptop: Laptop, cloud: SimulatedCloud, words: list[str]) -> str:
    """Ctrl-C once the runner, on its rented machine, has rented a spot machine, which is evicted
    after a few counts.
    """
    with laptop.launched(*words, "--yes") as launched:
        launched.wait_for(lambda: bool(spot(cloud.server)))
        launched.process.send_signal(signal.SIGINT)
        _, out, err = launched.ended()
    laptop.wait_until(lambda: "count 3" in laptop.run("logs", "spirals-aws").stdout)
    cloud.server.evict(spot(cloud.server)[0].id, 30.0)
    return out + err


def main() -> int:
    with TemporaryDirectory() as folder, simulated("aws") as cloud:
        return walk(cloud, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
