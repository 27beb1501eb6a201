"""YAML with line numbers: `python -m bench.yaml_file` compares PyYAML with ruamel.yaml (`pip
install ruamel.yaml`).
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from spotctl.files.user_files import starter_text
from spotctl.files.yaml_file import parse

_MORE = """
env: {LOG_LEVEL: info, WORKERS: 4}
secrets: [HF_TOKEN]
data: {ratings: "s3://bucket/ratings/"}
outputs: {model: "s3://bucket/models/"}
tags: {team: search}
deadline: 10h
throughputs:
  c4.xlarge: 40
  c4.2xlarge: 80
notify:
  webhook: https://example.com/hook
setup: |
  pip install x
  echo done
workdir: .
"""


def _milliseconds(call: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        begin = time.process_time()
        call()
        taken.append((time.process_time() - begin) * 1000)
    return median(taken)


def _import_milliseconds(module: str) -> float:
    code = (
        f"import time; t = time.process_time(); import {module}; print((time.process_time() - t) * "
        "1000)"
    )
    runs = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(9)
    )
    return median(float(run.stdout) for run in runs)


def main() -> None:
    """Prints processor time of importing a parser and of parsing a job file of 30 lines."""
    lines = [
        line
        for line in starter_text().splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]
    text = "\n".join(lines) + _MORE
    print(f"{len(text.splitlines())} lines")
    ours = _milliseconds(lambda: parse(text, Path("job.yaml")), 200)
    print(f"PyYAML       import {_import_milliseconds('yaml'):5.1f} ms, parse {ours:4.2f} ms")
    try:
        from ruamel.yaml import YAML
    except ImportError:
        print("ruamel.yaml  not installed")
        return
    theirs = _milliseconds(lambda: YAML().load(text), 200)
    print(
        f"ruamel.yaml  import {_import_milliseconds('ruamel.yaml'):5.1f} ms, parse {theirs:4.2f} ms"
    )


if __name__ == "__main__":
    main()
