"""The packages that a job's programs import: which file of its folder names them, and what that
file says.

A command's key `environment` names the file. Left out, a command without a setup and without a
container has the file that its folder holds, if it holds one.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from spotctl.agent.container.named_packages import NamedPackages
from spotctl.files.job.conversions import IMAGE
from spotctl.files.job.data_places import checkpoint_place
from spotctl.files.job.programs import Command
from spotctl.files.job.spec import JobSpec
from spotctl.home.errors import BadRequest

NONE, PYTHON = "none", "python"
"""Words in place of a file: nothing, or an interpreter in which the setup installs."""

FILES = ("uv.lock", "pyproject.toml", "requirements.txt", "environment.yml", "environment.yaml")
"""The files that a folder may hold, the one that says most first."""

_INTERPRETER = re.compile(r"python *(?P<version>3(\.\d+){0,2})?")
_INCLUDED = re.compile(r"(-r|--requirement|-c|--constraint)[ =]*(?P<path>\S.*)")
_LOCAL = re.compile(r"(-e|--editable)\b|\.{0,2}/|\.$|file:|[\w.-]+(\[.*\])? *@ *file:")
_ADDRESS = re.compile(r"(git|hg|svn|bzr)\+|https?://")
_EGG = re.compile(r"#egg=(?P<name>[\w.-]+)")
_VERSION = re.compile(r"\d+(\.\d+)*")
_DEFAULTS = {"defaults": "main"}
"""conda's own name for its channels, which rattler does not know."""


@dataclass(frozen=True, slots=True)
class _Said:
    """The content of a file. `requirements` are those that pip knows; `is_local`: some are folders of
    this computer. `others` are addresses, of which it is unknown whether they are installed here."""

    content: bytes
    requirements: Sequence[Requirement] = ()
    python: str = ""
    conda: Mapping[str, Sequence[str]] | None = None
    is_local: bool = False
    others: Sequence[str] = ()


def with_image(spec: JobSpec) -> JobSpec:
    """The job with the image that its environment names as its container."""
    named = spec.environment
    if not isinstance(named, str) or not named.startswith(IMAGE):
        return spec
    container = named.removeprefix(IMAGE).strip()
    return replace(spec, environment=None, image=replace(spec.image, container=container))


def packages_of(spec: JobSpec) -> NamedPackages | None:
    """The packages of a job's environment; None: its programs run with what a machine has.

    BadRequest: the file is missing, or says what no tool understands."""
    named = spec.environment
    if named == NONE or (named is None and not isinstance(spec.program, Command)):
        return None
    if not isinstance(spec.program, Command):
        raise BadRequest("is for commands: what a trainer imports is installed by setup; remove it")
    if isinstance(named, NamedPackages):
        return named
    if named is None:
        if spec.setup is not None or spec.image.container is not None:
            return None
        file = file_in(spec.workdir)
        return None if file is None else _of_file(spec, file, is_named=False)
    if interpreter := _INTERPRETER.fullmatch(named):
        version = interpreter["version"] or ""
        return NamedPackages(PYTHON, version, python=version)
    return _of_file(spec, named, is_named=True)


def file_in(folder: Path) -> str | None:
    """The file of a folder that names packages: a project's file need not, and one that no tool
    reads is for something else."""
    for name in FILES:
        if (folder / name).is_file():
            with suppress(BadRequest):
                _, said = _read(folder / name, folder)
                if name != "pyproject.toml" or said.requirements:
                    return name
    return None


def _of_file(spec: JobSpec, name: str, *, is_named: bool) -> NamedPackages | None:
    path = spec.workdir / name
    if not path.is_file():
        raise BadRequest(
            f"there is no file {name} in {spec.workdir}; expected requirements.txt, uv.lock, "
            "pyproject.toml, environment.yml, python, none or docker:IMAGE"
        )
    if not path.resolve().is_relative_to(spec.workdir.resolve()):
        raise BadRequest(f"{name} is outside of {spec.workdir}, which is all that machines get")
    kind, said = _read(path, spec.workdir)
    if spec.is_local and not missing_here(spec, name):
        return None

    # As uv and pyenv write the version that a folder asks for.
    pinned = path.with_name(".python-version")
    asked = _text(pinned).split() if pinned.is_file() else []
    python = said.python or next(filter(_VERSION.fullmatch, asked), "")
    # What is installed from a folder is that folder's, as it is now.
    digest = hashlib.sha256(said.content)
    for code in sorted(spec.workdir.rglob("*.py")) if said.is_local else ():
        digest.update(f"{code} {code.stat().st_mtime_ns}".encode())
    return NamedPackages(
        kind,
        digest.hexdigest(),
        name,
        python,
        {} if said.conda is None else said.conda,
        "" if said.is_local else _store_of(spec),
        optional=spec.is_local and not is_named,
    )


def _store_of(spec: JobSpec) -> str:
    """Where the job's machines keep what they have built; empty without a bucket."""
    place = checkpoint_place(spec) or ""
    if "://" not in place:
        outputs = (path for path in spec.outputs.values() if "://" in path)
        place = next((f"{path.rstrip('/')}/spotctl" for path in outputs), "")
    return f"{place}/environments" if place else ""


def missing_here(spec: JobSpec, file: str) -> list[str]:
    """The packages of a file that this computer's own Python lacks: without any, it
    runs the job as it is."""
    _, said = _read(spec.workdir / file, spec.workdir)
    missing = list(said.others)
    for requirement in said.requirements:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = importlib.metadata.version(canonicalize_name(requirement.name))
        except importlib.metadata.PackageNotFoundError:
            missing.append(str(requirement))
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            missing.append(str(requirement))
    return [*missing, *(said.conda or {}).get("specs", ())]


# -- what files say --------------------------------------------------------------------------------


