"""The corpus of the word language model: text files, read into numbers of words."""

import os

import torch


class Corpus:
    def __init__(self, path):
        self.dictionary = {}
        self.train = self.tokenize(os.path.join(path, "train.txt"))
        self.valid = self.tokenize(os.path.join(path, "valid.txt"))

    def tokenize(self, path):
        with open(path, encoding="utf8") as f:
            words = [word for line in f for word in [*line.split(), "<eos>"]]
        return torch.tensor([self.dictionary.setdefault(word, len(self.dictionary)) for word in words])
