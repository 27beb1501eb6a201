import os
from pathlib import Path

import torch

folder = Path(os.environ.get("SPOTCTL_CHECKPOINT_DIR", "ckpt"))
folder.mkdir(exist_ok=True)
net = torch.nn.Linear(5, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
start = 0
if files := list(folder.glob("*.tar")):
    state = torch.load(max(files, key=os.path.getmtime))
    net.load_state_dict(state["model"])
    start = state["epoch"] + 1
for epoch in range(start, 400):
    for _ in range(4):
        optimizer.zero_grad()
        net(torch.randn(3, 5)).square().sum().backward()
        optimizer.step()
    torch.save({"model": net.state_dict(), "epoch": epoch}, folder / f"e{epoch}.tar")
