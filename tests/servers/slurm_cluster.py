"""A real Slurm cluster on this computer, up in about three seconds: munged, slurmctld, and a slurmd
for each node.

It needs root, and Debian's slurmctld, slurmd, slurm-client and munge:
`apt-get install -y --no-install-recommends slurmctld slurmd slurm-client munge`. With slurmdbd and
mariadb-server it has accounting, too.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from tests.waiting import eventually

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
needs_slurm = pytest.mark.skipif(
    bool(MISSING) or os.geteuid() != 0,
    reason="needs root, and slurmctld, slurmd, slurm-client and munge of Debian",
)

needs_accounting = pytest.mark.skipif(
    any(shutil.which(name) is None for name in ("slurmdbd", "mariadbd", "mariadb-install-db")),
    reason="needs slurmdbd and mariadb-server of Debian",
)

_CONFIGURATION = """
ClusterName=try
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/ctld.pid
SlurmdPidFile={folder}/run/slurmd.%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_min_interval=100000
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=3
MinJobAge={forget}
ReturnToService=2
MpiDefault=none
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName={names} NodeAddr=127.0.0.1 NodeHostname={host} Port={ports} CPUs=2 RealMemory=2048 State=UNKNOWN
PartitionName=spot Nodes={names} Default=YES MaxTime=INFINITE PriorityTier=1 GraceTime={grace} PreemptMode={mode}
PartitionName=owner Nodes={names} MaxTime=2:00:00 PriorityTier=10 PreemptMode=OFF
PartitionName=closed Nodes={names} MaxTime=INFINITE State=DOWN
"""


@dataclass(frozen=True)
class SlurmCluster:
    """A cluster that runs; its programs find it by SLURM_CONF."""

    folder: Path
    nodes: int
    daemons: dict[str, subprocess.Popen[bytes]]

    def take(self, nodes: int = 0, seconds: int = 20) -> None:
        """Owners want this many nodes, or all."""
        for _ in range(nodes or self.nodes):
            words = ("-p", "owner", "--exclusive", "-o", "/dev/null", "--wrap", f"sleep {seconds}")
            run("sbatch", *words)

    def alive(self) -> list[str]:
        """The names of jobs in the preemptible partition that have not ended."""
        return _machines("-p", "spot")

    def ever(self) -> list[str]:
        """The names of jobs that the cluster has not forgotten."""
        return _machines("--states=all")

    def clear(self) -> None:
        """Ends all jobs."""
        run("scancel", "-u", "root")
        eventually(lambda: not run("squeue", "-h"))


def _machines(*which: str) -> list[str]:
    """The jobs' names without their prices, each with its index: those of the machines' folders."""
    names = run("squeue", "-h", "-r", *which, "-o", "%j-%K").split()
    return [re.sub("@[^-]*", "", name) for name in names]


def run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


@contextmanager
def slurm_cluster(
    nodes: int = 4,
    grace: int = 5,
    mode: str = "REQUEUE",
    forget: int = 300,
    more: str = "",
    *,
    accounting: bool = False,
) -> Iterator[SlurmCluster]:
    """A cluster whose partition `spot` is preempted by `owner`, and which knows a job for `forget`
    seconds after its end. All of it ends with the block. `more` are further lines of slurm.conf.
    With `accounting`, `sacct` answers."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as environment:
        # Readable by the user munge, as pytest's folders are not.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-")))
        folder.chmod(0o755)
        for name in ("state", "spool", "run", "munge"):
            (folder / name).mkdir()
        key = folder / "munge" / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        for path in (key, folder / "munge"):
            shutil.chown(path, "munge", "munge")

        first, *others = _free_ports(nodes + 1)
        names = [f"n{number}" for number in range(1, nodes + 1)]
        host = socket.gethostname().partition(".")[0]
        text = _CONFIGURATION.format(
            host=host,
            port=first,
            folder=folder,
            names=",".join(names),
            ports=",".join(map(str, others)),
            grace=grace,
            mode=mode,
            forget=forget,
        )
        configuration = folder / "slurm.conf"
        configuration.write_text(text + more)
        environment.setenv("SLURM_CONF", str(configuration))

        munge = folder / "munge"
        paths = ("socket", "pid-file", "log-file", "seed-file", "key-file")
        options = [f"--{name}={munge / name.partition('-')[0]}" for name in paths]
        daemons: dict[str, subprocess.Popen[bytes]] = {}
        stack.callback(_end, daemons)
        output = stack.enter_context((folder / "output").open("wb"))
        words = ["munged", "--foreground", *options]
        daemons["munged"] = subprocess.Popen(
            words, user="munge", group="munge", stdout=output, stderr=output
        )
        eventually((munge / "socket").exists)
        if accounting:
            more += _accounting(folder, daemons, output)
            configuration.write_text(text + more)
            run("sacctmgr", "-i", "add", "cluster", "try")
            run("sacctmgr", "-i", "add", "account", "vision")
            run("sacctmgr", "-i", "add", "user", "root", "account=vision")
        for name in ("slurmctld", *names):
            words = ["slurmctld"] if name == "slurmctld" else ["slurmd", "-N", name]
            words = [*words, "-D", "-f", str(configuration)]
            daemons[name] = subprocess.Popen(words, stdout=output, stderr=output)
        cluster = SlurmCluster(folder, nodes, daemons)
        eventually(lambda: _idle() == nodes)
        try:
            yield cluster
        finally:
            cluster.clear()


