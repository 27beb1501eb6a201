"""`python -m tests.cloud.second_machine [CLOUD] [REQUIREMENT...]`: seconds in which the first machine
of a job builds its `requirements.txt`, and in which the one after an eviction has it from the bucket.

The cloud is simulated, with machines and a bucket on this computer: no download, and no driver. The
wheels are fetched here before, and come with the job's folder. It needs what cloud tests need.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from spotctl.agent.data.locations import place_of
from spotctl.agent.data.stores import Bucket
from spotctl.run.environment import LAUNCHER
from tests.cloud.clouds import simulated
from tests.cloud.laptop import Laptop
from tests.cloud.test_environment import JOB
from tests.cloud.test_launch import spot

USUAL = ("numpy", "scipy", "pandas")
WORK = """\
kept=$SPOTCTL_CHECKPOINT_DIR/step
if [ -e "$kept" ]; then
  echo done >"$OUTPUT_MODEL/model"
  exit
fi
python -c 'import {modules}' && echo 1 >"$kept"
sleep 100000 &
wait
"""


def main(name: str = "aws", *requirements: str) -> None:
    """Prints the two lines of the run's log."""
    wanted = requirements or USUAL
    with tempfile.TemporaryDirectory() as folder, simulated(name) as cloud:
        laptop = Laptop(Path(folder), cloud.environment)
        laptop.run(
            "prices", "fetch", "--cloud", name, "--region", cloud.region, "--type", cloud.type
        )
        values = {key: getattr(cloud, key) for key in ("identity", "bucket", "region", "type")}
        job = laptop.job(JOB.format(cloud=name, environment="requirements.txt", **values))
        work = laptop.folder / "work"
        (work / "requirements.txt").write_text("\n".join(wanted) + "\n")
        modules = ", ".join(re.split(r"[=<>~!\[ ]", one)[0].replace("-", "_") for one in wanted)
        (work / "work.sh").write_text(WORK.format(modules=modules))
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:")
        subprocess.run([*pip, "--dest", str(work / "wheels"), *wanted], check=True)
        megabytes = sum(each.stat().st_size for each in (work / "wheels").iterdir()) / 1e6
        sys.stdout.write(f"{name}, {' '.join(wanted)}, {megabytes:.0f} MB of wheels\n")

        os.environ.update(cloud.environment)
        store = place_of(cloud.bucket, LAUNCHER)
        assert store is not None
        with laptop.launched("launch", job, "--attached", "--yes") as launched:
            for part in ("environments/", "node-0/"):
                launched.wait_for(partial(_is_kept, store.bucket, f"job/checkpoints/{part}"))
            (first,) = spot(cloud.server)
            cloud.server.evict(first.id, 30.0)
            code, _, err = launched.ended()
        said = laptop.run("logs", "with-packages").stdout
        lines = [line for line in said.splitlines() if re.search(r"environment: .* in \d", line)]
        sys.stdout.writelines(f"{line}\n" for line in lines)
        assert code == 0, err


def _is_kept(bucket: Bucket, folder: str) -> bool:
    return any(bucket.list(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
