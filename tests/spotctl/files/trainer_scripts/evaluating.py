import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def evaluate():
    model.eval()
    with torch.no_grad():
        return (model(data.tensors[0]) - data.tensors[1]).pow(2).mean().item()


for epoch in range(3):
    for x, y in DataLoader(data, batch_size=16):
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(evaluate())
