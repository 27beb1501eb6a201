"""A file that a user names, from this computer or from a web server."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from pricing_data.errors import BadInput

_MOST_BYTES = 1 << 30
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
            with httpx.stream("GET", name, timeout=_SECONDS, follow_redirects=True) as answer, path.open("wb") as out:
                answer.raise_for_status()
                for chunk in answer.iter_bytes():
                    out.write(chunk)
                    if out.tell() > _MOST_BYTES:
                        raise BadInput(f"{name}: is larger than {_MOST_BYTES >> 20} MB")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise BadInput(f"{name}: cannot be downloaded: {error}") from error
        yield path
