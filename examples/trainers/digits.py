"""An image classifier of one's own: a small convolutional network on scikit-learn's handwritten
digits of 8 x 8 pixels.

pip install '.[torch]' scikit-learn
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from agileml.torch import TorchModule

TRAINED = 1500
"""Images to train on, of 1,797; the others show how well the network recognizes digits."""


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


def digits(which=slice(TRAINED)):
    data = load_digits()
    images = torch.tensor(data.images[which, None], dtype=torch.float32) / 16
    return TensorDataset(images, torch.tensor(data.target[which]))


def objective(net, batch):
    images, labels = batch
    return nn.functional.cross_entropy(net(images), labels)


def trainer(rate=0.02):
    def optimizer(net):
        return torch.optim.AdamW(net.parameters(), lr=rate)

    return TorchModule(
        Classifier, digits, objective, optimizer, batch_size=96, parts=4, name="digits"
    )
