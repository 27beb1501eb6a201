"""Folders as they lie in an object store: described by their content on one computer, and fetched
by machines.

In a bucket, `spotctl-data/files/SHA256` is the content of a file, and `spotctl-data/sets/SHA256` a
list of the files, folders and links of one folder, or of a single file. Both are named by the
digest of what they contain, so that what is stored or fetched once serves every job that needs the
same again, and nothing else is taken for it.

A bucket near machines in another region may have a copy. `spotctl-data/whole/SHA256` is written
when all of it has arrived there, and machines read a copy only then.
"""

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from threading import Event
from typing import Any

from agileml.runtime.ground import move
from spotctl.agent.data.stores import Bucket, NoSuchObject, StoreRefused
from spotctl.agent.errors import TransferFailed

FOLDER = "spotctl-data"
FILES, SETS, WHOLE = f"{FOLDER}/files/", f"{FOLDER}/sets/", f"{FOLDER}/whole/"
CONNECTIONS = 8
"""Files that are moved at the same time: a small file waits for its answer much longer than it is
on its way."""

_LOCATION = re.compile(rf"(?P<bucket>\w+://[^/]+)/{SETS}(?P<digest>[0-9a-f]{{64}})/?")
_KEY_DIGITS = 24
_PERMISSIONS = 0o777
_OWNER_READS, _OWNER_ENTERS = 0o400, 0o700

DigestOf = Callable[[str, Path, os.stat_result], str]
"""The digest of a file, from its name in the data set, its path and its status."""


@dataclass(frozen=True, slots=True)
class SetLocation:
    """A bucket, such as s3://bucket, and the digest of a data set in it."""

    bucket: str
    digest: str

    @classmethod
    def parse(cls, text: str) -> "SetLocation | None":
        parts = _LOCATION.fullmatch(text)
        return None if parts is None else cls(parts["bucket"], parts["digest"])

    def __str__(self) -> str:
        return f"{self.bucket}/{SETS}{self.digest}"


@dataclass(frozen=True, slots=True)
class SetFile:
    """A file: its size, the SHA-256 of its content, and its permissions."""

    size: int
    digest: str
    mode: int


@dataclass(frozen=True, slots=True)
class DataSet:
    """A folder or a file. All paths begin with its name. `links` are symbolic links, with their
    targets.
    """

    name: str
    files: Mapping[str, SetFile] = field(default_factory=dict)
    folders: Mapping[str, int] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)

    def content(self) -> bytes:
        """The list as it is stored; names in any bytes are kept by way of escapes."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content()).hexdigest()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files.values())

    @property
    def contents(self) -> dict[str, int]:
        """The sizes of the different contents, by digest."""
        return {file.digest: file.size for file in self.files.values()}

    @classmethod
    def of(cls, content: bytes) -> "DataSet":
        """The inverse of `content`. StoreRefused: this is no list of files, or one that leaves its
        folder.
        """
        try:
            values: dict[str, Any] = json.loads(content)
            files = {str(path): SetFile(**file) for path, file in values["files"].items()}
            folders = {str(path): int(mode) for path, mode in values["folders"].items()}
            links = {str(path): str(target) for path, target in values["links"].items()}
            listed = cls(str(values["name"]), files, folders, links)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StoreRefused(f"its list of files cannot be read ({error})") from None

        targets = (
            os.path.normpath(PurePosixPath(path).parent / target) for path, target in links.items()
        )
        name = listed.name
        is_name = name not in ("", ".", "..") and "/" not in name
        for path in (*files, *folders, *links, *targets):
            parts = PurePosixPath(path).parts
            if not is_name or parts[:1] != (name,) or ".." in parts:
                raise StoreRefused(f"its list of files names {path!r}, outside of its folder")

        return listed


def fetch_set(bucket: Bucket, digest: str, cache: Path) -> Path:
    """The path of a data set on this machine, fetched unless it is complete here. The caller holds
    the cache's lock.

    Contents that have arrived whole are kept if the fetch ends early, and the next one goes on from
    there. StoreRefused: the store does not have it. OSError: there is no room for it.
    """
    kept, work = kept_set(cache, digest), cache / f".{digest[:_KEY_DIGITS]}"
    if not kept.exists():
        listed = DataSet.of(set_content(bucket, digest))
        work.mkdir(parents=True, exist_ok=True)
        missing: dict[str, int] = {}
        for name, size in listed.contents.items():
            content = work / name
            if not content.is_file() or content.stat().st_size != size:
                missing[name] = size

        # Files of the same content are copies of one.
        copied = listed.size - sum(listed.contents.values())
        size, free = sum(missing.values()) + copied, shutil.disk_usage(cache).free
        if size > free:
            raise OSError(
                f"needs {gigabytes(size)} more on the disk, which has {gigabytes(free)} free: set "
                "a larger one, such as image: {disk_gib: 200}"
            )
        has_failed = Event()
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            fetches = [pool.submit(_fetch_file, bucket, name, work, has_failed) for name in missing]
            try:
                for fetch in as_completed(fetches):
                    fetch.result()
            except BaseException:
                has_failed.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

        tree = work / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        contents = {path: work / file.digest for path, file in listed.files.items()}
        build(listed, contents, tree, are_taken=True)
        move(tree, kept)
        shutil.rmtree(work, ignore_errors=True)

    (path,) = kept.iterdir()
    return path


def kept_set(cache: Path, digest: str) -> Path:
    """The folder of a data set on this machine, which exists once the data set is complete
    there."""
    return cache / digest[:_KEY_DIGITS]


def gigabytes(size: int) -> str:
    """A size in bytes as text, in the largest unit that it reaches: `1.2 GB`, `3.4 MB`, `512
    bytes`."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"


