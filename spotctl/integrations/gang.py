"""Starts one machine of a gang: `python -m spotctl.integrations.gang [OPTIONS] SCRIPT [ARGUMENTS]`,
on each of them.

It serves this machine's saves to the others and runs torchrun with --nnodes=1:N. When a machine is
lost, torchrun ends on the others, and is started again on those that remain. (Restarts within
torchrun keep the store of the first group, which may be on the machine that is lost.) The c10d
store of the rendezvous is a process on the first machine; when that one is lost, it moves to the
next that answers. With --store it is on a machine of your choice, such as a reliable one, where
`python -m spotctl.integrations.gang --serve-store PORT` runs.
"""

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from agileml.errors import AgileMLError, BadInput
from agileml.runtime.blob_store import FileBlobStore
from agileml.transport import TcpAddress, parse_host_port
from spotctl.agent.container.podman import gpus
from spotctl.agent.container.processes import MARK
from spotctl.agent.lease.job_lease import SAVED_AND_ENDED
from spotctl.agent.lease.lease_files import LeaseHolder
from spotctl.integrations.gang_saves import (
    PATIENCE_SECONDS,
    GangSettings,
    Peers,
    PeerServer,
    secret_of,
)

_LOOK_SECONDS = 0.1
_CONNECT_ATTEMPTS = 3
_RENDEZVOUS_CONFIG = (
    "read_timeout=120,keep_alive_interval=1,keep_alive_max_attempt=3,close_timeout=10"
)
_ROUND_PREFIX = "turns/number/"
"""Blobs that number the starts of torchrun. They sort after the saves, or they would be removed
with old saves."""


@dataclass(frozen=True, slots=True)
class GangMachines:
    """The addresses of a gang's machines, the number of this machine, and the first of the gang's
    ports.
    """

    hosts: tuple[str, ...]
    own: int
    port: int

    @property
    def peers(self) -> tuple[TcpAddress, ...]:
        """The addresses of the stores of saves. Local machines share a host, so each has ports of
        its own.
        """
        return tuple(TcpAddress(host, self.port + 1 + 2 * i) for i, host in enumerate(self.hosts))

    def rendezvous(self, machine: int) -> TcpAddress:
        """The address of the c10d store, if this machine is its host."""
        return TcpAddress(self.hosts[machine], self.port + 2 + 2 * machine)


class GangMachine:
    """One machine of a gang, from its start until the script is done or the machine leaves."""

    def __init__(
        self, options: argparse.Namespace, machines: GangMachines, settings: GangSettings
    ) -> None:
        self._options, self._machines, self._settings = options, machines, settings
        self._holder = LeaseHolder.of()
        self._must_end = False

    def run(self) -> int:
        """Runs the script to its end; returns its exit code, or `SAVED_AND_ENDED` if the machine
        leaves before.
        """
        folder, secret = self._settings.folder / "store", self._settings.secret
        folder.mkdir(parents=True, exist_ok=True)
        signal.signal(signal.SIGTERM, self._on_term)
        machines, peers = (
            self._machines,
            Peers(self._machines.peers, self._machines.own, secret, folder),
        )
        server = PeerServer(FileBlobStore(folder), secret, machines.peers[machines.own])

        with closing(server), closing(peers), ExitStack() as stack:
            host, round_, failures, members = 0, 0, 0, frozenset(range(len(machines.hosts)))
            serves = False
            while True:
                if host == machines.own and not serves and not self._options.store:
                    serves = True
                    # A c10d store in a process of its own, which outlives each start of torchrun.
                    port = str(machines.rendezvous(host).port)
                    words = ["-m", "spotctl.integrations.gang", "--serve-store", port]
                    store = subprocess.Popen([sys.executable, *words])
                    stack.callback(store.wait)
                    stack.callback(store.kill)
                code = self._round(host, round_, len(members))
                if code == 0 or self._must_end:
                    return SAVED_AND_ENDED if self._must_end else 0
                before, members = members, alive(machines)
                # If no machine is lost, the script itself has failed.
                failures += members == before
                if failures > self._options.max_restarts:
                    return code
                host = next(machine for machine in (host, *sorted(members)) if machine in members)
                round_ = next_round(peers, round_)

    def _round(self, host: int, round_: int, most: int) -> int:
        """Runs torchrun until it ends, or this machine leaves."""
        command = torchrun_command(self._options, self._machines, host, round_, most)
        environment = {**os.environ, **self._settings.variables()}
        # torchrun has a session of its own, so it gets a signal only once, from here.
        torchrun, passed_on = (
            subprocess.Popen(command, env=environment, start_new_session=True),
            False,
        )

        while (code := torchrun.poll()) is None:
            notice = None if self._holder is None else self._holder.notice()
            # A hint does not announce the machine's end.
            self._must_end = self._must_end or (notice is not None and notice.kind != "hint")
            if self._must_end and not passed_on:
                passed_on = True
                torchrun.terminate()
            time.sleep(_LOOK_SECONDS)

        return code if code >= 0 else 128 - code

    def _on_term(self, *_: object) -> None:
        self._must_end = True


