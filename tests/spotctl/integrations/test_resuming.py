"""What the hooks for training loops share: published checkpoints, the loader that resumes, and
SIGTERM.
"""

from __future__ import annotations

import io
import signal
from pathlib import Path

import pytest
import torch
from torch.utils.data import TensorDataset

from spotctl.agent.checkpoints.local import TrainingPosition
from spotctl.agent.data.transfer import listing
from spotctl.agent.lease.job_lease import JobLease
from spotctl.agent.lease.lease_files import LeaseAct, LeaseGrantor, LeaseHolder
from spotctl.integrations.loops import PublishedCheckpoints, link_tree
from spotctl.integrations.torch_state import ResumableLoader


def test_a_checkpoint_is_copied_only_once_it_is_whole(tmp_path: Path) -> None:
    published = PublishedCheckpoints(tmp_path / "kept")
    for step in (9, 10):
        hidden = published.hidden(f"checkpoint-{step}")
        hidden.mkdir()
        torch.save({"step": step}, hidden / "model.pt")
        assert all(f"-{step}/" not in name for name, *_ in listing(tmp_path / "kept"))
        published.publish(f"checkpoint-{step}", keep=("checkpoint-9",))
    assert [path.name for path in published.all()] == ["checkpoint-9", "checkpoint-10"]
    published.hidden("checkpoint-11").mkdir()
    published.publish("checkpoint-11")
    assert [path.name for path in published.all()] == ["checkpoint-11"]


def test_the_hidden_name_is_one_that_torch_saves_to(tmp_path: Path) -> None:
    published = PublishedCheckpoints(tmp_path)
    torch.save({"step": 4}, published.hidden("step-4.ckpt"))
    published.publish("step-4.ckpt")
    assert torch.load(published.all()[0]) == {"step": 4}


def test_a_linked_copy_stays_when_the_original_is_removed(tmp_path: Path) -> None:
    (tmp_path / "a" / "part").mkdir(parents=True)
    (tmp_path / "a" / "part" / "weights").write_text("1 2")
    link_tree(tmp_path / "a", tmp_path / "b")
    (tmp_path / "a" / "part" / "weights").unlink()
    assert (tmp_path / "b" / "part" / "weights").read_text() == "1 2"


def loader() -> ResumableLoader:
    return ResumableLoader(TensorDataset(torch.arange(12)), batch_size=3, shuffle=True)


@pytest.mark.parametrize("stop", [1, 3, 4, 6])
def test_a_loader_resumes_with_the_batches_and_the_noise_that_would_have_followed(
    stop: int,
) -> None:
    def seen(begun: ResumableLoader, epochs: int) -> list[list[float]]:
        return [
            [*batch.tolist(), torch.rand(()).item()] for _ in range(epochs) for (batch,) in begun
        ]

    torch.manual_seed(5)
    straight = seen(loader(), 2)
    torch.manual_seed(5)
    first, stored = loader(), io.BytesIO()
    batches = [batch for _ in range(stop // 4) for batch in seen(first, 1)]
    if stop % 4:
        for (batch,) in first:
            batches.append([*batch.tolist(), torch.rand(()).item()])
            if len(batches) == stop:
                break
    torch.save(first.state_dict(), stored)
    stored.seek(0)
    torch.manual_seed(99)
    second = loader()
    second.load_state_dict(torch.load(stored, weights_only=True))
    batches += seen(second, 2 - stop // 4)
    assert batches == straight


def test_sigterm_makes_the_next_decision_end_until_the_loop_is_over(tmp_path: Path) -> None:
    LeaseGrantor(tmp_path).begin(1000.0)
    # Other tests of this process may have set a handler.
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    lease = JobLease(LeaseHolder(tmp_path), save_every_seconds=1e9)
    try:
        assert lease.decision().act is LeaseAct.GO
        signal.raise_signal(signal.SIGTERM)
        decision = lease.decision()
        assert (decision.act, decision.reason) == (
            LeaseAct.END,
            "SIGTERM: the machine is about to end",
        )
        lease.report_end(decision, TrainingPosition(0, 0, 3))
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
