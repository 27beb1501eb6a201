"""A recurrent language model that is trained by hand, in the manner of PyTorch's example of one."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

WORDS, BPTT, BATCH, CLIP = 30, 10, 8, 0.25
torch.manual_seed(2)


class RNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(WORDS, 16)
        self.rnn = nn.LSTM(16, 16)
        self.decoder = nn.Linear(16, WORDS)

    def forward(self, words):
        output, _ = self.rnn(self.encoder(words))
        return F.log_softmax(self.decoder(output), dim=2).flatten(0, 1)


def corpus(length, seed):
    drawn = torch.Generator().manual_seed(seed)
    return torch.cumsum(torch.randint(1, 4, (length,), generator=drawn), 0) % WORDS


def batchify(source, size):
    rows = len(source) // size
    return source[: rows * size].view(size, -1).t().contiguous()


train_data, val_data = batchify(corpus(1608, 1), BATCH), batchify(corpus(168, 2), BATCH)
model = RNNModel()
criterion = nn.NLLLoss()


def get_batch(source, start):
    return source[start : start + BPTT], source[start + 1 : start + 1 + BPTT].reshape(-1)


def evaluate(source):
    model.eval()
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(source) - 1, BPTT):
            data, targets = get_batch(source, start)
            total += len(data) * criterion(model(data), targets).item()
    return total / (len(source) - 1)


lr = 5.0
for epoch in range(1, 4):
    model.train()
    for start in range(0, len(train_data) - 1, BPTT):
        data, targets = get_batch(train_data, start)
        model.zero_grad()
        loss = criterion(model(data), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
    val_loss = evaluate(val_data)
    print(f"epoch {epoch} ppl {math.exp(val_loss):8.2f}")
