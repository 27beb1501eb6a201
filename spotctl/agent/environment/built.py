"""Environments: built once for what a job names and for the machine's platform, and kept.

uv builds them, and rattler where a file names conda's packages. A machine keeps them in its cache.
Where the job has a bucket, its machines also keep them there, for the next one. They are next to
the job's checkpoints: only machines that could change what the others load can change what they run.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from agileml.errors import Unrecoverable
from agileml.runtime.blob_store import PIECE_BYTES
from agileml.runtime.ground import locked, refilled
from spotctl.agent.container.named_packages import NamedPackages
from spotctl.agent.data.locations import store_at
from spotctl.agent.errors import CannotBuild

UV = "uv"
_BUILT = "built"
"""The file that says that all before it was written."""
_LEFT_OUT = "left-out"

_TORCH = "UV_TORCH_BACKEND"
_FROM_PIP = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
}
"""Variables that pip reads, and uv reads under another name."""

_OWN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX")
_CODE = Path(__file__).parents[3]
"""The folder with our packages, which a script may import: on a rented machine alone there, and on
the PYTHONPATH."""
_CONDA = Path(__file__).with_name("conda.py")

Say = Callable[[str], object]


class BuiltEnvironment:
    """The environment of a job below a machine's cache, for payloads in `folder`."""

    def __init__(self, named: NamedPackages, cache: Path, folder: Path) -> None:
        self._named, self._folder = named, folder
        self._place = cache / f"environment-{named.key.replace('/', '-')}"
        self._prefix, self._ours = (
            self._place / "env",
            self._place.with_name(f"{self._place.name}-code"),
        )

    def variables(self, given: Mapping[str, str]) -> dict[str, str]:
        """The variables by which programs find it; none if it is not there."""
        if not (self._place / _BUILT).exists():
            return {}
        variables = {"PATH": f"{self._prefix / 'bin'}:{given.get('PATH', os.defpath)}"}
        variables["CONDA_PREFIX" if self._named.conda else "VIRTUAL_ENV"] = str(self._prefix)
        paths = given.get("PYTHONPATH", "").split(":")
        # A project's own modules, without building it.
        if (self._folder / "src").is_dir() and self._named.kind in ("pyproject", "lock"):
            paths.insert(0, str(self._folder / "src"))
        if str(_CODE) not in paths:
            paths.append(str(self._ours))
        variables["PYTHONPATH"] = ":".join(filter(None, paths))
        return variables

    def prepare(self, given: Mapping[str, str], say: Say, *, again: bool = False) -> None:
        """Builds it, or gets it from the job's bucket, unless it is here, or could not be built and
        is not tried `again`. CannotBuild."""
        named = self._named
        with locked(self._place.with_suffix(".lock")):
            if (self._ours / "spotctl").resolve() != (_CODE / "spotctl").resolve():
                with refilled(self._ours) as new:
                    for package in ("agileml", "spotctl"):
                        (new / package).symlink_to(_CODE / package)
            if (self._place / _BUILT).exists():
                # The time of the last use, by which `spotctl gc` finds those that no job needs.
                os.utime(self._place)
                return
            if (self._place / _LEFT_OUT).exists() and not again:
                return
            began = time.monotonic()
            is_restored = self._restore(say)
            if not is_restored:
                shutil.rmtree(self._place, ignore_errors=True)
                self._place.mkdir(parents=True)
                say(f"environment: builds {named.file or named.kind} ...")
                try:
                    build = _Build(named, self._place, self._prefix, self._folder, given, say)
                    KINDS[named.kind](build)
                except CannotBuild as error:
                    if not named.optional:
                        raise
                    say(f"environment: left out: {error}")
                    # The run's machines on this computer do not try it again.
                    (self._place / _LEFT_OUT).touch()
                    return
            (self._place / _BUILT).touch()
            how = f"from {named.store}" if is_restored else "built"
            say(f"environment: {how} in {time.monotonic() - began:.1f} s")

    def keep(self, say: Say) -> None:
        """Stores it for the job's next machine, and drops earlier ones of this platform."""
        kept = f"{self._named.key}.tar"
        if not self._named.store or not (self._place / _BUILT).exists():
            return
        try:
            store = store_at(self._named.store)
            others = store.list(f"{self._named.key.partition('/')[0]}/")
            if kept not in others:
                store.put(kept, _packed(self._place))
                for other in others:
                    store.delete(other)
        except OSError as error:
            say(f"environment: cannot be kept at {self._named.store}: {error}")

    def _restore(self, say: Say) -> bool:
        """Whether another machine has kept it, and all of it has arrived."""
        if not self._named.store:
            return False
        kept, above = f"{self._named.key}.tar", self._place.parent
        shutil.rmtree(self._place, ignore_errors=True)
        try:
            store = store_at(self._named.store)
            if not store.list(kept):
                return False
            words = ["tar", "-xf", "-", "-C", str(above)]
            with subprocess.Popen(words, stdin=subprocess.PIPE) as tar:
                assert tar.stdin is not None
                for piece in store.get(kept):
                    tar.stdin.write(piece)
            if tar.returncode == 0 and self._prefix.is_dir():
                return True
            why = f"tar ended with status {tar.returncode}"
        except (OSError, Unrecoverable) as error:
            why = str(error)
        say(f"environment: none can be read at {self._named.store}: {why}")
        return False