def _read(path: Path, folder: Path) -> tuple[str, _Said]:
    """The kind of a file, and what it says with the files of the job's folder."""
    for kind, pattern, read in _KINDS:
        if pattern.fullmatch(path.name):
            return kind, read(path, folder)
    raise BadRequest(
        f"{path.name} is no file of packages; expected requirements.txt, uv.lock, "
        "pyproject.toml or environment.yml"
    )


def _requirements(path: Path, folder: Path) -> _Said:
    """A file as pip reads it, with the files that it includes."""
    requirements, others, is_local, content = list[Requirement](), list[str](), False, b""
    for file, number, line in _lines(path, folder, ()):
        content += f"{line}\n".encode()
        if _ADDRESS.match(line):
            # Of an address, only its egg names the package.
            egg = _EGG.search(line)
            others += [] if egg else [line]
            requirements += [Requirement(egg["name"])] if egg else []
        elif _LOCAL.match(line):
            is_local = True
        elif not line.startswith("-"):
            requirements.append(_requirement(line, f"{file.name}, line {number}"))
    return _Said(content, requirements, is_local=is_local, others=others)


def _lines(path: Path, folder: Path, above: tuple[Path, ...]) -> Iterator[tuple[Path, int, str]]:
    """The lines that say something, also those of included files."""
    if path in above:
        raise BadRequest(f"{path.name} includes itself; remove the line")
    number, joined = 0, ""
    for number, text in enumerate(_text(path).splitlines(), 1):
        line = joined + re.sub(r"(^|\s)#.*", "", text).strip()
        if line.endswith("\\"):
            joined = line[:-1]
            continue
        joined = ""
        included = _INCLUDED.fullmatch(line)
        if included is None:
            if line:
                yield path, number, re.sub(r"\s+--hash[= ]\S+", "", line)
            continue
        other = path.parent / included["path"].strip("\"'")
        if not other.is_file():
            raise BadRequest(f"{path.name}, line {number}: there is no file {included['path']}")
        if not other.resolve().is_relative_to(folder.resolve()):
            why = f"{included['path']} is outside of {folder}, which is all that machines get"
            raise BadRequest(f"{path.name}, line {number}: {why}")
        is_constraint = line.startswith(("-c", "--constraint"))
        for file, at, inner in _lines(other, folder, (*above, path)):
            yield file, at, f"-c {inner}" if is_constraint else inner


def _requirement(text: str, where: str) -> Requirement:
    try:
        return Requirement(re.sub(r"\s+-.*", "", text))
    except InvalidRequirement as error:
        why = str(error).splitlines()[0]
        raise BadRequest(f"{where}: {text!r} names no package: {why}") from None


def _project(path: Path, folder: Path) -> _Said:  # noqa: ARG001 - a reader
    """A project's dependencies, and the versions of Python that it runs on."""
    text = _text(path)
    try:
        project = dict(tomllib.loads(text).get("project", {}))
        python = str(project.get("requires-python", ""))
        SpecifierSet(python)
        listed = [str(each) for each in project.get("dependencies", ())]
    except (tomllib.TOMLDecodeError, InvalidSpecifier, TypeError, ValueError) as error:
        raise BadRequest(f"{path.name}: cannot be read: {error}") from None
    requirements = [_requirement(each, f"{path.name}, dependencies") for each in listed]
    return _Said(text.encode(), requirements, python)


def _lock(path: Path, folder: Path) -> _Said:
    """uv's lock, and the project that it is of."""
    project = path.with_name("pyproject.toml")
    if not project.is_file():
        raise BadRequest(f"{path.name}: is of a project, and there is no pyproject.toml next to it")
    said, text = _project(project, folder), _text(path)
    try:
        packages = list(tomllib.loads(text).get("package", ()))
        sources = [dict(package.get("source", {})) for package in packages]
    except (tomllib.TOMLDecodeError, AttributeError, TypeError, ValueError) as error:
        raise BadRequest(f"{path.name}: cannot be read: {error}; uv lock writes it again") from None
    places = [source.get("directory", source.get("editable", ".")) for source in sources]
    is_local = any(place != "." for place in places)
    return replace(said, content=said.content + text.encode(), is_local=is_local)


def _conda(path: Path, folder: Path) -> _Said:  # noqa: ARG001 - a reader
    """An environment of conda, and what pip installs in it."""
    text = _text(path)
    try:
        content = yaml.safe_load(text)
        listed = list(content["dependencies"])
        channels = [str(each) for each in content.get("channels") or ("conda-forge",)]
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        why = " ".join(str(error).split())
        raise BadRequest(f"{path.name}: is no environment of conda: {why}") from None

    specs = [each for each in listed if isinstance(each, str)]
    pip = [str(line) for each in listed if isinstance(each, dict) for line in each.get("pip") or ()]
    others = [each for each in listed if not isinstance(each, str) and set(each) != {"pip"}]
    if others or not specs:
        wrong = others[0] if others else "nothing"
        raise BadRequest(f"{path.name}: dependencies: {wrong!r} is no package and no pip: list")
    words = [word for line in pip for word in shlex.split(line, comments=True)]
    return _Said(
        text.encode(),
        conda={
            "channels": [_DEFAULTS.get(each, each) for each in channels if each != "nodefaults"],
            "specs": specs,
            "pip": words,
        },
        is_local=any(_LOCAL.match(line) for line in pip),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path.name}: cannot be read: {error}") from None


_KINDS = (
    ("lock", re.compile(r"(.*/)?uv\.lock"), _lock),
    ("pyproject", re.compile(r".*\.toml"), _project),
    ("requirements", re.compile(r".*\.(txt|in)"), _requirements),
    ("conda", re.compile(r".*\.ya?ml"), _conda),
)
"""The kinds of files, by their names, and how each is read."""
