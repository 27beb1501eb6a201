"""An image classifier of one's own: a small convolutional network on drawn digits of 8 x 8 pixels."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

from agileml.torch import TorchModule

FONT = "757576 262227 717476 717176 557111 747176 747575 711244 757575 757174".split()
"""Each digit as the rows of a drawing, with three pixels a row in an octal number."""


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(192, 10),
        )

    def forward(self, images):
        return self.layers(images)


def drawings():
    digits = torch.tensor([[[int(row) >> bit & 1 for bit in (2, 1, 0)] for row in digit] for digit in FONT])
    labels = torch.randint(10, (1200,))
    images = 0.3 * torch.randn(len(labels), 1, 8, 8)
    places = zip(torch.randint(3, (len(labels),)).tolist(), torch.randint(6, (len(labels),)).tolist(), strict=True)
    for image, label, (row, column) in zip(images, labels.tolist(), places, strict=True):
        image[0, row : row + 6, column : column + 3] += digits[label]
    return TensorDataset(images, labels)


def objective(net, batch):
    images, labels = batch
    return nn.functional.cross_entropy(net(images), labels)


def trainer(rate=0.02):
    def optimizer(net):
        return torch.optim.AdamW(net.parameters(), lr=rate)

    return TorchModule(Classifier, drawings, objective, optimizer, batch_size=96, parts=4, name="digits")
