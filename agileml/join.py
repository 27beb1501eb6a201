"""A node of a job whose nodes are started by others: joins the job's controller, works until it is told to leave.

    python -m agileml.join FOLDER --name-in VARIABLE [--reliable]

Its name is in a variable of its environment, and so is the job's secret, which it takes out.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from agileml.errors import AgileMLError
from agileml.runtime.attach import join
from agileml.runtime.node_process import REFUSED
from agileml.runtime.rendezvous import FolderRendezvous

SECRET_VARIABLE = "AGILEML_SECRET"  # noqa: S105 - the name under which a secret comes


def main(words: list[str]) -> int:
    """The status says whether the node had been taken in."""
    parser = argparse.ArgumentParser(prog="agileml join")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--name-in", required=True)
    parser.add_argument("--reliable", action="store_true")
    given = parser.parse_args(words)
    # Terminals send signals to everybody; whether a machine goes is for whoever rented it to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The trainer's module is looked for where the job's files are, as Python itself does.
    sys.path.append(str(Path.cwd()))
    try:
        secret = bytes.fromhex(os.environ.pop(SECRET_VARIABLE))
        # A machine that is a folder is known by the last two parts of its path.
        name = "-".join(Path(os.environ[given.name_in]).parts[-2:])
        taken_in = join(FolderRendezvous(given.folder, secret), name, reliable=given.reliable)
    except AgileMLError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0 if taken_in else REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
