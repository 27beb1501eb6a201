"""Does `spotctl init --try` keep its promises for a folder of training scripts?

    python -m tests.corpus FOLDER [--only NAME...] [--results FILE] [--launch [--busy NUMBER]]

FOLDER holds the scripts, with tiny stand-ins for their data and for modules that are not installed,
and `cases.toml`, a table for each script:

    [nanogpt]
    folder = "nanoGPT"              # in which it runs
    repository = "nanoGPT"
    script = "train.py"
    arguments = "--max_iters=300"
    final = "out/ckpt.pt"           # what it has at its end; left out if it saves nothing
    loads = true                    # it goes on where its save stood, with its weights, if it is told to
    path = ["stand-ins"]            # folders of modules and programs, besides its own
    variables = {SAMPLES = "64"}

For each, `init --try` is run on a copy of the folder, and again with the lines that it proposes.
`oracle`, which shares no code with it, then runs the script undisturbed and with two kills. Promised
falsely is a script that was said to resume, and whose killed run computes as long as from the
beginning, or ends elsewhere. With `--results`, what was found is added to a file, and what it has is
not tried again. With `--launch`, the job of each script that resumes is launched on the local market,
where it is evicted, and ends as the oracle says; `--busy` loops take the computer's time meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from tests.corpus.oracle import Ending, KilledTwice


@dataclass(frozen=True)
class Tried:
    """A script: what init said, and what the oracle saw."""

    name: str
    repository: str
    loads: bool
    verdict: str
    resumes: bool | None
    changes: int
    kept: tuple[str, ...]
    ending: str
    """How the killed run of a script that was said to resume ended; empty if it was not run."""
    saw: str
    run: str = ""

    @property
    def is_false(self) -> bool:
        is_promised = self.verdict == "resumed" or self.resumes is True
        return is_promised and self.ending in (Ending.FAILED, Ending.LONGER, Ending.ELSEWHERE)


@dataclass(frozen=True)
class Case:
    """A script of the folder."""

    name: str
    folder: Path
    script: str
    repository: str = ""
    arguments: str = ""
    final: str = ""
    loads: bool = False
    path: tuple[Path, ...] = ()
    variables: Mapping[str, str] | None = None

    def environment(self, **more: str) -> dict[str, str]:
        modules = os.pathsep.join(map(str, self.path))
        programs = os.pathsep.join(str(folder / "bin") for folder in self.path)
        whole = {"PYTHONPATH": modules, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        return {**os.environ, **whole, **(self.variables or {}), **more}


def cases(root: Path) -> Iterator[Case]:
    for name, about in tomllib.loads((root / "cases.toml").read_text()).items():
        path = tuple((root / each).resolve() for each in about.get("path", ()))
        yield Case(name, **{**about, "folder": root / about["folder"], "path": path})


def init(case: Case, folder: Path, home: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answer of init for the script in this folder, and the job that it writes."""
    words = ["init", case.script, "job.yaml", "--try", "--yes", "--json", "--force"]
    words += ["--", *shlex.split(case.arguments)] if case.arguments else []
    ended = subprocess.run(
        [sys.executable, "-m", "spotctl", *words],
        cwd=folder,
        env=case.environment(SPOTCTL_HOME=str(home)),
        capture_output=True,
        text=True,
        check=False,
    )
    answer = json.loads(ended.stdout)["script"] if ended.stdout else {}
    refused = {"verdict": "refused", "saw": ended.stderr.strip()}
    job = folder / "job.yaml"
    spec = yaml.safe_load(job.read_text()) if job.is_file() else {}
    return {**answer, "tried": answer.get("tried") or refused}, spec


def try_case(case: Case) -> Tried:
    with TemporaryDirectory() as scratch:
        folder, home = Path(scratch, "work"), Path(scratch, "home")
        shutil.copytree(case.folder, folder)
        answer, spec = init(case, folder, home)
        changes = answer.get("changes") or ()
        if answer["tried"]["verdict"] == "resumed" and changes:
            # As init says: change the script, and try it again.
            apply(changes, folder / case.script)
            answer, spec = init(case, folder, home)

        tried, ending = answer["tried"], ""
        kept = tuple((spec.get("checkpoint") or {}).get("keep", ()))
        if tried["verdict"] == "resumed" and case.final:
            (folder / "job.yaml").unlink()
            env = case.environment(**{k: str(v) for k, v in spec.get("env", {}).items()})
            ending = str(KilledTwice(folder, spec, env, Path(scratch), case.final).ending())
        facts = answer.get("resumes"), len(changes), kept, ending, tried["saw"]
        run = spec.get("run", "")
        return Tried(case.name, case.repository, case.loads, tried["verdict"], *facts, run)


