"""Topics of documents."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import agileml
from agileml.apps.lda import Corpus, TopicModel, generate_corpus, read_corpus
from agileml.errors import BadArgument
from agileml.params.layout import Params
from agileml.reference import iterate, model_digest

SMALL_LDA = TopicModel(topics=4, documents=90, words=60, length=30, parts=3)


def recounted(params: Params, corpus: Corpus) -> Params:
    """The counts of the topics that words are assigned."""
    words = np.zeros((corpus.vocabulary, SMALL_LDA.topics), np.int32)
    np.add.at(words, (corpus.words, params["assigned"]), 1)
    return {"words": words, "totals": words.sum(axis=0)[None, :]}


def test_topics_are_found_and_counts_stay_exact() -> None:
    corpus = generate_corpus(90, 60, 30, 4, 10, 0)
    seen = []
    for _, params, loss in islice(iterate(SMALL_LDA, 7, partitions=4), 31):
        seen.append(loss)
        for name, counts in recounted(params, corpus).items():
            assert np.array_equal(params[name], counts)
    assert seen[0] > 3
    assert seen[-1] < 2.4


def test_topics_are_drawn_with_the_probabilities_of_collapsed_gibbs_sampling() -> None:
    # One document has two words, and one of them is held out; the others only shape the counts.
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
