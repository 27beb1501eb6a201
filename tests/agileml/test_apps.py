"""Built-in apps: gradients against finite differences, data the same on every node, losses that
fall.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, pairwise
from math import log
from pathlib import Path

import numpy as np
import pytest

import agileml
from agileml import train
from agileml.apps.lda import Corpus, TopicModel, generate_corpus, read_corpus
from agileml.apps.mf import MatrixFactorization, read_ratings
from agileml.apps.mlr import LogisticRegression
from agileml.apps.registry import TrainerSource
from agileml.errors import BadArgument
from agileml.params.layout import Array, Layout, Params
from agileml.params.view import CacheView, ChunkView, ParamCache
from agileml.reference import iterate, model_digest
from agileml.trainer import Piece, Trainer, init_rng, initial_model

SMALL_MF = MatrixFactorization(rank=3, users=30, items=20, ratings=900, parts=3, regularization=0.0)
SMALL_MLR = LogisticRegression(classes=3, features=4, examples=200, parts=3)


def losses(trainer: Trainer, clocks: int) -> list[float]:
    return [each.loss for each in islice(iterate(trainer, 7), clocks + 1)]


def cache_of(params: Params) -> ParamCache:
    cache = ParamCache(Layout.cut(params, 1))
    cache.fill(0, cache.layout.state_of(0, params), 0)
    return cache


def updates_of(trainer: Trainer, params: Params, piece: Piece) -> Params:
    view = ChunkView(cache_of(params), "app")
    view.begin(1)
    before = {name: view.read(name).copy() for name in params}
    trainer.step(piece.shard, piece.lo, piece.hi, view, 1, init_rng(0))
    return {name: view.read(name) - before[name] for name in params}


def slope(
    trainer: Trainer, params: Params, piece: Piece, name: str, place: tuple[int, ...]
) -> float:
    """Central difference of the summed loss of a piece."""
    seen = []
    for step in (1e-4, -1e-4):
        moved = {each: array.astype(np.float64) for each, array in params.items()}
        moved[name][place] += step
        seen.append(trainer.loss(CacheView(cache_of(moved), "app"), [piece]) * len(piece))
    return (seen[0] - seen[1]) / 2e-4


@pytest.mark.parametrize(
    ("trainer", "factor"),
    # The step of the factorization omits the factor 2 of the derivative; a row's step is the mean
    # of its entries.
    [
        (SMALL_MF, {"users": -30 / 900 / 2, "items": -20 / 900 / 2}),
        (SMALL_MLR, {"weights": -1 / 198}),
    ],
    ids=["mf", "mlr"],
)
def test_a_step_follows_the_gradient_of_the_loss(
    trainer: Trainer, factor: dict[str, float]
) -> None:
    rng = np.random.default_rng(3)
    params: Params = {
        name: array + 0.3 * rng.standard_normal(array.shape)
        for name, array in initial_model(trainer, 1).items()
    }
    params = {name: array.astype(np.float32) for name, array in params.items()}
    piece = Piece(trainer.shards()[1], 5, 40)
    moved = updates_of(trainer, params, piece)
    for name, updates in moved.items():
        places = [tuple(int(rng.integers(size)) for size in updates.shape) for _ in range(12)]
        places.append(tuple(np.unravel_index(np.abs(updates).argmax(), updates.shape)))  # type: ignore[arg-type]
        expected = [factor[name] * slope(trainer, params, piece, name, place) for place in places]
        assert np.allclose([updates[place] for place in places], expected, rtol=0.02, atol=2e-5)
        assert np.abs(expected).max() > 1e-3


def test_regularization_pulls_every_entry_s_factors_towards_0() -> None:
    params = initial_model(SMALL_MF, 1)
    piece = Piece(SMALL_MF.shards()[0], 0, 50)
    plain, pulled = (
        updates_of(replace(SMALL_MF, regularization=weight), params, piece)["items"]
        for weight in (0.0, 0.5)
    )
    counts = np.bincount(piece.shard.ratings.items[:50], minlength=20)[:, None]
    assert np.allclose(
        pulled - plain, -0.5 * 20 / 900 * counts * params["items"], rtol=1e-3, atol=1e-6
    )


def test_matrix_factorization_converges_to_the_noise() -> None:
    seen = losses(MatrixFactorization(rank=4, users=200, items=100, ratings=12_000, parts=4), 40)
    assert seen[0] > 0.7
    assert seen[-1] < 0.03
    assert all(after < before for before, after in pairwise(seen[:20]))


def test_logistic_regression_learns_its_classes() -> None:
    seen = losses(LogisticRegression(examples=3000, features=20, parts=4), 30)
    assert seen[0] == pytest.approx(log(10), rel=1e-6)
    assert seen[-1] < 0.7
    assert all(after < before for before, after in pairwise(seen))


@pytest.mark.parametrize(
    "trainer",
    [
        MatrixFactorization(rank=4, users=200, items=100, ratings=12_000, parts=4, batch=500),
        LogisticRegression(examples=3000, features=20, parts=4, batch=100),
    ],
    ids=["mf", "mlr"],
)
def test_training_with_batches_converges(trainer: Trainer) -> None:
    seen = losses(trainer, 60)
    assert seen[-1] < 0.3 * seen[0]


def contents(shard: object) -> list[Array]:
    seen = shard.ratings if hasattr(shard, "ratings") else shard.examples  # type: ignore[attr-defined]
    return [getattr(seen, name) for name in type(seen).__slots__]


@pytest.mark.parametrize("app", [MatrixFactorization, LogisticRegression])
def test_data_depend_on_the_seed_and_the_shard(
    app: type[MatrixFactorization] | type[LogisticRegression],
) -> None:
    one, again, other = app(seed=1).shards(), app(seed=1).shards(), app(seed=2).shards()
    again[3].load()
    for mine, theirs in zip(contents(one[3]), contents(again[3]), strict=True):
        assert np.array_equal(mine, theirs)
        assert len(mine) == len(one[3])
    assert not np.array_equal(contents(one[3])[-1], contents(other[3])[-1])
    assert not np.array_equal(contents(one[3])[-1], contents(one[4])[-1])


def test_shards_contain_all_items() -> None:
    app = MatrixFactorization(users=10, items=5, ratings=103, parts=4)
    shards = app.shards()
    assert sum(map(len, shards)) == 103
    for shard, users in zip(shards, ({0, 1}, {2, 3, 4}, {5, 6}, {7, 8, 9}), strict=True):
        assert set(shard.ratings.users) == users
    assert sum(map(len, LogisticRegression(examples=103, parts=4).shards())) == 103


def test_too_many_parts_are_refused() -> None:
    with pytest.raises(BadArgument, match="mf: parts is 20; it must be at most 10"):
        MatrixFactorization(users=10, parts=20)
    with pytest.raises(BadArgument, match="mlr: parts is 20; it must be at most 10"):
        LogisticRegression(examples=10, parts=20)


# -- topics ----------------------------------------------------------------------------------------

SMALL_LDA = TopicModel(topics=4, documents=90, words=60, length=30, parts=3)


def recounted(params: Params, corpus: Corpus) -> Params:
    """The counts of the topics that words are assigned."""
    words = np.zeros((corpus.vocabulary, SMALL_LDA.topics), np.int32)
    np.add.at(words, (corpus.words, params["assigned"]), 1)
    return {"words": words, "totals": words.sum(axis=0)[None, :]}


def test_topics_are_found_and_counts_stay_exact() -> None:
    corpus = generate_corpus(90, 60, 30, 4, 10, 0)
    seen = []
    for each in islice(iterate(SMALL_LDA, 7, partitions=4), 31):
        seen.append(each.loss)
        for name, counts in recounted(each.params, corpus).items():
            assert np.array_equal(each.params[name], counts)
    assert seen[0] > 3
    assert seen[-1] < 2.4


def test_topics_are_drawn_with_the_probabilities_of_collapsed_gibbs_sampling() -> None:
    # One document of two words, of which one is held out; the others only shape the counts.
    app = TopicModel(topics=3, spread=0.5, smoothing=0.2, documents=5, words=4, length=2, parts=1)
    old, alone = np.array([2]), np.array([0])
    counts, totals = np.array([[4, 1, 3]]), np.array([9, 5, 6])
    rng = np.random.default_rng(5)
    drawn = [app._drawn(old, alone, alone, alone, counts, totals, rng)[0] for _ in range(4000)]
    # Without the word itself: 4, 1, 2 of 9, 5, 5; the document has no other word.
    weights = 0.5 * np.array([4.2 / 9.8, 1.2 / 5.8, 2.2 / 5.8])
    assert np.allclose(np.bincount(drawn, minlength=3) / 4000, weights / weights.sum(), atol=0.03)


def test_evictions_change_no_topic() -> None:
    calm, chaotic = (
        agileml.train(SMALL_LDA, engine="sim", clocks=8, deterministic=True, chaos=chaos)
        for chaos in (None, "at clock 2 kill 1; at clock 5 evict half")
    )
    assert chaotic.failures == 1
    assert model_digest(chaotic.model) == model_digest(calm.model)


def test_less_travels_when_fewer_topics_change() -> None:
    pushed: list[int] = []
    agileml.train(
        SMALL_LDA,
        engine="sim",
        clocks=25,
        listener=lambda iteration: pushed.append(iteration.sums.pushed),
    )
    assert pushed[-1] < pushed[0] / 2


def test_documents_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text(
        "Cat dog; cat dog. Once\n\ncat cat mouse\nmouse dog mouse\n" + "a the filler\n" * 9
    )
    corpus = read_corpus(str(path), 10)
    assert corpus.names == ("cat", "dog", "mouse")
    assert corpus.documents == 3
    assert (corpus.words.tolist(), corpus.document.tolist()) == (
        [0, 1, 0, 0, 0, 2, 1],
        [0, 0, 0, 1, 1, 2, 2],
    )
    assert (corpus.held_words.tolist(), corpus.held_document.tolist()) == ([1, 2, 2], [0, 1, 2])
    with pytest.raises(
        BadArgument, match=r"no\.txt: No such file or directory; name a text file with one document"
    ):
        TopicModel(file=str(tmp_path / "no.txt")).shards()
    path.write_text("one two\n")
    with pytest.raises(BadArgument, match="no line has two words that occur at least 3 times"):
        read_corpus(str(path), 5)
    with pytest.raises(
        BadArgument, match="lda: parts is 91; it must be at most 90, the number of documents"
    ):
        TopicModel(documents=90, parts=91).shards()


def written(folder: Path, text: str) -> str:
    path = folder / "ratings.csv"
    path.write_text(text)
    read_ratings.cache_clear()
    return str(path)


@pytest.mark.parametrize("separator", [",", "\t", ";", "::"])
@pytest.mark.parametrize("header", ["", "user,item,rating\n"])
def test_rows_are_read(tmp_path: Path, separator: str, header: str) -> None:
    rows = "bob,x,1\nann,y,5,1997\n\nbob,y,3\n".replace(",", separator)
    table = read_ratings(written(tmp_path, header.replace(",", separator) + rows))
    assert table.users.tolist() == [0, 0, 1]
    assert table.items.tolist() == [0, 1, 1]
    assert table.mean == 3
    assert table.values * table.deviation + table.mean == pytest.approx([1, 3, 5])
    assert (int(table.users.max()) + 1, int(table.items.max()) + 1) == (2, 2)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a,b,1\na,b\n", r"ratings.csv, row 2: 'a,b'; expected a user, an item and a number"),
        ("a,b,1\na,b,good\n", r"row 2: 'a,b,good'"),
        ("a,b,1\n\n,b,2\n", r"row 3: ',b,2'"),
        ("a,b,1\na,b,nan\n", r"row 2: 'a,b,nan'"),
        ("", r"ratings.csv: no ratings"),
        ("user,item,rating\n", r"ratings.csv: no ratings"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(tmp_path: Path, text: str, problem: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(BadArgument, match=problem):
        train(TrainerSource("mf", {"file": file, "parts": 1}), engine="sim", clocks=1)


def test_a_file_that_is_missing_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        BadArgument, match=r"none.csv: No such file or directory; name a file of rows"
    ):
        read_ratings(str(tmp_path / "none.csv"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(BadArgument, match="binary: it is not a text file"):
        read_ratings(str(tmp_path / "binary"))


def test_the_ratings_of_a_file_are_learned_in_their_units(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((30, 2)), rng.standard_normal((20, 2))
    rows = [
        f"u{user},i{item},{3 + left[user] @ right[item]:.3f}"
        for user in range(30)
        for item in range(20)
    ]
    app = MatrixFactorization(
        file=written(tmp_path, "\n".join(rows)), rank=2, parts=4, regularization=0.0
    )
    shards = app.shards()
    assert [len(shard) for shard in shards] == [150] * 4
    # In random order, so that every batch is representative, and the same on every node.
    assert not (np.diff(shards[0].ratings.items) >= 0).all()
    assert (app.shards()[0].ratings.items == shards[0].ratings.items).all()
    losses = [seen.loss for seen, _ in zip(iterate(app, 0), range(60), strict=False)]
    variance = np.var([float(row.rpartition(",")[2]) for row in rows])
    assert losses[0] == pytest.approx(variance, rel=0.3)
    assert losses[-1] < 0.2 * variance


def test_the_content_of_the_file_is_part_of_the_version_of_the_code(tmp_path: Path) -> None:
    file = written(tmp_path, "a,b,1")
    source = TrainerSource("mf", {"file": file})
    before = source.code()
    assert source.code() == before
    assert written(tmp_path, "a,b,2") == file
    assert source.code() != before


def test_more_parts_than_ratings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        BadArgument, match="parts is 16; it must be at most 1, the number of ratings in"
    ):
        MatrixFactorization(file=written(tmp_path, "a,b,1")).shards()


def test_the_example_of_a_trainer_of_ones_own_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    trained = train("examples/line_fit.py", nodes="1+2", engine="sim", clocks=100)
    assert trained.model["line"][0] == pytest.approx([2.5, -0.7], abs=0.1)
