"""Joins a running job as a node: works for the job's controller until it is told to leave.

    python -m agileml.join FOLDER --name-in VARIABLE [--reliable]

VARIABLE of the environment holds the node's name, AGILEML_SECRET the job's secret. Standard error is the node's log: it
says why a node was refused or failed.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from pathlib import Path

from agileml.errors import AgileMLError, PeerRefused
from agileml.runtime.attach import join
from agileml.runtime.node_process import REFUSED
from agileml.runtime.rendezvous import FolderRendezvous

SECRET_VARIABLE = "AGILEML_SECRET"  # noqa: S105 - the name of a variable, not a secret

log = logging.getLogger(__name__)


def main(words: list[str]) -> int:
    """Returns 0 after a job, REFUSED (3) if the job did not admit this node, 1 if it failed."""
    parser = argparse.ArgumentParser(prog="agileml join")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--name-in", required=True)
    parser.add_argument("--reliable", action="store_true")
    given = parser.parse_args(words)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    # A terminal sends SIGINT to every process of its group; the owner of the machine decides when the node ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The trainer's module is searched in the working directory too, as Python itself does.
    sys.path.append(str(Path.cwd()))
    try:
        secret = bytes.fromhex(os.environ.pop(SECRET_VARIABLE))
        # A local machine's name is the path of its folder; the last two parts identify it.
        name = "-".join(Path(os.environ[given.name_in]).parts[-2:])
        admitted = join(FolderRendezvous(given.folder, secret), name, reliable=given.reliable)
    except AgileMLError as error:
        log.error("%s", error)
        return REFUSED if isinstance(error, PeerRefused) else 1
    return 0 if admitted else REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
