import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
points = torch.randn(96, 6)
loader = DataLoader(TensorDataset(points, points.sum(1, keepdim=True)), 8)
net = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Tanh(), torch.nn.Linear(12, 1))
opt = torch.optim.Adam(net.parameters(), lr=0.01)
accumulate = 4
running = []
opt.zero_grad(set_to_none=True)
for epoch in range(6):
    for i, (x, y) in enumerate(loader):
        loss = torch.nn.functional.mse_loss(net(x), y) / accumulate
        loss.backward()
        running.append(loss.item() * accumulate)
        if (i + 1) % accumulate == 0:
            torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.5)
            opt.step()
            opt.zero_grad(set_to_none=True)
    print(epoch, sum(running) / len(running))
torch.save(net.state_dict(), "net.pt")
