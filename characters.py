import torch
from torch import nn


class GPT(nn.Module):
    def __init__(self, size=20, width=16):
        super().__init__()
        self.words = nn.Embedding(size, width)
        self.block = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(width, size, bias=False)

    def forward(self, x):
        return self.head(self.block(self.words(x)))


class Chars(torch.utils.data.Dataset):
    def __init__(self, n=100):
        self.x = torch.randint(0, 20, (n, 9), generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i, :-1], self.x[i, 1:]
