"""Kills launchers of a command of two nodes on a real cluster, while owners want nodes, and resumes it
each time: nothing is bought twice, nothing is left, and the work goes on from its checkpoint.

python -m tests.spotctl.clouds.slurm.kills [KILLS [SEED]]
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.servers.slurm_cluster import SlurmCluster, run, slurm_cluster
from tests.spotctl.clouds.slurm.test_nodes import (
    gang,
    launched,
    made_home,
    printed,
    undisturbed_weight,
)


def kill_launchers(cluster: SlurmCluster, folder: Path, kills: int, seed: int) -> str:
    """The outcome of the killed launchers, in a line. AssertionError: something was wrong."""
    drawn, home = random.Random(seed), made_home(cluster, folder)
    job, most, killed = gang(home, 2, steps=4 * kills), 0, 0
    launcher = launched(home, job)
    words = [sys.executable, "-m", "spotctl", "resume", "gang"]
    with (folder / "resumed.out").open("wb") as output:
        while launcher.poll() is None:
            time.sleep(drawn.uniform(0.5, 5))
            most = max(most, len(cluster.alive()))
            if killed < kills and launcher.poll() is None:
                launcher.kill()
                launcher.wait()
                killed += 1
                if drawn.random() < 0.3:
                    cluster.take(drawn.randint(2, 4), drawn.randint(3, 8))
                # It may have been killed before it had logged a run.
                launcher = (
                    subprocess.Popen(
                        words, cwd=folder, env=home.environment, stdout=output, stderr=output
                    )
                    if "gang" in home.spotctl("status")
                    else launched(home, job)
                )
    said = (folder / "resumed.out").read_text()
    assert launcher.returncode == 0, said[-2000:]
    assert f"weight {undisturbed_weight(home, 4 * kills)}" in printed(home), printed(home)[-2000:]
    # A machine that is to be replaced may still run.
    assert most <= 4, most
    assert not cluster.alive()
    assert "0 orphaned resources" in home.spotctl("gc")
    names = run("squeue", "-h", "-r", "--states=all", "-o", "%j-%K").split()
    ours = [name for name in names if name.startswith("spotctl-")]
    # Each of an order's machines is one job.
    assert len(ours) == len(set(ours)), sorted(ours)
    steps = [int(step) for step in re.findall(r"begins at (\d+)", printed(home))]
    return f"{killed} kills, {len(ours)} machines, at most {most} at once, begun at {sorted(steps)}"


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    number, *seeds = given or [40]
    seed = seeds[0] if seeds else random.randrange(10**6)
    with (
        slurm_cluster(nodes=4, grace=10, forget=3600) as made,
        tempfile.TemporaryDirectory() as place,
    ):
        print(f"seed {seed}:", kill_launchers(made, Path(place), number, seed))  # noqa: T201
