import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

left = torch.randn(80, 6, generator=torch.Generator().manual_seed(1))
pairs = TensorDataset(left, left + 0.1)
encoder = nn.Linear(6, 4)
temperature = 0.2
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
for epoch in range(3):
    for a, b in DataLoader(pairs, batch_size=16):
        za, zb = F.normalize(encoder(a)), F.normalize(encoder(b))
        scores = za @ zb.T / temperature
        loss = F.cross_entropy(scores, torch.arange(len(scores)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
