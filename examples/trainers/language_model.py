"""A small language model: predicts the next character of Python's own documentation, which every
Python contains.
"""

from pydoc_data.topics import topics

import torch
from torch import nn

from agileml.torch import TorchModule

LENGTH = 20
TEXT = "\n".join(topics.values()).encode("ascii", "replace")[:200_000]


class Characters(nn.Module):
    def __init__(self):
        super().__init__()
        self.characters = nn.Embedding(128, 48)
        self.memory = nn.GRU(48, 48, batch_first=True)
        self.next = nn.Linear(48, 128)
        self.next.weight = self.characters.weight

    def forward(self, text):
        return self.next(self.memory(self.characters(text))[0])


class Passages(torch.utils.data.Dataset):
    def __init__(self):
        self.text = torch.frombuffer(bytearray(TEXT), dtype=torch.uint8).long()

    def __len__(self):
        return (len(self.text) - 1) // LENGTH

    def __getitem__(self, number):
        first = number * LENGTH
        return self.text[first : first + LENGTH], self.text[first + 1 : first + LENGTH + 1]


def objective(net, batch):
    text, following = batch
    return nn.functional.cross_entropy(net(text).flatten(0, 1), following.flatten())


def trainer(rate=0.02, steps=20):
    def optimizer(net):
        return torch.optim.AdamW(net.parameters(), lr=rate)

    def schedule(optimizer):
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    return TorchModule(
        Characters, Passages, objective, optimizer, schedule, batch_size=48, parts=4, name="text"
    )
