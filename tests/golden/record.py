"""Records what commands of one tree print. It runs in the environment of that tree and knows the
product only by its command.

`python -P record.py REQUEST`: REQUEST is a file of JSON with scenarios. Each command runs in a
process that is forked from this one, which has loaded the product before: that takes hundredths of
a second where a start takes half a second. Only the standard library is used; what is recorded is
raw. Each scenario is kept as soon as it is recorded, and how far it is stands on standard error.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import hashlib
import io
import json
import os
import pkgutil
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

PACKAGES = ("spotctl", "bidbrain", "agileml", "pricing_data")
LOADED = (
    "spotctl.cli",
    "spotctl.files",
    "spotctl.home",
    "spotctl.log",
    "spotctl.planning",
    "bidbrain",
    "pricing_data",
)
"""Modules that are loaded once, without those that have a part of `LARGE` in their name: they slow
other trees down."""
LARGE = (
    "parallel",
    "train",
    "tracking",
    "torch",
    "ray",
    "top",
    "aws",
    "azure",
    "gcp",
    "lab",
    "__main__",
)
LONGEST_TEXT = 1_000_000
MAX_PAGES = 60
KILLED = "killed after {:.0f} seconds"
STATES = Path("/tmp")
"""Where runs have their state on this computer, outside of their home."""
_STATE = re.compile(rb"/tmp/(spotctl-[0-9a-f]{8})\b")
PAUSE = 10.0
"""Seconds between two lines that say how far it is."""

Step = dict[str, Any]
"""A `Step` of scenario.py, as JSON has it."""

_real_ns = time.time_ns
_stands_at: int | None = None
"""The moment that the clock of this process shows, in nanoseconds; None for the real one."""


def _no_sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if Path(folder, name).is_socket()]


def _time_ns() -> int:
    return _real_ns() if _stands_at is None else _stands_at


def main(request: dict[str, Any]) -> None:
    """Records all scenarios of a request."""
    _end_with(request["parent"])
    time.time_ns, time.time = _time_ns, lambda: _time_ns() / 1e9
    environment = Path(request["environment"])
    command = _loaded(environment)
    out, work = Path(request["out"]), Path(request["work"])
    started = said = time.monotonic()
    for number, scenario in enumerate(request["scenarios"], 1):
        # What is kept stays where it was made: the log has the paths of its job files.
        folder = (out if scenario["keep"] else work) / scenario["digest"][:8]
        began = time.monotonic()
        now = scenario["now"] or request["moments"][scenario["home"]]
        sandbox = Sandbox(folder, environment, request["checkout"], request["plots"], now, command)
        with _states(scenario, request) as states:
            sandbox.furnish(scenario, request, states)
            answers = list(_recorded(scenario, sandbox))
        if not scenario["keep"]:
            shutil.rmtree(folder, ignore_errors=True)
        record = {
            "scenario": scenario["name"],
            "folder": str(folder),
            "environment": str(environment),
            "checkout": request["checkout"],
            "at": _real_ns() // 10**9,
            "seconds": round(time.monotonic() - began, 2),
            "steps": answers,
        }
        written = out / f".{scenario['digest']}.{os.getpid()}"
        written.write_text(json.dumps(record), encoding="utf-8")
        written.replace(out / f"{scenario['digest']}.json")
        if time.monotonic() >= said + PAUSE or number == len(request["scenarios"]):
            said = time.monotonic()
            sys.stderr.write(progress(request, number, said - started))


def progress(request: dict[str, Any], done: int, taken: float) -> str:
    """How many scenarios are recorded, the last one, and how long the rest takes if it takes as
    long as in the base.
    """
    scenarios = request["scenarios"]
    before, left = (
        sum(one["takes"] for one in part) for part in (scenarios[:done], scenarios[done:])
    )
    rest = f", about {taken * left / before / 60:.0f} min left" if before and left else ""
    name = f"{scenarios[done - 1]['name']}: {scenarios[done - 1]['steps'][0]['title']}"
    line = (
        f"{request['label']}: {done} of {len(scenarios)} scenarios recorded in {taken / 60:.0f} "
        f"min{rest} ({name}"
    )
    return f"{line[:150]})\n"


def _end_with(parent: int) -> None:
    """Lets this process end as soon as its parent has ended."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        raise SystemExit("the process that asked for recordings has ended")


