"""Documents as numbers of words, some of which are held out to test what was learned."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agileml.errors import BadArgument

Numbers = NDArray[np.int64]

_WORD = re.compile(r"[^\W\d_]{3,}")
LEAST_OCCURRENCES = 3
"""Rarer words of a file say nothing about topics."""
MOST_DOCUMENTS = 0.25
"""Words in more than this fraction of a file's documents say as little."""


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """The words of all documents in one array, with the document of each and its place there; held-out words apart."""

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

    def held_span(self, first: int, last: int) -> slice:
        """Where their held-out words are."""
        return slice(*np.searchsorted(self.held_document, (first, last)).tolist())


@lru_cache(maxsize=2)
def generate_corpus(documents: int, words: int, length: int, topics: int, held_out: int, seed: int) -> Corpus:
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
        raise BadArgument(f"{file}: {problem}; name a text file with one document per line") from None
    documents = [_WORD.findall(line.lower()) for line in lines]
    total: dict[str, int] = {}
    spread: dict[str, int] = {}
    for document in documents:
        for word in document:
            total[word] = total.get(word, 0) + 1
        for word in set(document):
            spread[word] = spread.get(word, 0) + 1
    common = MOST_DOCUMENTS * len(documents)
    names = sorted(word for word in total if total[word] >= LEAST_OCCURRENCES and spread[word] <= max(common, 2))
    numbers = {word: number for number, word in enumerate(names)}
    known = [[numbers[word] for word in document if word in numbers] for document in documents]
    texts = [np.array(document) for document in known if len(document) > 1]
    if not texts:
        raise BadArgument(f"{file}: no line has two words that occur at least {LEAST_OCCURRENCES} times")
    return _hold_out(texts, len(names), held_out, tuple(names))


def _hold_out(texts: Sequence[Numbers], vocabulary: int, held_out: int, names: tuple[str, ...] = ()) -> Corpus:
    """Holds out one of `held_out` words of every document, and its last one."""
    words = np.concatenate(texts).astype(np.int64)
    lengths = np.array([len(text) for text in texts])
    document = np.repeat(np.arange(len(texts)), lengths)
    place = np.arange(len(words)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    held = (place % held_out == held_out - 1) | (place == lengths[document] - 1)
    return Corpus(
        vocabulary, len(texts), words[~held], document[~held], place[~held], words[held], document[held], names
    )