def read_whole(bucket: Bucket, key: str) -> bytes:
    """The content of a small object."""
    return b"".join(bucket.get(key))


def set_content(bucket: Bucket, digest: str) -> bytes:
    """The list of a data set as it is stored. StoreRefused: the store does not have it, or it is
    damaged.
    """
    content = read_whole(bucket, SETS + digest)
    if hashlib.sha256(content).hexdigest() != digest:
        raise StoreRefused("its list of files is damaged: launch the job again")
    return content


def _fetch_file(bucket: Bucket, digest: str, folder: Path, has_failed: Event) -> None:
    """Fetches a file under a name that does not count, and renames it once it has proved to be
    whole.
    """
    part, hashed = folder / f"{digest}.part", hashlib.sha256()
    try:
        with part.open("wb") as file:
            for piece in bucket.get(FILES + digest):
                if has_failed.is_set():
                    return
                hashed.update(piece)
                file.write(piece)
    except NoSuchObject as error:
        raise StoreRefused(
            f"{error}: it was removed after the launch; launch the job again"
        ) from error

    if hashed.hexdigest() != digest:
        raise StoreRefused(
            f"{FILES}{digest} is damaged: remove it from the bucket, and launch the job again"
        )

    move(part, folder / digest)


def build(
    listed: DataSet, contents: Mapping[str, Path], tree: Path, *, are_taken: bool = False
) -> None:
    """Makes a folder with the parts of a data set below `tree`, from where the content of each file
    is.

    With `are_taken`, contents become the files themselves. A second file of the same content is
    one of its own: a program that writes to one does not change the other.
    """
    tree.mkdir(exist_ok=True)
    for path in listed.folders:
        (tree / path).mkdir(parents=True, exist_ok=True)

    used = set[Path]()
    for path, file in listed.files.items():
        content, target = contents[path], tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if are_taken and content not in used:
            os.link(content, target)
        else:
            shutil.copyfile(content, target)
        used.add(content)
        target.chmod(file.mode | _OWNER_READS)

    for path, link_target in listed.links.items():
        (tree / path).symlink_to(link_target)
    for path, mode in sorted(listed.folders.items(), reverse=True):
        (tree / path).chmod(mode | _OWNER_ENTERS)


def describe(source: Path, digest: DigestOf) -> DataSet:
    """The parts of a folder or a file. TransferFailed: one of them cannot be read.
    FileNotFoundError: one went away.
    """
    files = dict[str, SetFile]()
    folders = dict[str, int]()
    links = dict[str, str]()
    try:
        for name, path, content in _parts(source, source.name, source):
            if isinstance(content, str):
                links[name] = content
                continue

            mode = content.st_mode & _PERMISSIONS
            if stat.S_ISDIR(content.st_mode):
                folders[name] = mode
            else:
                files[name] = SetFile(content.st_size, digest(name, path, content), mode)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TransferFailed(
            f"data {source}: {error.filename}: cannot be read: {error.strerror}"
        ) from error

    return DataSet(source.name, files, folders, links)


def _parts(
    source: Path, name: str, path: Path, within: tuple[str, ...] = ()
) -> Iterator[tuple[str, Path, os.stat_result | str]]:
    """The part of a folder at a path, and those in it: the name of each in the data set, its path,
    and its status, or the target if it is a link to a place inside. For any other link, its target
    is taken.

    `within` are the real paths of the folders that the part is in.
    """
    if path.is_symlink() and within:
        target, here = Path(os.path.realpath(path)), Path(os.path.realpath(path.parent))
        if target.is_relative_to(within[0]) and here.is_relative_to(within[0]):
            yield name, path, os.path.relpath(target, here)
            return

    refused = f"data {source}: {path}"
    try:
        status = path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            raise TransferFailed(
                f"{refused} is a link to {path.readlink()}, which does not exist"
            ) from None
        raise

    if stat.S_ISDIR(status.st_mode):
        real = os.path.realpath(path)
        if real in within:
            raise TransferFailed(
                f"{refused} leads back to {real}, in which it is itself; remove the link"
            )
        yield name, path, status
        for part in sorted(path.iterdir()):
            yield from _parts(source, f"{name}/{part.name}", part, (*within, real))
    elif stat.S_ISREG(status.st_mode) and not os.access(path, os.R_OK):
        raise TransferFailed(f"{refused} cannot be read; its owner must allow it")
    elif stat.S_ISREG(status.st_mode):
        yield name, path, status
    else:
        raise TransferFailed(f"{refused} is no file, folder or link; move it elsewhere")
