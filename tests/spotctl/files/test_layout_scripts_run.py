"""Scripts with checkpoints of different layouts, killed five times: what resumes does not begin
again.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.samples import LONG_RUN
from tests.spotctl.files.layout_scripts_run import killed


@pytest.mark.slow
@LONG_RUN
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["epoch_folders", "no_save", "sharded"])
def test_a_script_repeats_less_than_killed_machines_did(tmp_path: Path, name: str) -> None:
    run = killed(name, tmp_path, Random(5))
    *evicted, _ = run.lives
    # A busy computer may be too slow for what a trial waits for.
    assert (run.outcome, run.verdict in ("resumed", "not seen")) == ("done", True), run
    assert evicted, run
    assert 0 <= run.repeated < sum(evicted), run


@pytest.mark.slow
@LONG_RUN
def test_what_begins_again_repeats_all_that_killed_machines_did(tmp_path: Path) -> None:
    run = killed("liar_ignores", tmp_path, Random(5))
    *evicted, last = run.lives
    assert (run.verdict == "resumed", run.outcome) == (False, "done"), run
    assert (last, run.repeated) == (run.whole, sum(evicted)), run
