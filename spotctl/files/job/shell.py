"""Mistakes in a job's shell commands, found without running them."""

import re
import subprocess
from pathlib import Path

_SCRIPT = re.compile(
    r"(?:exec\s+)?(?:(?:python[\d.]*|bash|sh)\s+(?:-[uOB]+\s+)*(?!-)|(?=\./))(?P<path>[\w./-]+)(?=\s|$)"
)
"""A command that begins with a program of the job's folder: `python train.py`, `./train.sh`."""


def syntax_problem(text: str) -> str | None:
    """The reason why no shell can read a command; None if one can."""
    if "\0" in text:
        return "contains a NUL byte, which no command can; remove it"
    read = subprocess.run(["/bin/sh", "-n"], input=text, stderr=subprocess.PIPE, text=True, check=False)
    if read.returncode == 0:
        return None
    said = read.stderr.strip().splitlines()[-1].rpartition("yntax error: ")[2].strip().lower()
    return f"is no command that a shell can read ({said}); correct it, and try it with sh -n"


def script_problem(command: str, workdir: Path) -> str | None:
    """Why the script with which a command begins is not there; None if it is, or if there is none."""
    named = _SCRIPT.match(command.strip())
    if named is None or (workdir / named["path"]).is_file():
        return None
    return f"there is no file {named['path']} in {workdir}; correct the name, or write workdir"
