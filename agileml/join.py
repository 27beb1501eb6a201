"""Joins a running job as a node: works for the job's controller until it is released.

    python -m agileml.join HOST:PORT --secret-file FILE [--reliable] [--name NAME]
    python -m agileml.join --credentials NAME --secret-file FILE

HOST:PORT is where `spotctl lab train --engine attach --address HOST:PORT` waits for nodes. FILE
holds the same secret, or, for a machine that you do not trust, the credentials of one node, which
the second command prints: with these, the machine can take part as the node NAME, and as no other.
The node needs nothing else of the job: it receives the trainer's code. SIGTERM warns the job that
this machine will be taken away; the node hands over what it holds and exits. Standard error is the
node's log.

Exit codes: 0 released by the controller; 1 failed; 2 wrong usage; 3 refused (another secret,
another version of the code, a name that is taken, a job that is over); 4 no controller was reached
for --wait seconds.
"""

import argparse
import logging
import os
import re
import secrets
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from agileml.errors import AgileMLError, BadAddress, BadInput, ControllerUnreachable, PeerRefused
from agileml.protocol.actions import CONTROLLER, JOB_LOOP
from agileml.runtime.attach import code_version, folder_role, join, linked_role
from agileml.runtime.folders import SECRET_VARIABLE, own_folder, read_secret
from agileml.runtime.node_process import NOT_ADMITTED, UNREACHABLE
from agileml.runtime.rendezvous import FolderRendezvous, LinkedRendezvous, outward_host
from agileml.transport import parse_host_port
from agileml.transport.certificates import credentials_of

if TYPE_CHECKING:
    from agileml.runtime.node_loop import NodeLoop

FAILED, USAGE = 1, 2
_FOR_PEOPLE = {NOT_ADMITTED: 3, UNREACHABLE: 4}
"""Exit codes for people, in place of the codes for fleets."""

WAIT_SECONDS = 60.0
NOTICE_SECONDS = 30.0

_LONGEST_NAME = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

log = logging.getLogger(__name__)


def main(words: list[str]) -> int:
    """Returns the exit code."""
    given = _parser().parse_args(words)
    # A descriptor of its own: what the trainer prints takes another way, to the job's user.
    logging.basicConfig(
        stream=os.fdopen(os.dup(2), "w"), level=logging.INFO, format="%(asctime)s %(message)s"
    )

    # A file of the trainer may import modules of the working directory, as Python itself allows.
    sys.path.append(str(Path.cwd()))
    try:
        if given.credentials:
            given.name = given.credentials
            # For a file.
            print(credentials_of(_secret(given), _name_of(given)).encoded().decode())  # noqa: T201
            return 0
        if given.job is None:
            raise BadInput("HOST:PORT is missing: say where the controller listens")
        if Path(given.job).is_absolute():
            # A terminal sends SIGINT to every process of its group; the owner of the machine
            # decides when the node ends.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            secret = bytes.fromhex(os.environ.pop(SECRET_VARIABLE))
            # A local machine's name is the path of its folder; the last two parts identify it.
            name = "-".join(Path(os.environ[given.name_in]).parts[-2:])
            rendezvous = FolderRendezvous(Path(given.job), secret)
            admitted = join(folder_role(rendezvous, name, reliable=given.reliable))
        else:
            admitted = _join_link(given)
    except AgileMLError as error:
        log.error("%s", error)
        codes = (
            (BadInput, USAGE),
            (PeerRefused, NOT_ADMITTED),
            (ControllerUnreachable, UNREACHABLE),
        )
        return _code(next((code for kind, code in codes if isinstance(error, kind)), FAILED), given)

    return 0 if admitted else _code(NOT_ADMITTED, given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m agileml.join",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    parser.add_argument(
        "job",
        nargs="?",
        metavar="HOST:PORT",
        help="where the controller listens; an IPv6 address in brackets",
    )

    parser.add_argument(
        "--credentials", metavar="NAME", help="print the credentials of the node NAME, and end"
    )
    parser.add_argument(
        "--secret-file", type=Path, metavar="FILE", help="file with the job's secret, mode 600"
    )
    parser.add_argument(
        "--reliable",
        action="store_true",
        help="this machine is reliable: no provider will evict it",
    )

    parser.add_argument(
        "--name",
        help="name of the node, never used before in this job (default: host and a number)",
    )
    parser.add_argument(
        "--host",
        help="address where other nodes reach this one; auto: that of the default route"
        " (default: the address from which it reaches the controller)",
    )

    parser.add_argument(
        "--port", type=int, default=0, help="TCP port for other nodes (default: any free port)"
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="where this node listens, if --host and --port are a router's that forwards to it",
    )

    parser.add_argument(
        "--wait",
        type=float,
        default=WAIT_SECONDS,
        metavar="SECONDS",
        help=f"give up after this long without a controller (default {WAIT_SECONDS:g})",
    )

    parser.add_argument(
        "--notice",
        type=float,
        default=NOTICE_SECONDS,
        metavar="SECONDS",
        help=f"time that this machine has left after SIGTERM (default {NOTICE_SECONDS:g})",
    )

    # Nodes that spotctl starts: the environment has name and secret. On the computer of the job,
    # HOST:PORT is a folder.
    parser.add_argument("--name-in", help=argparse.SUPPRESS)
    # Two variables, of --host and --port, which the machine's cloud has set.
    parser.add_argument("--reached-in", nargs=2, help=argparse.SUPPRESS)
    return parser


