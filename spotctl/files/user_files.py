"""Files that a user names: new ones, written whole and never over another by accident, and copies
from web servers.
"""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

from agileml.runtime.ground import replaced
from pricing_data.errors import BadInput
from spotctl.home.errors import BadRequest, SpotctlError

_TAKEN = "name another file, or write over it with --force"


class CannotWrite(SpotctlError):
    """The file system refuses the file."""


def check_free(path: Path, *, force: bool = False) -> None:
    """Refuses a folder, and without `force` a file that is there."""
    if path.is_dir():
        raise BadRequest(f"{path}: is a folder; name a file in it: {path / 'job.yaml'}")
    if path.exists() and not force:
        raise BadRequest(f"{path}: already exists; {_TAKEN}")


def write_new(path: Path, text: str, *, force: bool = False) -> None:
    """Writes a file atomically; refuses to overwrite one without `force`."""
    check_free(path, force=force)
    try:
        with replaced(path, over=force) as new:
            new.write_text(text, "utf-8")
    except FileExistsError:
        raise BadRequest(f"{path}: already exists; {_TAKEN}") from None
    except (FileNotFoundError, NotADirectoryError):
        raise BadRequest(
            f"{path}: there is no folder {path.parent}; name a file in an existing one"
        ) from None
    except OSError as error:
        raise CannotWrite(
            f"{path}: cannot be written: {error.strerror}; choose a folder that you may write to"
        ) from error


def starter_text() -> str:
    """A commented job that runs without changes."""
    return files("spotctl.files.job").joinpath("starter_job.yaml").read_text("utf-8")


def editor_line(home: Path) -> str:
    """The line by which an editor finds the schema of job files, which is stored in the home; empty
    if that fails.
    """
    from spotctl.files.job import reader

    path = home.resolve() / "job.schema.json"
    text = json.dumps(reader.schema(), indent=1)
    try:
        if not path.is_file() or path.read_text("utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_new(path, text, force=True)
    except (OSError, SpotctlError):
        return ""

    return f"# yaml-language-server: $schema={path.as_uri()}\n"


_MAX_BYTES = 1 << 30
_SECONDS = 60.0


@contextmanager
def local_copy(name: str) -> Iterator[Path]:
    """The path of a file; a file on a web server is downloaded first, and deleted afterwards."""
    if not name.startswith(("http://", "https://")):
        yield Path(name)
        return

    import httpx

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"download{Path(urlsplit(name).path).suffix}"
        try:
            with (
                httpx.stream("GET", name, timeout=_SECONDS, follow_redirects=True) as answer,
                path.open("wb") as out,
            ):
                answer.raise_for_status()
                for chunk in answer.iter_bytes():
                    out.write(chunk)
                    if out.tell() > _MAX_BYTES:
                        raise BadInput(f"{name}: is larger than {_MAX_BYTES >> 20} MB")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise BadInput(f"{name}: cannot be downloaded: {error}") from error
        yield path