@contextmanager
def _states(scenario: dict[str, Any], request: dict[str, Any]) -> Iterator[list[Path]]:
    """The states of the runs of a scenario's home, which belong to one scenario at a time: their
    place is fixed.
    """
    kept = Path(request["homes"][scenario["home"]]).parent if scenario["home"] else None
    states = sorted(kept.glob("states/*")) if kept else []
    if not states:
        yield []
        return
    with Path(f"{kept}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield states
        finally:
            for state in states:
                shutil.rmtree(STATES / state.name, ignore_errors=True)


def _loaded(environment: Path) -> Callable[[], None]:
    """The command, from this environment, with the modules of the product."""
    (script,) = entry_points(group="console_scripts", name="spotctl")
    command: Callable[[], None] = script.load()
    for name in PACKAGES:
        package = import_module(name)
        place = Path(str(package.__file__)).resolve()
        if not place.is_relative_to(environment.resolve()):
            raise SystemExit(f"{name} is {place}, which is not in {environment}")
        _load_modules(package)
    gc.collect()
    gc.freeze()
    return command


def _load_modules(package: Any) -> None:  # noqa: ANN401
    for module in pkgutil.walk_packages(
        package.__path__, f"{package.__name__}.", onerror=lambda _: None
    ):
        if module.name.startswith(LOADED) and not set(module.name.split(".")) & set(LARGE):
            with suppress(Exception):
                import_module(module.name)


@dataclass
class Sandbox:
    """The folder in which the commands of a scenario run, and what they find there."""

    folder: Path
    environment: Path
    checkout: str
    plots: str
    now: str
    command: Callable[[], None]

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def script(self) -> Path:
        return self.environment / "bin" / "spotctl"

    def furnish(
        self, scenario: dict[str, Any], request: dict[str, Any], states: list[Path]
    ) -> None:
        """Makes the folder, with the scenario's files."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for made in ("work", "bin", "tmp"):
            (self.folder / made).mkdir(parents=True)
        if scenario["home"]:
            shutil.copytree(request["homes"][scenario["home"]], self.folder / "home", symlinks=True)
        for state in states:
            # The log says where a run has its state, and a run that was resumed before has taken
            # that away.
            shutil.rmtree(STATES / state.name, ignore_errors=True)
            shutil.copytree(state, STATES / state.name, symlinks=True, ignore=_no_sockets)
        for name in scenario["folders"]:
            shutil.copytree(Path(request["base"], name), self.work / name)
        for name, text in scenario["files"].items():
            path = self.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for name, text in scenario["programs"].items():
            path = self.folder / "bin" / name
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755)

    def enter(self, step: Step, suffix: str) -> None:
        """Makes this process one that stands in the folder and prints to files."""
        sys.stdout.flush()
        sys.stderr.flush()
        for number, name in enumerate(("stdout", "stderr"), 1):
            to = os.open(self.folder / f"{name}{suffix}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(to, number)
            os.close(to)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.clear()
        os.environ.update({**self.variables(), **step["environment"]})
        time.tzset()
        os.chdir(self.work / step["folder"])

    def variables(self) -> dict[str, str]:
        nowhere = "http://127.0.0.1:9"
        return {
            "PATH": f"{self.folder / 'bin'}:{self.environment / 'bin'}:/usr/bin:/bin",
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder / "tmp"),
            "SPOTCTL_HOME": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "USER": "golden",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_GCE_CHECK": "true",
            "HTTP_PROXY": nowhere,
            "HTTPS_PROXY": nowhere,
            "NO_PROXY": "127.0.0.1,localhost",
            "SOURCE_DATE_EPOCH": "0",
            "MPLCONFIGDIR": self.plots,
            "MPLBACKEND": "agg",
        }

    def wait_for_run(self, name: str, clock: int, end: float) -> None:
        """Waits until a machine of a run has printed something, or until its training has reached
        this clock.
        """
        command, key = ("status", "clock") if clock else ("logs", "machine")
        words = [str(self.script), command, name, "--json"]
        while time.monotonic() < end:
            said = subprocess.run(
                words, env=self.variables(), capture_output=True, check=False, cwd=self.work
            )
            found = re.search(rf'"{key}": ?("|\d+)', said.stdout.decode())
            if said.returncode == 0 and found and (found[1] == '"' or int(found[1]) >= clock):
                return
            time.sleep(1)


def _recorded(scenario: dict[str, Any], sandbox: Sandbox) -> Iterator[dict[str, Any]]:
    """Runs the commands of a scenario, and ends what it began."""
    if scenario["together"]:
        yield from _run_together(scenario["steps"], sandbox)
        return
    begun: dict[str, int] = {}
    for step in scenario["steps"]:
        yield _run(step, sandbox, begun)
    if scenario["keep"]:
        # Others get the home as it is while these runs go on.
        for process in begun.values():
            _signal(process, signal.SIGSTOP)
        shutil.copytree(sandbox.folder / "home", sandbox.folder / "kept", symlinks=True)
        log = b"".join(
            path.read_bytes() for path in sorted(sandbox.folder.glob("kept/log.sqlite*"))
        )
        for name in sorted({found.decode() for found in _STATE.findall(log)}):
            if (state := STATES / name).is_dir():
                shutil.copytree(
                    state, sandbox.folder / "states" / name, symlinks=True, ignore=_no_sockets
                )
    for process in begun.values():
        _signal(process, signal.SIGKILL)


def _run(step: Step, sandbox: Sandbox, begun: dict[str, int]) -> dict[str, Any]:
    """Runs one command in a process of its own."""
    before = _stamps(sandbox.work)
    if step["kills"]:
        _signal(begun.pop(step["kills"]), signal.SIGKILL)
        return _answer(step, 0, sandbox, before)
    process = os.fork()
    if not process:
        _in_child(lambda: _execute(step, sandbox))
    if step["background"]:
        begun[step["background"]] = process
        sandbox.wait_for_run(step["background"], step["clock"], time.monotonic() + step["seconds"])
        return _answer(step, 0, sandbox, before)
    if step["pages"]:
        _browse(sandbox)
        with suppress(OSError):
            os.killpg(process, signal.SIGKILL)
    return _answer(step, _code(process, step["seconds"]), sandbox, before)


def _run_together(steps: list[Step], sandbox: Sandbox) -> Iterator[dict[str, Any]]:
    """Runs commands one after another in one process, each in a folder of its own."""
    codes = sandbox.folder / "codes"
    codes.touch()
    process = os.fork()
    if not process:
        _in_child(lambda: _execute_all(steps, sandbox, codes))
    _code(process, sum(step["seconds"] for step in steps))
    ended = [int(line) for line in codes.read_text(encoding="utf-8").split()]
    for number, step in enumerate(steps):
        code = ended[number] if number < len(ended) else "none: the process ended before"
        yield _answer(step, code, sandbox, {}, f".{number}")


def _in_child(act: Callable[[], int]) -> NoReturn:
    code = 70
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with this recorder
        code = act()
    # It is recorded, and no child returns to the caller.
    except BaseException as error:  # noqa: BLE001
        with suppress(BaseException):
            os.write(2, f"recorder: {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def _execute(step: Step, sandbox: Sandbox) -> int:
    sandbox.enter(step, ".background" if step["background"] else "")
    if step["script"]:
        os.chdir(sandbox.checkout)
        os.execv(sys.executable, [sys.executable, *step["words"]])
    if step["process"] or step["background"]:
        os.execv(sandbox.script, [str(sandbox.script), *step["words"]])
    if step["pages"]:
        assert isinstance(sys.stdout, io.TextIOWrapper)
        sys.stdout.reconfigure(line_buffering=True)
    code = _called(step, sandbox)
    # As at the end of a process: pools end before what atexit joins.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    return code


def _execute_all(steps: list[Step], sandbox: Sandbox, codes: Path) -> int:
    with codes.open("w", encoding="utf-8") as written:
        for number, step in enumerate(steps):
            sandbox.enter(step, f".{number}")
            print(_called(step, sandbox), file=written, flush=True)
    return 0


def _called(step: Step, sandbox: Sandbox) -> int:
    """The exit code of a command that this process itself runs."""
    global _stands_at  # noqa: PLW0603 - the clock of this process
    _stands_at = round(datetime.fromisoformat(sandbox.now).timestamp()) * 10**9
    sys.argv = [str(sandbox.script), *step["words"]]
    code = 0
    try:
        sandbox.command()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _answer(
    step: Step,
    code: int | str,
    sandbox: Sandbox,
    before: dict[str, tuple[int, int]],
    suffix: str = "",
) -> dict[str, Any]:
    """The record of a command: all that it printed, and the files that it changed or, without
    `before`, none.
    """
    printed = [sandbox.folder / f"{name}{suffix}" for name in ("stdout", "stderr")]
    out, err = (_text(path.read_bytes() if path.exists() else b"") for path in printed)
    for path in printed:
        path.unlink(missing_ok=True)
    if step["keep_output"]:
        (sandbox.work / step["keep_output"]).write_text(out, encoding="utf-8")
    after = _stamps(sandbox.work) if before else {}
    changed = sorted(name for name, stamp in after.items() if before.get(name) != stamp)
    return {
        **{name: step[name] for name in ("title", "exact", "expected", "process", "script")},
        "code": code,
        "out": out,
        "err": err,
        "files": {name: _text((sandbox.work / name).read_bytes()) for name in changed}
        | dict.fromkeys(sorted(before.keys() - after.keys())),
    }


def _signal(process: int, number: signal.Signals) -> None:
    """Sends a signal to a process and those of its session."""
    with suppress(OSError):
        os.killpg(process, number)
    if number == signal.SIGKILL:
        with suppress(OSError):
            os.waitpid(process, 0)


def _browse(sandbox: Sandbox) -> None:
    """Adds all pages of a server to what it has printed, which begins with its address."""
    printed = sandbox.folder / "stdout"
    printed.touch()
    for _ in range(6000):
        if found := re.search(r"http://[^\s\"]+", printed.read_text(encoding="utf-8")):
            break
        time.sleep(0.05)
    else:
        return
    first, seen, left = found.group(), dict[str, str](), [""]
    while left and len(seen) < MAX_PAGES:
        link = left.pop(0)
        try:
            with urlopen(urljoin(first, link), timeout=60) as answer:
                seen[link] = answer.read().decode()
        except OSError as error:
            seen[link] = f"{error}\n"
        links = sorted(set(re.findall(r"href=\"([^\"#:]+)\"", seen[link])))
        left += [one for one in links if one not in seen and one not in left and "//" not in one]
    token = urlsplit(first).path.strip("/")
    text = "".join(f"page {link}\n{page}\n" for link, page in seen.items())
    printed.write_text(
        (printed.read_text(encoding="utf-8") + text).replace(token or "\0", "TOKEN"),
        encoding="utf-8",
    )


def _code(process: int, seconds: float) -> int | str:
    end, pause = time.monotonic() + seconds, 0.001
    while time.monotonic() < end:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            with suppress(OSError):
                os.killpg(process, signal.SIGKILL)
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    _signal(process, signal.SIGKILL)
    return KILLED.format(seconds)


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts:
            stat = path.stat()
            found[path.relative_to(folder).as_posix()] = (stat.st_mtime_ns, stat.st_size)
    return found


def _text(content: bytes) -> str:
    with suppress(UnicodeDecodeError):
        text = content.decode()
        if len(text) <= LONGEST_TEXT:
            return text
    return f"{len(content)} bytes with SHA-256 {hashlib.sha256(content).hexdigest()}\n"


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
