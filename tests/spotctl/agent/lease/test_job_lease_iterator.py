"""The iterator in one process: where it resumes, when it saves, and how ranks stay in step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from spotctl.agent import (
    BadCheckpoint,
    Checkpoints,
    IteratorOptions,
    LeaseEnded,
    LeaseGrantor,
    LeaseHolder,
    LeaseIterator,
    TrainingPosition,
)

RARELY = IteratorOptions(save_every_seconds=1e9)


class Clock:
    """A clock that advances by a second at every training step."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Job:
    """One start of a script on one machine; its state is the list of batches it saw."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        batches: int = 4,
        *,
        leased: bool = True,
        options: IteratorOptions = RARELY,
        loader: Iterable[Any] | None = None,
    ) -> None:
        self.clock, self.seen, self.hooks, self.saves = clock, [], [], 0  # type: ignore[var-annotated]
        self.iterator: LeaseIterator[Any] = LeaseIterator(
            range(batches) if loader is None else loader,
            load=self.load,
            save=self.save,
            checkpoints=Checkpoints(folder / "checkpoints"),
            holder=LeaseHolder(folder / "lease", clock) if leased else None,
            options=options,
            clock=clock,
        )

    def save(self, folder: Path) -> None:
        self.saves += 1
        (folder / "seen").write_text(repr((self.seen, self.hooks)))

    def load(self, folder: Path) -> None:
        self.seen, self.hooks = eval((folder / "seen").read_text())

    def run(self, epochs: int, each: Callable[[int], None] = lambda _: None) -> bool:
        """Whether it finished. `each` is called with the number of steps within each step."""
        try:
            for epoch in self.iterator.epochs(epochs):
                for batch in self.iterator:
                    self.clock.now += 1
                    self.seen.append((epoch, batch))
                    each(len(self.seen))
                self.hooks.append(epoch)
        except LeaseEnded:
            return False
        return True


ALL = [(epoch, batch) for epoch in range(3) for batch in range(4)]


@settings(max_examples=15)
@given(st.lists(st.integers(1, 8), max_size=8), st.integers(1, 3))
def test_every_batch_and_hook_comes_once_however_often_the_job_is_moved(
    tmp_path_factory: pytest.TempPathFactory, leases: list[int], look_every: int
) -> None:
    folder, clock = tmp_path_factory.mktemp("job"), Clock()
    giver = LeaseGrantor(folder / "lease", clock)
    options = IteratorOptions(save_every_seconds=1e9, look_every=look_every)
    done = False
    for seconds in [*leases, 1000]:
        giver.begin(seconds)
        job = Job(folder, clock, options=options)
        done = job.run(3)
        if done:
            break
        assert (progress := giver.progress()) is not None
        assert (progress.state, progress.step, progress.checkpoint) == (
            "ended",
            len(job.seen),
            len(job.seen),
        )
    assert done
    assert job.seen == ALL
    assert job.hooks == [0, 1, 2]


def test_a_lease_is_not_overrun_by_a_save(tmp_path: Path) -> None:
    clock = Clock()
    LeaseGrantor(tmp_path / "lease", clock).begin(10.0)
    job = Job(tmp_path, clock)
    slow, original = 1.5, job.save

    def save(folder: Path) -> None:
        clock.now += slow
        original(folder)

    job.iterator._save = save
    assert not job.run(3)
    assert clock.now <= 10.0
    # Ten seconds: two saves of 1.5, and steps of one second while a step and twice a save still
    # fit.
    assert len(job.seen) == 5


def test_a_job_that_is_moved_before_its_first_step_saves_nothing_again(tmp_path: Path) -> None:
    clock = Clock()
    giver = LeaseGrantor(tmp_path / "lease", clock)
    giver.begin(4)
    assert not Job(tmp_path, clock).run(3)
    giver.begin(0)
    again = Job(tmp_path, clock)
    assert not again.run(3)
    assert (again.saves, again.iterator.position.step) == (0, 3)


def test_time_is_reserved_for_all_steps_until_the_next_look(tmp_path: Path) -> None:
    clock = Clock()
    LeaseGrantor(tmp_path / "lease", clock).begin(10.0)
    job = Job(
        tmp_path, clock, batches=40, options=IteratorOptions(save_every_seconds=1e9, look_every=4)
    )
    assert not job.run(1)
    # Looked at after 4 and 8 seconds; four more steps would have taken until 12.
    assert (len(job.seen), clock.now) == (8, 8.0)


def test_a_hint_saves_once_and_an_eviction_saves_and_ends(tmp_path: Path) -> None:
    clock = Clock()
    giver = LeaseGrantor(tmp_path / "lease", clock)
    giver.begin(1e6)
    job = Job(tmp_path, clock)

    def announce(steps: int) -> None:
        if steps in (4, 7):
            giver.notify("hint" if steps == 4 else "evict", 120, "aws")

    assert not job.run(3, announce)
    assert len(job.seen) == 7
    # After the first step, at the hint, at the end.
    assert job.saves == 3
    assert (progress := giver.progress()) is not None
    assert (progress.state, progress.reason, progress.step) == (
        "ended",
        "evict announced by aws",
        7,
    )


def test_without_an_agent_it_saves_from_time_to_time_and_resumes_after_a_crash(
    tmp_path: Path,
) -> None:
    clock = Clock()

    def crash(steps: int) -> None:
        if steps == 8:
            raise ZeroDivisionError

    job = Job(tmp_path, clock, leased=False, options=IteratorOptions(save_every_seconds=3))
    with pytest.raises(ZeroDivisionError):
        job.run(3, crash)
    assert job.saves == 3
    again = Job(tmp_path, clock, leased=False)
    assert again.iterator.position == TrainingPosition(1, 3, 7)
    assert again.run(3)
    assert (again.seen, again.hooks) == (ALL, [0, 1, 2])


def test_an_epoch_that_the_script_leaves_early_is_finished(tmp_path: Path) -> None:
    job = Job(tmp_path, Clock(), leased=False)
    numbers = []
    for epoch in job.iterator.epochs(3):
        for batch in job.iterator:
            numbers.append((epoch, batch))
            if batch == 1:
                break
    assert numbers == [(epoch, batch) for epoch in range(3) for batch in range(2)]
    assert list(Job(tmp_path, Clock(), leased=False).iterator.epochs(3)) == []


def test_a_loader_with_fewer_batches_than_the_checkpoint_is_refused(tmp_path: Path) -> None:
    clock = Clock()
    LeaseGrantor(tmp_path / "lease", clock).begin(4)
    assert not Job(tmp_path, clock).run(3)
    with pytest.raises(BadCheckpoint, match="after batch 3 of epoch 0, but the loader has fewer"):
        Job(tmp_path, clock, batches=2, leased=False).run(3)


def test_an_epoch_is_seeded_before_its_data_is_drawn(tmp_path: Path) -> None:
    seeds: list[int] = []

    class Loader:
        def __iter__(self) -> Iterator[int]:
            return iter([seeds[-1] * 10, seeds[-1] * 10 + 1])

    job = Job(
        tmp_path,
        Clock(),
        leased=False,
        options=IteratorOptions(on_epoch=seeds.append),
        loader=Loader(),
    )
    assert job.run(2)
    assert job.seen == [(0, 0), (0, 1), (1, 10), (1, 11)]


def test_ranks_save_and_end_at_one_step_and_resume_from_one_that_all_have(tmp_path: Path) -> None:
    """Three ranks in threads; one has a lease that ends, and one has lost its newest checkpoint."""
    agreement = Least(3)

    def run(rank: int, lease: float) -> Job:
        clock = Clock()
        folder = tmp_path / str(rank)
        LeaseGrantor(folder / "lease", clock).begin(lease)
        job = Job(folder, clock, options=IteratorOptions(save_every_seconds=3, agree=agreement))
        job.run(3)
        return job

    first = together([partial(run, rank, 7 if rank == 1 else 1e6) for rank in range(3)])
    assert {len(job.seen) for job in first} == {6}
    newest = Checkpoints(tmp_path / "2" / "checkpoints").newest()
    assert newest is not None
    (newest[1] / "seen").write_text("damaged")
    second = together([partial(run, rank, 1e6) for rank in range(3)])
    assert all(job.seen == ALL for job in second)


class Least:
    """An all-reduce with MIN between threads."""

    def __init__(self, ranks: int) -> None:
        self._values: list[int] = []
        self._barrier = threading.Barrier(ranks, timeout=300)
        self._lock = threading.Lock()

    def __call__(self, value: int) -> int:
        with self._lock:
            self._values.append(value)
        self._barrier.wait()
        least = min(self._values)
        if self._barrier.wait() == 0:
            self._values.clear()
        self._barrier.wait()
        return least


def together(runs: list[Callable[[], Job]]) -> list[Job]:
    found: dict[int, Job] = {}
    threads = [
        threading.Thread(target=lambda i=i, run=run: found.update({i: run()}))
        for i, run in enumerate(runs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [found[i] for i in range(len(runs))]


def test_a_pytorch_loader_is_moved_within_an_epoch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    data = torch.utils.data.TensorDataset(torch.arange(32, dtype=torch.float32).reshape(16, 2))

    def train(folder: Path, lease: float | None) -> tuple[bool, Any]:
        clock, generator = Clock(), torch.Generator()
        torch.manual_seed(1)
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
        if lease is not None:
            LeaseGrantor(folder / "lease", clock).begin(lease)

        def load(saved: Path) -> None:
            states = torch.load(saved / "state.pt")
            model.load_state_dict(states["model"])
            optimizer.load_state_dict(states["optimizer"])

        def save(saved: Path) -> None:
            torch.save(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
                saved / "state.pt",
            )

        batches = LeaseIterator(
            torch.utils.data.DataLoader(data, batch_size=4, shuffle=True, generator=generator),
            load=load,
            save=save,
            checkpoints=Checkpoints(folder / "checkpoints"),
            holder=LeaseHolder(folder / "lease", clock) if lease is not None else None,
            options=IteratorOptions(on_epoch=generator.manual_seed),
            clock=clock,
        )
        try:
            for _ in batches.epochs(3):
                for (batch,) in batches:
                    clock.now += 1
                    optimizer.zero_grad()
                    model(batch).pow(2).mean().backward()
                    optimizer.step()
        except LeaseEnded:
            return False, None
        return True, model.state_dict()

    alone = train(tmp_path / "alone", None)[1]
    assert [train(tmp_path / "moved", lease)[0] for lease in (7, 3)] == [False, False]
    done, moved = train(tmp_path / "moved", 100)
    assert done
    assert all(torch.equal(alone[name], moved[name]) for name in alone)
