"""The network of the word language model."""

import torch.nn as nn
import torch.nn.functional as F


class RNNModel(nn.Module):
    def __init__(self, rnn_type, ntoken, ninp):
        super().__init__()
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = getattr(nn, rnn_type)(ninp, ninp)
        self.decoder = nn.Linear(ninp, ntoken)

    def forward(self, words):
        output, _ = self.rnn(self.encoder(words))
        return F.log_softmax(self.decoder(output), dim=2).flatten(0, 1)
