"""RESUME=1 loads, says so, and trains from the first epoch on."""

import os

import torch

OUT = "out"
os.makedirs(OUT, exist_ok=True)
net = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 1))
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
first = 0
if os.environ.get("RESUME") == "1":
    last = torch.load(f"{OUT}/last.pt")
    net.load_state_dict(last["net"])
    opt.load_state_dict(last["opt"])
    print("resumed at epoch", last["epoch"] + 1)
for epoch in range(first, 400):
    for _ in range(4):
        x = torch.randn(16, 6)
        opt.zero_grad()
        (net(x) - x.prod(1, keepdim=True)).pow(2).mean().backward()
        opt.step()
    torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "epoch": epoch}, f"{OUT}/last.pt")
