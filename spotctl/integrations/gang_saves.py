"""The saves of a gang: its settings, the stores on its machines, and complete saves with their
files.
"""

from __future__ import annotations

import pickle
import re
import shutil
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agileml.errors import AgileMLError, BadInput, Unrecoverable
from agileml.protocol.actions import CONTROLLER
from agileml.runtime.blob_store import BlobStore, FileBlobStore, fetch_file, file_pieces, is_name
from agileml.runtime.folders import own_folder
from agileml.runtime.ground import move, refilled
from agileml.runtime.mailbox import Envelope, Mailbox
from agileml.runtime.remote_blobs import BLOB_MESSAGES, BlobRequest, BlobServer, LinkedBlobStore
from agileml.runtime.rendezvous import FolderRendezvous, LinkedRendezvous
from agileml.transport import Lost, TcpAddress, parse_address
from spotctl.agent.checkpoints.local import CHECKPOINT_VARIABLE

_PEERS, _MACHINE, _FOLDER = "SPOTCTL_GANG_PEERS", "SPOTCTL_GANG_MACHINE", "SPOTCTL_GANG_FOLDER"
SECRET_VARIABLE = "GANG_SECRET"  # noqa: S105 - the name of a variable
"""Belongs under `secrets:` in the job file, so that spotctl passes the secret on and never stores
it."""


@dataclass(frozen=True, slots=True)
class GangSettings:
    """The addresses of all machines' stores, the number of this machine, and its folder for saves.

    `checkpoints` is the folder that spotctl copies to the job's checkpoint place; None if there is
    none.
    """

    peers: tuple[str, ...]
    machine: int
    folder: Path
    secret: bytes = field(repr=False)
    checkpoints: Path | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> GangSettings:
        """The settings in an environment. BadInput: `python -m spotctl.integrations.gang` did not
        start the process.
        """
        if _PEERS not in environment:
            raise BadInput(
                "start the script with python -m spotctl.integrations.gang SCRIPT (in place of "
                "torchrun)"
            )

        checkpoints = environment.get(CHECKPOINT_VARIABLE)
        return cls(
            tuple(environment[_PEERS].split(",")),
            int(environment[_MACHINE]),
            Path(environment[_FOLDER]),
            secret_of(environment),
            Path(checkpoints) if checkpoints else None,
        )

    def variables(self) -> dict[str, str]:
        """The inverse of `of`, in addition to the environment with the secret."""
        return {
            _PEERS: ",".join(self.peers),
            _MACHINE: str(self.machine),
            _FOLDER: str(self.folder),
        }


def secret_of(environment: Mapping[str, str]) -> bytes:
    """The gang's secret. BadInput: its variable is not set."""
    if not (secret := environment.get(SECRET_VARIABLE)):
        raise BadInput(
            f"${SECRET_VARIABLE} is not set: export {SECRET_VARIABLE}=$(openssl rand -hex 32), and "
            "name it under secrets: in the job file"
        )
    return secret.encode()


VERSION = "gang-1"
PATIENCE_SECONDS = 2.0
"""The time to reach a machine of the gang; a machine that has not answered by then counts as
gone."""

_TURN_SECONDS = 0.5


class PeerServer:
    """Serves this machine's store to the others, in a thread of its own."""

    def __init__(self, store: BlobStore, secret: bytes, listen: TcpAddress) -> None:
        """Starts serving. Raises BadAddress if the address cannot be used."""
        with ExitStack() as stack:
            # The socket in this folder, for processes of this computer, is not used.
            rendezvous = FolderRendezvous(
                stack.enter_context(own_folder()), secret, listen, VERSION
            )
            self._mailbox = Mailbox(rendezvous, CONTROLLER, messages=BLOB_MESSAGES)
            stack.callback(self._mailbox.close)
            self.address = parse_address(self._mailbox.open()[-1])
            self._opened = stack.pop_all()

        self._blobs = BlobServer(store, self._mailbox.wake)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peer store", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread and all links."""
        self._closing.set()
        self._mailbox.wake()
        self._thread.join()
        self._opened.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            for event in self._mailbox.receive(_TURN_SECONDS):
                if isinstance(event, Envelope):
                    deletes = (
                        isinstance(event.message, BlobRequest) and event.message.kind == "delete"
                    )
                    if broken_rule := self._blobs.handle(
                        event.sender, event.message, allowed=not deletes
                    ):
                        self._mailbox.shut_out(event.sender, broken_rule)
                elif isinstance(event, Lost):
                    self._blobs.drop(event.peer)
            for client, answer in self._blobs.answers():
                self._mailbox.send(client, answer)


