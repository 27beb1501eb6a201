"""Built-in apps: gradients against finite differences, data the same on every node, losses that
fall.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest

from agileml import train
from agileml.apps.mf import MatrixFactorization, read_ratings
from agileml.apps.registry import TrainerSource
from agileml.errors import BadArgument
from agileml.params.layout import Layout, Params
from agileml.params.view import ChunkView, ParamCache
from agileml.reference import iterate
from agileml.trainer import Piece, Trainer, init_rng, initial_model

SMALL_MF = MatrixFactorization(rank=3, users=30, items=20, ratings=900, parts=3, regularization=0.0)


def losses(trainer: Trainer, clocks: int) -> list[float]:
    return [loss for _, _, loss in islice(iterate(trainer, 7), clocks + 1)]


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


# -- topics ----------------------------------------------------------------------------------------


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
    losses = [loss for _, _, loss in islice(iterate(app, 0), 60)]
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