def _packed(folder: Path) -> Iterator[bytes]:
    """An archive of a folder, in pieces. OSError: a part of it cannot be read."""
    # What was unpacked in part shall not look whole.
    whole = f"--exclude={folder.name}/{_BUILT}"
    words = ["tar", "-cf", "-", "-C", str(folder.parent), whole, folder.name]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as tar:
        assert tar.stdout is not None
        while piece := tar.stdout.read(PIECE_BYTES):
            yield piece
    if tar.returncode != 0:
        raise OSError(f"tar ended with status {tar.returncode}")


@dataclass(frozen=True, slots=True)
class _Build:
    """One building of an environment."""

    named: NamedPackages
    place: Path
    prefix: Path
    folder: Path
    given: Mapping[str, str]
    say: Say

    def interpreter(self) -> None:
        """An interpreter. Without a file, a job's setup installs in it, with pip or uv."""
        is_for_setup = not self.named.file
        python = f"--python={self.named.python or sys.executable}"
        self._uv("venv", *(["--seed"] if is_for_setup else []), python, self.prefix)
        if is_for_setup:
            shutil.copy2(found_uv(self.given, self.place.parent), self.prefix / "bin" / UV)

    def requirements(self) -> None:
        self.interpreter()
        self._install("-r", self.folder / self.named.file)

    def lock(self) -> None:
        # What the lock names, and not the project itself: its folder is another one each time.
        python = f"--python={self.named.python or sys.executable}"
        self._uv("sync", "--frozen", "--no-install-project", python)

    def conda(self) -> None:
        """Solved and installed by rattler, which uv brings; then pip's part."""
        words = json.dumps({**self.named.conda, "prefix": str(self.prefix)})
        if find_spec("rattler") is None:
            tool = ("--no-project", "--isolated", "--with=py-rattler", f"--python={sys.executable}")
            self._uv("run", *tool, "python", "-I", _CONDA, words)
        else:
            self._ran([sys.executable, "-I", str(_CONDA), words])
        if pip := self.named.conda.get("pip", ()):
            self._install(*pip)

    def _install(self, *words: object) -> None:
        """Torch comes in the build for the driver that is here, if its index answers."""
        install = ("pip", "install", f"--python={self.prefix}", *words)
        if _TORCH in self.given:
            self._uv(*install)
            return
        try:
            self._uv(*install, **{_TORCH: "auto"})
        except CannotBuild:
            self._uv(*install)

    def _uv(self, *words: object, **more: str) -> None:
        variables = {name: value for name, value in self.given.items() if name not in _OWN}
        for theirs, ours in _FROM_PIP.items():
            if theirs in variables:
                variables.setdefault(ours, variables[theirs])
        variables |= {
            "UV_NO_PROGRESS": "1",
            "UV_PROJECT_ENVIRONMENT": str(self.prefix),
            # Whatever it fetches is kept with the environment.
            "UV_PYTHON_INSTALL_DIR": str(self.place / "pythons"),
            **more,
        }
        uv = found_uv(self.given, self.place.parent)
        self._ran([uv, *map(str, words)], variables)

    def _ran(self, line: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
        """Runs a tool. CannotBuild: it says why."""
        lines = list[str]()
        with subprocess.Popen(
            line,
            cwd=self.folder,
            env=self.given if variables is None else variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as tool:
            assert tool.stderr is not None
            for text in tool.stderr:
                if _PROGRESS.match(text.lstrip()):
                    self.say(f"environment: {text.strip()}")
                elif not text.startswith(_PLACE):
                    lines.append(text)
        if tool.returncode != 0:
            words = " ".join("".join(lines).split()) or f"status {tool.returncode}"
            raise CannotBuild(f"{self.named.file or self.named.kind}: {words[-_LONGEST:]}")


_PROGRESS = re.compile(r"(Downloading|Building|Resolved|Installed) ")
"""Lines of uv that show how a build goes on."""
_PLACE = "Using "
"""A line of uv that begins so says where it installs, and nothing of a failure."""
_LONGEST = 600

KINDS: Mapping[str, Callable[[_Build], None]] = {
    "python": _Build.interpreter,
    "requirements": _Build.requirements,
    "pyproject": _Build.requirements,
    "lock": _Build.lock,
    "conda": _Build.conda,
}
"""How each kind of file becomes an environment."""


def installed_uv(given: Mapping[str, str]) -> str | None:
    """uv on the PATH, or next to this Python."""
    return shutil.which(UV, path=f"{given.get('PATH', '')}:{Path(sys.executable).parent}")


def found_uv(given: Mapping[str, str], cache: Path | None = None) -> str:
    """uv, as the launcher brought it or as it is installed; else pip fetches it to the cache.

    CannotBuild: pip does not."""
    for folder in sys.path:
        brought = Path(folder, "bin", UV)
        if brought.is_file():
            # Archives of packages keep no modes.
            brought.chmod(0o755)
            return str(brought)
    installed = installed_uv(given)
    if installed is not None or cache is None:
        return installed or UV

    own = cache / UV / "bin" / UV
    if not own.exists():
        words = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            f"--target={own.parents[1]}",
            UV,
        ]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
            raise CannotBuild(
                f"environments need uv, which pip does not bring ({said}); install uv"
            )
    return str(own)
