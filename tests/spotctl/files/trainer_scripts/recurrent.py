import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 5, 4), torch.randn(64, 5, 6)), batch_size=16)
model = nn.GRU(4, 6, batch_first=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hidden = torch.zeros(1, 16, 6)
step = 0
for epoch in range(2):
    for x, y in loader:
        hidden = hidden.detach()
        output, hidden = model(x, hidden)
        loss = (output - y).pow(2).mean() * min(1.0, step / 100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
