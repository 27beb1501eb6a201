import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(90, 6)), 8)
net = torch.nn.Linear(6, 1)
opt = torch.optim.Adam(net.parameters(), lr=0.01)
for i, (x,) in enumerate(loader):
    loss = net(x).square().mean() / 4
    loss.backward()
    if (i + 1) % 4 == 0 or (i + 1) == len(loader):
        opt.step()
        opt.zero_grad()
