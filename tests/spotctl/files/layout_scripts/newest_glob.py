import glob
import os
import re

import torch

OUT = "snapshots"
os.makedirs(OUT, exist_ok=True)
net = torch.nn.Linear(5, 2)
optim = torch.optim.RMSprop(net.parameters())
done = 0
found = sorted(glob.glob(OUT + "/step*.pt"), key=lambda name: int(re.findall(r"\d+", name)[-1]))
if found:
    snapshot = torch.load(found[-1])
    net.load_state_dict(snapshot["net"])
    optim.load_state_dict(snapshot["optim"])
    done = snapshot["step"]
for step in range(done + 1, 100001):
    optim.zero_grad()
    net(torch.randn(9, 5)).square().sum().backward()
    optim.step()
    if step % 25 == 0:
        torch.save({"net": net.state_dict(), "optim": optim.state_dict(), "step": step}, f"{OUT}/step{step}.pt")