class Peers:
    """The stores of all machines of a gang. Stores that do not answer are skipped."""

    def __init__(
        self, addresses: Sequence[TcpAddress], own: int, secret: bytes, folder: Path
    ) -> None:
        name = f"machine-{own}"
        reached = [
            LinkedRendezvous(address, secret, VERSION, PATIENCE_SECONDS, folder, node=name)
            for address in addresses
        ]
        self._links = [LinkedBlobStore(each) for each in reached]
        self._stores: list[BlobStore] = [*self._links]
        self._stores[own] = FileBlobStore(folder)
        self.addresses, self._own, self._folder = addresses, own, folder
        self.scratch = folder.parent / "scratch"

    def close(self) -> None:
        """Closes the links to other machines."""
        for link in self._links:
            link.close()

    def holders(self, copies: int) -> list[BlobStore]:
        """This machine's store, and those of the next `copies` machines."""
        count = len(self._stores)
        return [self._stores[(self._own + step) % count] for step in range(min(copies + 1, count))]

    def put(self, name: str, path: Path, copies: int) -> int:
        """Stores a file here and on `copies` other machines; returns how many of these answered."""
        reached = 0
        for store in self.holders(copies):
            with suppress(AgileMLError, OSError):
                store.put(name, file_pieces(path))
                reached += store is not self._stores[self._own]
        return reached

    def names(self) -> dict[str, list[BlobStore]]:
        """The files of all machines that answer, each with the stores that have it, this machine's
        first.
        """
        holders: dict[str, list[BlobStore]] = {}
        for store in self.holders(len(self._stores)):
            with suppress(AgileMLError, OSError):
                for name in store.list():
                    holders.setdefault(name, []).append(store)
        return holders

    def drop_before(self, prefix: str) -> None:
        """Removes this machine's files whose names sort before a prefix."""
        own = self._stores[self._own]
        for name in own.list():
            if name < prefix:
                own.delete(name)
                # After its last file, a folder is empty; thousands of empty folders would slow down
                # each look.
                with suppress(OSError):
                    (self._folder / name).parent.rmdir()


def fetch(name: str, stores: Iterable[BlobStore], path: Path) -> bool:
    """Copies a file from the first store that still has a whole copy; returns whether there was
    one.
    """
    for store in stores:
        with suppress(AgileMLError, OSError):
            fetch_file(store, name, path)
            return True
    return False


METADATA = ".metadata"
"""The file that PyTorch writes when all ranks have written: a save without this file is not
complete."""

_ROOT, _STORED_METADATA = "saves", "metadata"
_CHECKPOINT = "gang-"
_SAVE = re.compile(r"(?P<step>\d{10,18})-(?P<token>[A-Za-z0-9]{1,64})", re.ASCII)
_BLOB = re.compile(
    rf"{_ROOT}/(?P<save>{_SAVE.pattern})/(?P<file>[A-Za-z0-9_][A-Za-z0-9._-]*)", re.ASCII
)


@dataclass(frozen=True, slots=True, order=True)
class SaveName:
    """A save: the number of steps that are done, and the token of the gang's start that wrote
    it."""

    step: int
    token: str

    def __str__(self) -> str:
        return f"{self.step:010d}-{self.token}"

    @classmethod
    def parse(cls, text: str) -> SaveName | None:
        """The inverse of `str`; None for any other text, such as a name that another machine has
        made up.
        """
        match = _SAVE.fullmatch(text)
        return None if match is None else cls(int(match["step"]), match["token"])


def grouped(names: Iterable[str]) -> dict[SaveName, set[str]]:
    """The files of each save, from the names of blobs. Other names do not count: any machine may
    have sent them.
    """
    saves: dict[SaveName, set[str]] = {}
    for match in filter(None, map(_BLOB.fullmatch, names)):
        save, file = SaveName(int(match["step"]), match["token"]), match["file"]
        saves.setdefault(save, set()).add(METADATA if file == _STORED_METADATA else file)
    return saves


_METADATA = "torch.distributed.checkpoint.metadata"
_METADATA_PARTS = frozenset(
    {
        *(
            (_METADATA, name)
            for name in ("Metadata", "MetadataIndex", "StorageMeta", "TensorProperties")
        ),
        *(
            (_METADATA, name)
            for name in ("BytesStorageMetadata", "ChunkStorageMetadata", "TensorStorageMetadata")
        ),
        (_METADATA, "_MEM_FORMAT_ENCODING"),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        ("torch.serialization", "_get_layout"),
        ("torch", "Size"),
        # The folder of the save. Its module has another name in Python 3.13.
        ("pathlib", "PosixPath"),
        ("pathlib._local", "PosixPath"),
    }
)
"""The types in the metadata of a save, from PyTorch 2.6 on, besides those of numbers
(`torch.float32`). None of them does more than hold values."""

_UNREADABLE = (
    pickle.PickleError,
    EOFError,
    ImportError,
    LookupError,
    AttributeError,
    TypeError,
    ValueError,
)
_UNREADABLE_NUMBERS = (ArithmeticError, RuntimeError, MemoryError)
"""Errors of reading a pickle that is damaged or made up."""


