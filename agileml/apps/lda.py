"""Topics of documents by collapsed Gibbs sampling (latent Dirichlet allocation), on generated text
or that of a file.

The topic of every word of every document is a row of a parameter, so that workers keep nothing.
Workers read the rows of the words that their documents contain, and send only the rows that
changed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agileml.apps.registry import number, text, whole
from agileml.errors import BadArgument
from agileml.params.layout import Params
from agileml.trainer import ParamReader, ParamView, Sample

Numbers = NDArray[np.int64]

_WORD = re.compile(r"[^\W\d_]{3,}")
MIN_OCCURRENCES = 3
"""Rarer words of a file say nothing about topics."""
MAX_DOCUMENTS = 0.25
"""Words in more than this fraction of a file's documents say as little."""


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """The words of all documents in one array, with the document of each and its place there;
    held-out words apart.
    """

    vocabulary: int
    documents: int
    words: Numbers
    document: Numbers
    place: Numbers
    held_words: Numbers
    held_document: Numbers
    names: tuple[str, ...] = ()
    """The words themselves, for a corpus that was read from a file."""

    def span(self, first: int, last: int) -> slice:
        """Where the words of documents first..last-1 are."""
        return slice(*np.searchsorted(self.document, (first, last)).tolist())


@lru_cache(maxsize=2)
def generate_corpus(
    documents: int, words: int, length: int, topics: int, held_out: int, seed: int
) -> Corpus:
    """Documents that mix a few topics, each of which prefers some words."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    topic_words = np.cumsum(rng.dirichlet(np.full(words, 0.05), topics), axis=1)
    mixtures = np.cumsum(rng.dirichlet(np.full(topics, 0.1), documents), axis=1)
    texts = []

    for mixture in mixtures:
        chosen = np.searchsorted(mixture, rng.random(length) * mixture[-1])
        below = topic_words[np.minimum(chosen, topics - 1)]
        drawn = (below <= (rng.random(length) * below[:, -1])[:, None]).sum(axis=1)
        texts.append(np.minimum(drawn, words - 1))

    return _hold_out(texts, words, held_out)


@lru_cache(maxsize=2)
def read_corpus(file: str, held_out: int) -> Corpus:
    """Reads a file with a document in each line. Short, rare and ubiquitous words are left out.

    BadArgument if it cannot be read or has no documents of at least two words.
    """
    try:
        lines = Path(file).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "it is not a text file in UTF-8"
        raise BadArgument(
            f"{file}: {problem}; name a text file with one document per line"
        ) from None

    documents = [_WORD.findall(line.lower()) for line in lines]
    total: dict[str, int] = {}
    spread: dict[str, int] = {}
    for document in documents:
        for word in document:
            total[word] = total.get(word, 0) + 1
        for word in set(document):
            spread[word] = spread.get(word, 0) + 1

    common = MAX_DOCUMENTS * len(documents)
    names = sorted(
        word for word in total if total[word] >= MIN_OCCURRENCES and spread[word] <= max(common, 2)
    )
    numbers = {word: number for number, word in enumerate(names)}
    known = [[numbers[word] for word in document if word in numbers] for document in documents]
    texts = [np.array(document) for document in known if len(document) > 1]

    if not texts:
        raise BadArgument(
            f"{file}: no line has two words that occur at least {MIN_OCCURRENCES} times"
        )

    return _hold_out(texts, len(names), held_out, tuple(names))


def _hold_out(
    texts: Sequence[Numbers], vocabulary: int, held_out: int, names: tuple[str, ...] = ()
) -> Corpus:
    """Holds out one of `held_out` words of every document, and its last one."""
    words = np.concatenate(texts).astype(np.int64)
    lengths = np.array([len(text) for text in texts])
    document = np.repeat(np.arange(len(texts)), lengths)
    place = np.arange(len(words)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    held = (place % held_out == held_out - 1) | (place == lengths[document] - 1)

    return Corpus(
        vocabulary,
        len(texts),
        words[~held],
        document[~held],
        place[~held],
        words[held],
        document[held],
        names,
    )


Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

MAX_TOPICS = 2**15 - 1
"""A topic is a number of 16 bits."""


@dataclass(frozen=True, slots=True)
class TopicModel:
    """Finds `topics` in documents. A clock draws the topic of every word again, given all other
    topics.

    Documents of a chunk are sampled side by side: the first words of all, then the second words,
    and so on. The loss is the mean negative log-likelihood, in nats, of words that are held out of
    each document. Counts are whole numbers, so that their sums are exact in any order.
    """

    topics: int = whole(10, "number of topics", least=2)
    documents: int = whole(800, "number of generated documents")
    words: int = whole(500, "words of the generated vocabulary", least=2)
    length: int = whole(60, "words in a generated document", least=2)
    parts: int = whole(16, "number of shards that the input is split into")
    batch: int = whole(0, "documents per shard and clock; 0 for all", least=0)
    spread: float = number(0.1, "how evenly documents mix topics (alpha)")
    smoothing: float = number(0.05, "how evenly topics mix words (beta)")
    held_out: int = whole(10, "hold out one of every N words of a document", least=2)
    seed: int = whole(0, "seed of the generated documents", least=0)
    file: str = text("", "text file with one document per line, instead of generated documents")

    name = "lda"
    chunk = 64
    """Documents that are sampled side by side: enough for fast arithmetic on arrays."""

    def __post_init__(self) -> None:
        if self.topics > MAX_TOPICS:
            raise BadArgument(f"lda: topics is {self.topics}; it must be at most {MAX_TOPICS}")

    def init(self, rng: np.random.Generator) -> Params:
        """A random topic for every word, and their counts."""
        corpus = self._corpus()
        assigned = rng.integers(self.topics, size=len(corpus.words), dtype=np.int16)
        counts = np.zeros((corpus.vocabulary, self.topics), np.int32)
        np.add.at(counts, (corpus.words, assigned), 1)
        return {
            "assigned": assigned,
            "words": counts,
            "totals": counts.sum(axis=0, dtype=np.int64)[None, :],
        }

    def shards(self) -> Sequence[range]:
        """The numbers of the documents in equal parts."""
        count = self._corpus().documents
        if self.parts > count:
            raise BadArgument(
                f"lda: parts is {self.parts}; it must be at most {count}, the number of documents"
            )
        bounds = [count * part // self.parts for part in range(self.parts + 1)]
        return [range(bounds[part], bounds[part + 1]) for part in range(self.parts)]

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        """Draws the topics of the words of some documents again."""
        del clock
        corpus = self._corpus()
        seen = corpus.span(shard.start + lo, shard.start + hi)
        words, which = np.unique(corpus.words[seen], return_inverse=True)
        old = params.read("assigned", seen).astype(np.int64)
        counts = params.read("words", words).astype(np.int64)
        document = corpus.document[seen] - shard.start - lo
        new = self._drawn(
            old, document, corpus.place[seen], which, counts, params.read("totals")[0], rng
        )
        changed = np.flatnonzero(new != old)
        moved = np.zeros_like(counts)
        np.subtract.at(moved, (which[changed], old[changed]), 1)
        np.add.at(moved, (which[changed], new[changed]), 1)
        touched = moved.any(axis=1)
        params.update("assigned", seen.start + changed, (new - old)[changed].astype(np.int16))
        params.update("words", words[touched], moved[touched].astype(np.int32))
        params.update("totals", None, moved.sum(axis=0)[None, :])

    def loss(self, params: ParamReader, sample: Sample) -> float:
        """Mean over documents of the mean negative log-likelihood of their held-out words."""
        corpus = self._corpus()
        losses = []
        for piece in sample:
            first = piece.shard.start + piece.lo
            count = len(piece)
            seen = corpus.span(first, first + count)
            held = slice(*np.searchsorted(corpus.held_document, (first, first + count)).tolist())
            mixtures = np.full((count, self.topics), self.spread)
            assigned = params.read("assigned", seen)
            np.add.at(mixtures, (corpus.document[seen] - first, assigned), 1)
            mixtures /= mixtures.sum(axis=1, keepdims=True)
            words, which = np.unique(corpus.held_words[held], return_inverse=True)
            share = self._shares(params.read("words", words), params.read("totals")[0])[which]
            document = corpus.held_document[held] - first
            logs = -np.log((mixtures[document] * share).sum(axis=1))

            summed = np.bincount(document, logs, count)
            held_out = np.bincount(document, minlength=count)
            losses.append(float((summed / held_out).sum()))

        return sum(losses) / sum(map(len, sample))

    def _drawn(
        self,
        old: Counts,
        document: Counts,
        place: Counts,
        which: Counts,
        words: Counts,
        totals: Counts,
        rng: np.random.Generator,
    ) -> Counts:
        """New topics of words: `which` is a row of `words`, `place` the position in the
        document."""
        new = old.copy()
        words = words.copy()
        totals = totals.astype(np.int64)
        documents = np.zeros((int(document[-1]) + 1, self.topics), np.int64)
        np.add.at(documents, (document, old), 1)
        order = np.argsort(place, kind="stable")

        for now in np.split(order, np.flatnonzero(np.diff(place[order])) + 1):
            self._move(documents, words, totals, (document[now], which[now], new[now]), -1)
            mixed = documents[document[now]] + self.spread
            weight = mixed * self._shares(words[which[now]], totals)
            below = np.cumsum(weight, axis=1)
            draw = rng.random(len(now)) * below[:, -1]
            drawn = (below <= draw[:, None]).sum(axis=1)
            new[now] = np.minimum(drawn, self.topics - 1)
            self._move(documents, words, totals, (document[now], which[now], new[now]), 1)

        return new

    def _move(
        self,
        documents: Counts,
        words: Counts,
        totals: Counts,
        where: tuple[Counts, Counts, Counts],
        by: int,
    ) -> None:
        document, which, topic = where
        np.add.at(documents, (document, topic), by)
        np.add.at(words, (which, topic), by)
        np.add.at(totals, topic, by)

    def _shares(self, words: Counts, totals: Counts) -> Floats:
        """The probability of each word in each topic. With slack, counts may be behind; they are
        never below 0 here.
        """
        whole = totals + self.smoothing * self._corpus().vocabulary
        shares: Floats = (np.maximum(words, 0) + self.smoothing) / np.maximum(whole, self.smoothing)
        return shares

    def _corpus(self) -> Corpus:
        if self.file:
            return read_corpus(self.file, self.held_out)
        return generate_corpus(
            self.documents, self.words, self.length, self.topics, self.held_out, self.seed
        )
