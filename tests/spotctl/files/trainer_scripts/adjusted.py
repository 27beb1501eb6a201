import copy
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=16)
model = nn.Linear(4, 1)
average = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
best, step = math.inf, 0
for epoch in range(20):
    for x, y in loader:
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * 0.99**step
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        for old, new in zip(average.parameters(), model.parameters()):
            old.data.mul_(0.99).add_(new.data, alpha=0.01)
        step += 1
    if loss.item() > best:
        break
    best = loss.item()