def launched(case: Case, tried: Tried, busy: int) -> str:
    """How the job of a script that resumes ends on the local market, and how often it was evicted."""
    with TemporaryDirectory() as scratch:
        folder = Path(scratch, "work")
        shutil.copytree(case.folder, folder)
        spec = {**JOB, "name": case.name, "run": tried.run}
        spec["checkpoint"] = {"path": "stored-checkpoints", "keep": list(tried.kept)}
        (folder / "job.yaml").write_text(yaml.safe_dump(spec))
        env = case.environment(SPOTCTL_HOME=str(Path(scratch, "home")), **JOB["env"])
        oracle = KilledTwice(case.folder, spec, env, Path(scratch), case.final)
        loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
        ended = subprocess.run(
            [sys.executable, "-m", "spotctl", "launch", "job.yaml", "--yes", "--json"],
            cwd=folder,
            env=oracle.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        for loop in loops:
            loop.kill()
        if ended.returncode:
            return f"failed with status {ended.returncode}: {ended.stderr.strip()[-300:]}"
        evictions = json.loads(ended.stdout)["evictions"]
        return f"{oracle.ending_elsewhere(folder / 'results')}, after {evictions} evictions"


JOB: dict[str, Any] = {
    "kind": "command",
    "outputs": {"model": "results"},
    "hours": "6h",
    "budget": "25 USD",
    "resources": {"clouds": ["local"], "types": ["c4.2xlarge"]},
    "env": {"OMP_NUM_THREADS": "1"},
    "strategy": "proteus",
    "local": {"speed": 500, "start": "2026-01-24T01:10:00Z", "warning": "5m"},
}
"""The job of a script on the local market, which evicts it within a minute."""


def apply(changes: Iterable[Mapping[str, Any]], script: Path) -> None:
    """Changes the lines of a script, from the last."""
    lines = script.read_text().splitlines()
    for change in sorted(changes, key=lambda each: -int(each["line"])):
        first = change["line"] - 1
        lines[first : first + (change["act"] == "replace")] = change["text"].splitlines()
    script.write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--results", type=Path)
    parser.add_argument("--launch", action="store_true")
    parser.add_argument("--busy", type=int, default=0)
    asked = parser.parse_args()
    known = dict[str, Tried]()
    if asked.results is not None and asked.results.is_file():
        rows = [json.loads(line) for line in asked.results.read_text().splitlines()]
        known = {row["name"]: Tried(**row) for row in rows}

    found = []
    for case in cases(asked.folder):
        if asked.only and case.name not in asked.only:
            continue
        tried = known.get(case.name) or try_case(case)
        found.append(tried)
        if asked.results is not None and case.name not in known:
            with asked.results.open("a") as kept:
                kept.write(json.dumps(asdict(tried)) + "\n")
        if asked.launch:
            print(f"{tried.name}: {launched(case, tried, asked.busy)}", flush=True)
            continue
        keeps = f", keeps {', '.join(tried.kept)}" if tried.kept else ""
        ends = f"; {'PROMISED FALSELY: ' if tried.is_false else ''}{tried.ending}"
        lines = f" with {tried.changes} changed lines" if tried.changes else ""
        about = f"{tried.name} ({tried.repository}): {tried.verdict}{lines}{keeps}"
        print(f"{about}{ends if tried.ending else ''}: {tried.saw}", flush=True)

    able = [tried for tried in found if tried.loads]
    resumed = [tried for tried in able if tried.verdict == "resumed"]
    unchanged = [tried for tried in resumed if not tried.changes]
    false = [tried for tried in found if tried.is_false]
    unkilled = [tried for tried in found if tried.ending == Ending.UNKILLED]
    print(
        f"{len(found)} scripts of {len({tried.repository for tried in found})} repositories, "
        f"{len(able)} save and load: {len(resumed)} resume, {len(unchanged)} of them unchanged; "
        f"{len(false)} promised falsely, {len(unkilled)} ended before they were killed twice"
    )
    return bool(false)


if __name__ == "__main__":
    sys.exit(main())
