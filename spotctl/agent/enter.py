"""Runs a person's command on a rented machine: `python3 -m spotctl.agent.enter COMMAND...`, over
ssh.

The command replaces this process and runs in the folder and the environment of the payload. It
never outlives the machine.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from spotctl.agent import layout
from spotctl.agent.container.processes import CANNOT_START, Surroundings


def main(words: Sequence[str]) -> int:
    """Becomes the command. Returns only if the command cannot be started."""
    agent = int(Path(layout.STARTED).read_text())
    surroundings = Surroundings(Path(layout.AGENT_FOLDER), agent, layout.JOB_FOLDER)
    os.chdir(surroundings.folder)
    command, terminal = surroundings.wrap(words), {"TERM": os.environ.get("TERM", "dumb")}

    try:
        os.execvpe(command[0], command, {**terminal, **surroundings.environment})  # noqa: S606
    except OSError as error:
        print(f"{words[0]}: {error.strerror or error}", file=sys.stderr)  # noqa: T201
        return CANNOT_START


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
