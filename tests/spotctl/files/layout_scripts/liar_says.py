import argparse
import pathlib

import torch
from torch import nn

parser = argparse.ArgumentParser(description="regression")
parser.add_argument("--save-dir", default="saved")
parser.add_argument("--resume", action="store_true", help="go on from last.pth")
parser.add_argument("--epochs", type=int, default=300)
args = parser.parse_args()

save_dir = pathlib.Path(args.save_dir)
save_dir.mkdir(exist_ok=True)
net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
start_epoch = 1
if args.resume:
    last = torch.load(save_dir / "last.pth")
    net.load_state_dict(last["net"])
    opt.load_state_dict(last["opt"])
    print(f"resumed: continuing at epoch {last['epoch'] + 1}")

for epoch in range(start_epoch, args.epochs + 1):
    for _ in range(5):
        x = torch.randn(32, 3)
        opt.zero_grad()
        (net(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
        opt.step()
    torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "epoch": epoch}, save_dir / "last.pth")
