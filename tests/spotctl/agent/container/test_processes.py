"""A job's shell: the text comes in its environment, and all else is as in `sh -c TEXT`."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from spotctl.agent.container.processes import BEHIND_SETUP, SHELL, environment_of
from spotctl.agent.layout import OF_ONE_PROCESS, RUN_VARIABLE, SETUP_VARIABLE

TEXTS = {
    "nothing": "",
    "output": "echo out; echo err >&2",
    "several lines": "\n\nset -e\nfor i in 1 2; do\n  echo $i\ndone\n# the end",
    "script's head": "#!/bin/sh\necho headed",
    "here": "cat <<'END'\n$HOME `id` \"quoted\" 'single' \\n\nEND\n",
    "status": "exit 7",
    "a failure stops": "set -e; false; echo not here",
    "a failure in a condition": "set -e; if false; then :; fi; echo here",
    "unset variables": "set -u; echo $NOT_THERE; echo not here",
    "its name and arguments": 'echo "$0 $# $*"',
    "its input": "cat; echo read",
    "variables": "env | grep -v '^_=' | sort; set | grep -c TEXT",
    "an end of its own": "trap 'echo over; exit 4' EXIT; echo first",
    "a signal": "kill -KILL $$",
    "a signal to a program": "sh -c 'kill -TERM $$'",
    "handled": "trap 'echo told; exit 5' TERM; kill -TERM $$; echo not here",
    "replaced": "exec sh -c 'echo other; exit 3'",
    "not a command": "if; then",
    "after a good line": "echo first\nif; then",
    "not there": "no-such-program-anywhere",
    "quotes": """printf '%s\\n' "it's" 'a "b"' \\$PWD $((1 + 1)) "$(echo sub)" ÄÖ""",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_a_text_in_the_environment_runs_as_one_among_the_arguments(text: str) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": "/"}
    expected = ended(["/bin/sh", "-c", text], environment)
    assert ended(SHELL, {**environment, RUN_VARIABLE: text}) == expected


def ended(words: tuple[str, ...] | list[str], environment: dict[str, str]) -> tuple[int, str, bool]:
    """The status as a node reports it, the output, and whether there were messages: their wording
    is the shell's.
    """
    done = subprocess.run(
        words,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return (
        code,
        done.stdout,
        bool(done.stderr.replace("Terminated", "").replace("Killed", "").strip()),
    )


def test_a_command_behind_a_setup_gets_none_of_the_texts() -> None:
    environment = {
        "PATH": os.environ["PATH"],
        SETUP_VARIABLE: "echo set up; KEPT=no",
        RUN_VARIABLE: 'env; echo "$KEPT."',
    }
    done = subprocess.run(
        [*BEHIND_SETUP, *SHELL], env=environment, capture_output=True, text=True, check=True
    )
    first, *rest, last = done.stdout.splitlines()
    assert (first, last) == ("set up", ".")
    assert not [line for line in rest if line.partition("=")[0] in OF_ONE_PROCESS]
    failed = subprocess.run(
        [*BEHIND_SETUP, *SHELL], env={**environment, SETUP_VARIABLE: "exit 6"}, check=False
    )
    assert failed.returncode == 6


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_no_argument_has_a_word_of_the_text_and_no_session_gets_it() -> None:
    text = "echo started; exec 3>&-; while :; do sleep 0.1; done # planted"
    environment = {"PATH": os.environ["PATH"], "OWN": "value", RUN_VARIABLE: text}
    with subprocess.Popen(
        SHELL, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as shell:
        try:
            assert shell.stdout is not None
            assert shell.stdout.readline() == "started\n"
            assert b"planted" not in Path(f"/proc/{shell.pid}/cmdline").read_bytes()
            assert environment_of(shell.pid).keys() & {"OWN", *OF_ONE_PROCESS} == {"OWN"}
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