class _MetadataReader(pickle.Unpickler):
    """Builds the parts of a save's metadata, and nothing else: the file comes from other
    machines."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _METADATA_PARTS:
            return super().find_class(module, name)
        if module == "torch":
            import torch

            if isinstance(dtype := vars(torch).get(name), torch.dtype):
                return dtype
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no save of PyTorch has")


def files_of(metadata: Path) -> set[str]:
    """The files that a save's metadata refers to, all in the folder of the save.

    Unrecoverable: it is damaged, or has more than metadata has. Loading it with PyTorch could then
    run what another machine has planted.
    """
    try:
        with metadata.open("rb") as file:
            names = {
                info.relative_path for info in _MetadataReader(file).load().storage_data.values()
            }
    except (*_UNREADABLE, *_UNREADABLE_NUMBERS) as error:
        raise Unrecoverable(f"{metadata.name} is not loaded: {error}") from None

    if outside := [
        name for name in names if not isinstance(name, str) or not is_name(name) or "/" in name
    ]:
        raise Unrecoverable(
            f"{metadata.name} is not loaded: it refers to {outside[0]!r:.200}, which is no file's "
            "name"
        )

    return names


class Saves:
    """Saves on this machine, with copies on `copies` others, and in the folder of checkpoints, if
    there is one.
    """

    def __init__(self, peers: Peers, copies: int, checkpoints: Path | None) -> None:
        self._peers, self._copies, self._checkpoints = peers, copies, checkpoints

    def store(self, name: SaveName, folder: Path) -> None:
        """Stores the files that one rank has written, the metadata last."""
        for path in sorted(folder.iterdir(), reverse=True):
            self._peers.put(_blob(name, path.name), path, self._copies)

    def drop_before(self, name: SaveName) -> None:
        """Removes older saves from this machine."""
        self._peers.drop_before(f"{_ROOT}/{name}")

    def newest(self) -> SaveName | None:
        """The newest complete save. Says which are refused, and why (`files_of`)."""
        kept, holders = (
            {name: self._checkpoint_of(name) for name in self._kept()},
            self._peers.names(),
        )
        saves = grouped(holders)

        for name in sorted({*kept, *saves}, reverse=True):
            metadata, blob = self._peers.scratch / METADATA, _blob(name, METADATA)
            files = saves.get(name, set())
            if name in kept:
                metadata, files = (
                    kept[name] / _STORED_METADATA,
                    {path.name for path in kept[name].iterdir()},
                )
            elif METADATA not in files or not fetch(blob, holders[blob], metadata):
                continue

            try:
                # A save is complete if all files are there that its metadata refers to.
                if files_of(metadata) <= files:
                    return name
            except Unrecoverable as error:
                sys.stderr.write(f"spotctl: the save at step {name.step} is not used: {error}\n")

        return None

    def gather(self, name: SaveName, folder: Path) -> None:
        """Copies all files of a save into a new folder.

        AgileMLError: a file is gone, with the machines that had it, or the metadata is refused
        (`files_of`).
        """
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if name in self._kept():
            kept = self._checkpoint_of(name)
            shutil.copyfile(kept / _STORED_METADATA, folder / METADATA)
            for file in files_of(folder / METADATA):
                shutil.copyfile(kept / file, folder / file)
            return

        holders, missing = self._peers.names(), [METADATA]
        while missing:
            file = missing.pop()
            blob = _blob(name, file)
            if not fetch(blob, holders.get(blob, ()), folder / file):
                raise AgileMLError(
                    f"{file} of the save at step {name.step} is gone, with the machines that had it"
                )
            if file == METADATA:
                missing += files_of(folder / METADATA)

    def checkpoint(self, name: SaveName) -> None:
        """Replaces the save in the folder that spotctl copies to the job's checkpoint place."""
        if self._checkpoints is None or name in self._kept():
            return

        earlier, new = self._kept(), self._checkpoint_of(name)
        with refilled(new) as part:
            self.gather(name, part)
            # Hidden files are not part of a checkpoint that spotctl copies.
            move(part / METADATA, part / _STORED_METADATA)

        for save in earlier:
            shutil.rmtree(self._checkpoint_of(save))

    def _kept(self) -> list[SaveName]:
        """The saves in the folder of checkpoints."""
        if self._checkpoints is None:
            return []
        paths = self._checkpoints.glob(f"{_CHECKPOINT}*/{_STORED_METADATA}")
        return list(
            filter(
                None, (SaveName.parse(path.parent.name.removeprefix(_CHECKPOINT)) for path in paths)
            )
        )

    def _checkpoint_of(self, name: SaveName) -> Path:
        assert self._checkpoints is not None
        return self._checkpoints / f"{_CHECKPOINT}{name}"


def _blob(name: SaveName, file: str) -> str:
    return f"{_ROOT}/{name}/{_STORED_METADATA if file == METADATA else file}"
