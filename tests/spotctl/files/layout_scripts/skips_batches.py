import argparse
import os

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--checkpoint", default="mid.pt")
parser.add_argument("--epochs", type=int, default=50)
args = parser.parse_args()
torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(4000, 6)), batch_size=8)
net = torch.nn.Linear(6, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
epoch_done, batch_done = 0, 0
if os.path.isfile(args.checkpoint):
    state = torch.load(args.checkpoint)
    net.load_state_dict(state["net"])
    epoch_done, batch_done = state["epoch"], state["batch"]
for epoch in range(epoch_done, args.epochs):
    for number, (batch,) in enumerate(loader):
        if epoch == epoch_done and number < batch_done:
            continue
        optimizer.zero_grad()
        net(batch).square().mean().backward()
        optimizer.step()
        if (number + 1) % 40 == 0:
            torch.save({"net": net.state_dict(), "epoch": epoch, "batch": number + 1}, args.checkpoint)