def torchrun_command(
    options: argparse.Namespace, machines: GangMachines, host: int, round_: int, most: int
) -> list[str]:
    """This machine's command line of torchrun, for a c10d store on `host` and up to `most`
    machines.
    """
    endpoint = parse_host_port(options.store) if options.store else machines.rendezvous(host)
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        f"--nnodes=1:{most}",
        f"--nproc-per-node={options.nproc_per_node}",
        "--max-restarts=0",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={endpoint.host}:{endpoint.port}",
        f"--rdzv-id={options.run_id}-{round_}",
        f"--rdzv-conf=is_host=0,last_call_timeout={options.last_call:g},{_RENDEZVOUS_CONFIG}",
        f"--local-addr={machines.hosts[machines.own]}",
        options.script,
        *options.arguments,
    ]


def next_round(peers: Peers, last: int) -> int:
    """The number of the next start of torchrun, the same on all machines: one more than any that
    has failed.
    """
    known = map(re.compile(rf"{_ROUND_PREFIX}(\d{{1,9}})", re.ASCII).fullmatch, peers.names())
    following = max([last + 1, *(int(match[1]) for match in known if match)])
    for store in peers.holders(len(peers.addresses)):
        with suppress(AgileMLError, OSError):
            store.put(f"{_ROUND_PREFIX}{following}", [b""])
    return following


def alive(machines: GangMachines) -> frozenset[int]:
    """The machines that answer at the ports of their stores, and this one."""
    return frozenset(
        i for i in range(len(machines.hosts)) if i == machines.own or _answers(machines.peers[i])
    )


def _answers(address: TcpAddress) -> bool:
    """Whether a store answers. A machine may be busy, so there are several attempts."""
    for _ in range(_CONNECT_ATTEMPTS):
        try:
            socket.create_connection((address.host, address.port), PATIENCE_SECONDS).close()
        except OSError:
            time.sleep(_LOOK_SECONDS)
        else:
            return True
    return False


def settings_of(
    options: argparse.Namespace, environment: Mapping[str, str]
) -> tuple[GangMachines, GangSettings]:
    """Machines and settings from the options, or else from spotctl's variables. BadInput: neither
    has all of them.
    """
    hosts = options.machines or environment.get("SPOTCTL_NODE_ADDRESSES", "")
    own = environment.get("SPOTCTL_NODE_RANK", "") if options.machine is None else options.machine
    port = environment.get("MASTER_PORT", "") if options.port is None else options.port
    if not hosts or own == "" or port == "":
        raise BadInput(
            "needs --machines HOST,HOST,... --machine NUMBER --port PORT, except in a job of "
            "spotctl"
        )

    machines = GangMachines(tuple(hosts.split(",")), int(own), int(port))
    if not 0 <= machines.own < len(machines.hosts):
        raise BadInput(
            f"--machine {own}: there are {len(machines.hosts)} machines, numbered from 0"
        )

    folder = options.folder or Path(environment.get(MARK, ".")) / "gang"
    peers = tuple(f"{peer.host}:{peer.port}" for peer in machines.peers)
    return machines, GangSettings(peers, machines.own, folder.absolute(), secret_of(environment))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m spotctl.integrations.gang", description=__doc__
    )
    parser.add_argument(
        "--nproc-per-node", default=str(max(gpus(), 1)), help="as of torchrun; one per GPU"
    )
    parser.add_argument(
        "--max-restarts", type=int, default=3, help="restarts after failures without a lost machine"
    )
    parser.add_argument(
        "--last-call", type=float, default=30.0, help="seconds to wait for machines that answer"
    )
    parser.add_argument(
        "--store",
        metavar="HOST:PORT",
        help="a c10d store that runs elsewhere, on a reliable machine",
    )

    parser.add_argument("--serve-store", type=int, metavar="PORT", help="only serve such a store")
    parser.add_argument(
        "--folder", type=Path, help="for saves: of a disk, or of memory, such as /dev/shm/gang"
    )
    parser.add_argument("--machines", metavar="HOST,HOST,...", help="addresses of all machines")
    parser.add_argument("--machine", type=int, help="the number of this one, from 0")
    parser.add_argument("--port", type=int, help="the first of 2 N + 1 free ports")
    parser.add_argument(
        "--run-id",
        default=os.environ.get("SPOTCTL_ATTEMPT", "gang"),
        help="the same on all machines",
    )

    parser.add_argument("script", nargs="?", help="the training script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    return parser


def main(words: Sequence[str]) -> int:
    """Runs this machine of the gang, or only its store; returns the exit code."""
    options = _parser().parse_args(words)
    try:
        if options.serve_store is not None:
            # The c10d store of a gang, until this process is killed.
            from torch import distributed

            everywhere = "0.0.0.0"  # noqa: S104 - as torchrun's own store
            store = distributed.TCPStore(  # type: ignore[attr-defined]  # torch's stub lacks it
                everywhere,
                options.serve_store,
                is_master=True,
                wait_for_workers=False,
                timeout=timedelta(days=1),
            )
            sys.stderr.write(f"spotctl: c10d store at port {store.port}\n")
            signal.pause()
        if options.script is None:
            raise BadInput("name the training script")
        return GangMachine(options, *settings_of(options, os.environ)).run()
    except AgileMLError as error:
        sys.stderr.write(f"spotctl: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
