"""A registry of container images, as far as podman asks one, and images made from programs of this
computer.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import platform
import re
import subprocess
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers.loopback import Reply, Request

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_HERE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
_LIBRARY = re.compile(r"(/\S+) \(0x")


@dataclass
class Registry:
    """`login` is USER:PASSWORD; unset, everyone may pull."""

    login: str = ""
    _manifests: dict[str, bytes] = field(default_factory=dict)
    _blobs: dict[str, bytes] = field(default_factory=dict)

    def add(
        self, name: str, layer: bytes, architecture: str = _HERE, path: str = "/bin:/usr/bin"
    ) -> None:
        """An image of one layer, as NAME:latest; its programs are looked for on `path`."""
        config = {
            "architecture": architecture,
            "os": "linux",
            "config": {"Env": [f"PATH={path}", "OF_IMAGE=yes"], "Entrypoint": ["/bin/false"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
        packed = json.dumps(config).encode()
        for blob in (layer, packed):
            self._blobs[_digest(blob)] = blob
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, packed),
            "layers": [_descriptor(_LAYER, layer)],
        }
        self._manifests[f"/v2/{name}/manifests/latest"] = json.dumps(manifest).encode()

    def answer(self, request: Request) -> Reply:
        wanted = f"Basic {base64.b64encode(self.login.encode()).decode()}"
        if self.login and request.headers.get("authorization") != wanted:
            refusal = {"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}
            return Reply.of_json(refusal, 401, **{"WWW-Authenticate": 'Basic realm="images"'})
        if request.path == "/v2/":
            return Reply.of_json({})
        if manifest := self._manifests.get(request.path):
            return Reply(
                200,
                manifest,
                {"Content-Type": _MANIFEST, "Docker-Content-Digest": _digest(manifest)},
            )
        blob = self._blobs.get(request.path.rpartition("/")[2])
        if blob is not None:
            return Reply(200, blob, {"Content-Type": "application/octet-stream"})
        return Reply.of_json(
            {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}, 404
        )


def layer_of(programs: Iterable[str], files: Iterable[Path] = ()) -> bytes:
    """Programs of this computer in /bin, with the libraries that they need, and files and folders
    at their paths.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", dereference=True) as layer:
        scratch = tarfile.TarInfo("tmp")
        scratch.type, scratch.mode = tarfile.DIRTYPE, 0o1777
        layer.addfile(scratch)
        for program in programs:
            path = Path(
                subprocess.run(
                    ["which", program], check=True, capture_output=True, text=True
                ).stdout.strip()
            )
            layer.add(path, f"bin/{program}")
            files = (*files, *map(Path, _LIBRARY.findall(_linked(path))))
        for file in dict.fromkeys(files):
            layer.add(file, str(file)[1:])
    return packed.getvalue()


def _linked(program: Path) -> str:
    return subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _descriptor(kind: str, content: bytes) -> dict[str, object]:
    return {"mediaType": kind, "size": len(content), "digest": _digest(content)}