def _code(status: int, given: argparse.Namespace) -> int:
    if given.name_in:
        return status
    return _FOR_PEOPLE.get(status, status)


def _join_link(given: argparse.Namespace) -> bool:
    controller = parse_host_port(given.job)
    name = _name_of(given)
    if given.reached_in:
        # Where a router forwards to this machine, from two variables of its cloud.
        at = ":".join(os.environ.get(name, "").strip() for name in given.reached_in)
        try:
            reached = parse_host_port(at)
        except BadAddress:
            raise BadInput(
                f"the machine's variables {' and '.join(given.reached_in)} say {at!r}, not where "
                "other nodes reach it; rent another one"
            ) from None
        given.host, given.port = reached.host, reached.port
    listen = None if given.listen is None else parse_host_port(given.listen)

    if not 0 <= given.port <= 65535:
        raise BadInput(
            f"--port {given.port}: expected a port from 1 to 65535, or 0 for any free port"
        )

    for option in ("wait", "notice"):
        if not getattr(given, option) >= 0:
            raise BadInput(f"--{option} {getattr(given, option)}: expected a number of seconds")

    secret = credentials_of(_secret(given), name).encoded()
    with own_folder() as folder:
        rendezvous = LinkedRendezvous(
            controller, secret, code_version(), given.wait, folder, node=name
        )
        host = outward_host() if given.host == "auto" else given.host
        role = linked_role(
            rendezvous, name, reliable=given.reliable, port=given.port, host=host, listen=listen
        )
        return join(role, lambda node: _warn_on_signals(node, given.notice), folder)


def _secret(given: argparse.Namespace) -> bytes:
    """The job's secret, or the credentials of a node in its place."""
    if given.secret_file is not None:
        return read_secret(given.secret_file)
    if given.name_in:
        return bytes.fromhex(os.environ.pop(SECRET_VARIABLE))
    raise BadInput("--secret-file is missing: name the file with the job's secret")


def node_name(machine: str) -> str:
    """The name of the node on a machine with this id.

    >>> node_name("azure:eastus:group/name")
    'azure.eastus.group.name'
    """
    return re.sub(r"[^A-Za-z0-9._-]", ".", machine)[-_LONGEST_NAME:].lstrip("._-")


def _name_of(given: argparse.Namespace) -> str:
    """The given name, or one for this host; a machine's id may contain characters that names do
    not.
    """
    name = node_name(os.environ[given.name_in]) if given.name_in else given.name
    if name is None:
        host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:40].lstrip(".-")
        return f"{host or 'node'}-{secrets.token_hex(3)}"
    if not _NAME.fullmatch(name) or name in (CONTROLLER, JOB_LOOP):
        raise BadInput(
            f"--name {name!r}: use 1 to 64 letters, digits and ._-, starting with a letter or a "
            "digit"
        )

    return str(name)


def _warn_on_signals(node: "NodeLoop[Any]", seconds: float) -> None:
    """The first SIGTERM or SIGINT is a warning, the second ends the process."""

    def warn(_: int, __: FrameType | None) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        node.warn(seconds)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, warn)


def run() -> NoReturn:
    """Runs the command and ends the process, for which Python itself would wait until the last step
    is over.
    """
    code = main(sys.argv[1:])
    # What a step does that hangs, or takes an hour, is of no use to the job any more.
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
