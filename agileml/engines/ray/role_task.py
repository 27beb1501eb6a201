"""The task in a worker process of Ray: starts a node, passes its log on to Ray, and returns how the
node ended.

Ray copies this module to its workers by value: they may not have this package, so it imports the
standard library only.
"""

import os
import subprocess
import sys
import zipfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from io import BytesIO
from pathlib import Path

LAST_LINES = 50
"""Lines of a node's log that are returned with its status."""

LEASH = """\
import os, shutil, signal, subprocess, sys, tempfile, threading, zipfile
from io import BytesIO
# When a worker exits, Ray kills its children; not their children in another session, and this process has work to do.
if os.fork():
    os._exit(0)
os.setsid()
folder, code, orders = tempfile.mkdtemp(prefix="agileml-ray-"), BytesIO(), sys.stdin.buffer
try:
    code.write(orders.read(int(orders.readline())))
    if code.tell():
        zipfile.ZipFile(code).extractall(f"{folder}/code")
        os.environ["PYTHONPATH"] = f"{folder}/code"
    os.environ["TMPDIR"] = folder
    node = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=2, start_new_session=True)
    def kill():
        try:
            os.killpg(node.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    def kill_at_end():
        orders.read()
        kill()
    threading.Thread(target=kill_at_end, daemon=True).start()
    # Not reaped before its group is killed, so that its number is not given to another process.
    os.waitid(os.P_PID, node.pid, os.WEXITED | os.WNOWAIT)
    kill()
    print(node.wait(), flush=True)
finally:
    shutil.rmtree(folder, ignore_errors=True)
# The thread may still be reading.
os._exit(0)
"""
"""A process between Ray's worker and the node: when the worker dies, however it does, everything of
the node goes, too.

The process owns the folder for the node's temporary files and for the code, which arrives on its
standard input.
"""


def run_role(
    words: Sequence[str], environment: Mapping[str, str], version: str, code: bytes
) -> Iterator[str | tuple[int, str]]:
    """Yields the id of the machine when the node is about to start, then its exit status and the
    end of its log.

    `code` is this package, for machines that have none or another version of it.
    """
    import ray

    yield ray.get_runtime_context().get_node_id()
    leash = subprocess.Popen(
        [sys.executable, "-c", LEASH, sys.executable, *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )

    assert leash.stdin is not None
    assert leash.stdout is not None
    assert leash.stderr is not None
    try:
        from agileml.runtime.attach import code_version
    except ImportError:
        needed = code
    else:
        needed = b"" if code_version() == version else code

    leash.stdin.write(b"%d\n" % len(needed) + needed)
    leash.stdin.flush()
    last: deque[str] = deque(maxlen=LAST_LINES)
    leash.wait()
    for line in leash.stderr:
        last.append(line.decode(errors="replace"))
        sys.stderr.write(last[-1])

    status = leash.stdout.read()
    yield int(status or -9), "".join(last)


_DISTRIBUTION = "spotctl"


def zipped_package() -> bytes:
    """The package's modules, and the release's metadata, which is part of the version that nodes
    compare.
    """
    root = Path(__file__).parents[2]
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(root.rglob("*.py")):
            file.write(path, path.relative_to(root.parent))
        try:
            release = distribution(_DISTRIBUTION)
        except PackageNotFoundError:
            return content.getvalue()
        metadata = release.read_text("METADATA") or ""
        file.writestr(f"{_DISTRIBUTION}-{release.version}.dist-info/METADATA", metadata)

    return content.getvalue()
