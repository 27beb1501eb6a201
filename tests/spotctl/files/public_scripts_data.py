"""Small synthetic data, in the places where the public scripts look for theirs. Nothing is
downloaded.
"""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import numpy as np

_WORDS = [f"word{number}" for number in range(60)]
_MNIST_IMAGES, _SIDE = 60_000, 28


def images(folder: Path) -> None:
    """Two classes of colours, in the tree that torchvision's `ImageFolder` reads."""
    from PIL import Image

    numbers = np.random.default_rng(1)
    for part, count in (("train", 120), ("val", 8)):
        for label, least in (("dark", 0), ("light", 128)):
            place = folder / "imagenet" / part / label
            place.mkdir(parents=True)
            for number in range(count):
                pixels = numbers.integers(least, least + 128, (64, 64, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{number}.png")


def sentences(folder: Path) -> None:
    """A few thousand lines of text."""
    numbers, place = random.Random(1), folder / "data" / "wikitext-2"
    place.mkdir(parents=True)
    for part, count in (("train", 4000), ("valid", 100)):
        lines = [" ".join(numbers.choices(_WORDS, k=20)) for _ in range(count)]
        (place / f"{part}.txt").write_text("\n".join(lines) + "\n")


def pairs(folder: Path) -> None:
    """Pairs of sentences of one length, as a data set on disk, and a tiny BERT with random weights
    for them.
    """
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    numbers, place = random.Random(1), folder / "nyu-mll" / "glue"
    (place / "mrpc").mkdir(parents=True)
    files = [{"split": part, "path": f"mrpc/{part}.jsonl"} for part in ("train", "validation")]
    configs = {"configs": [{"config_name": "mrpc", "data_files": files}]}
    (place / "README.md").write_text(f"---\n{json.dumps(configs)}\n---\n")
    for part, count in (("train", 1600), ("validation", 20)):
        rows = [
            {f"sentence{side}": " ".join(numbers.choices(_WORDS, k=10)) for side in (1, 2)}
            | {"label": number % 2}
            for number in range(count)
        ]
        (place / "mrpc" / f"{part}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows)
        )
    bert = folder / "tiny-bert"
    bert.mkdir()
    (bert / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_WORDS]) + "\n"
    )
    BertTokenizerFast(vocab_file=str(bert / "vocab.txt")).save_pretrained(bert)
    torch.manual_seed(1)
    size = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    BertForSequenceClassification(BertConfig(**size, intermediate_size=128)).save_pretrained(bert)


def digits(folder: Path) -> None:
    """MNIST's files with random pixels; the script's split needs all 60,000 of them."""
    place, numbers = folder / "MNIST" / "raw", np.random.default_rng(1)
    place.mkdir(parents=True)
    pixels = numbers.integers(0, 256, _MNIST_IMAGES * _SIDE**2, dtype=np.uint8).tobytes()
    header = struct.pack(">iiii", 0x803, _MNIST_IMAGES, _SIDE, _SIDE)
    (place / "train-images-idx3-ubyte").write_bytes(header + pixels)
    (place / "train-labels-idx1-ubyte").write_bytes(
        struct.pack(">ii", 0x801, _MNIST_IMAGES) + bytes(_MNIST_IMAGES)
    )
    for name in ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
        (place / name).touch()


def nothing(_: Path) -> None:
    """The script makes its own."""
