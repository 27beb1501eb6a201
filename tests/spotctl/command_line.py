"""Runs the command line from its entry point, with its own streams, environment and exit code."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from spotctl.cli.app import main
from tests.documented import assert_explained


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    code: int | str | None
    out: str
    err: str
    words: tuple[str, ...] = ()

    @property
    def json(self) -> Any:  # noqa: ANN401  # JSON is any value
        assert self.out, self.err
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line that an error is."""
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        return self.err


def spotctl(*words: str | Path, **environment: str) -> Ended:
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with patch.dict("os.environ", environment), redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(word) for word in words])
        except SystemExit as left:
            code = left.code
    printed, said = (stream.buffer.getvalue().decode() for stream in (out, err))
    ended = Ended(code, printed, said, tuple(map(str, words)))
    if "--json" in words and ended.out.startswith("{"):
        answer, _ = json.JSONDecoder().raw_decode(ended.out)
        assert_explained([str(word) for word in words], answer)
    return ended