def _accounting(
    folder: Path, daemons: dict[str, subprocess.Popen[bytes]], output: IO[bytes]
) -> str:
    """Starts a database and slurmdbd, and returns the lines by which a controller reports to it."""
    place, (sql, port) = folder / "sql", _free_ports(2)
    place.mkdir()
    shutil.chown(place, "mysql")
    own = ("--no-defaults", "--user=mysql", f"--datadir={place}/data")
    run("mariadb-install-db", *own, "--auth-root-authentication-method=normal", "--skip-test-db")
    where = (f"--socket={place}/socket", f"--port={sql}", "--bind-address=127.0.0.1")
    daemons["mariadbd"] = subprocess.Popen(["mariadbd", *own, *where], stdout=output, stderr=output)
    grants = "grant all on *.* to slurm@localhost identified by 'try';"
    words = ["mariadb", "--no-defaults", "-S", f"{place}/socket", "-u", "root", "-e", grants]
    eventually(lambda: subprocess.run(words, capture_output=True, check=False).returncode == 0)
    settings = {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge/socket",
        "DbdHost": "localhost",
        "DbdPort": port,
        "SlurmUser": "root",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "127.0.0.1",
        "StoragePort": sql,
        "StorageUser": "slurm",
        "StoragePass": "try",
        "PidFile": f"{folder}/run/dbd.pid",
    }
    file = folder / "slurmdbd.conf"
    file.touch(0o600)
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    # It finds its settings where those of the cluster are.
    daemons["slurmdbd"] = subprocess.Popen(["slurmdbd", "-D"], stdout=output, stderr=output)
    given = {"Type": "accounting_storage/slurmdbd", "Port": port, "Pass": f"{folder}/munge/socket"}
    lines = "".join(f"AccountingStorage{name}={value}\n" for name, value in given.items())
    (folder / "slurm.conf").write_text((folder / "slurm.conf").read_text() + lines)
    ready = ["sacctmgr", "-n", "list", "cluster"]
    eventually(lambda: subprocess.run(ready, capture_output=True, check=False).returncode == 0)
    return lines


def _idle() -> int:
    asked = subprocess.run(
        ("sinfo", "-h", "-p", "spot", "-t", "idle", "-o", "%D"),
        capture_output=True,
        text=True,
        check=False,
    )
    return int(asked.stdout.strip() or 0) if asked.returncode == 0 else 0


def _end(daemons: dict[str, subprocess.Popen[bytes]]) -> None:
    for daemon in reversed(daemons.values()):
        daemon.send_signal(signal.SIGTERM)
    for daemon in daemons.values():
        try:
            daemon.wait(20)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def _free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)
        ]
        return [listening.getsockname()[1] for listening in sockets]
