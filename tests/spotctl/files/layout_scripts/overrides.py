"""python overrides.py lr=0.1 resume=out/last.pt"""

import os
import sys

import torch

cfg = {"out": "out", "lr": 0.05, "steps": 3000, "save_every": 25, "resume": ""}
for override in sys.argv[1:]:
    key, _, value = override.partition("=")
    cfg[key] = type(cfg[key])(value)

net = torch.nn.Linear(5, 5, bias=False)
optimizer = torch.optim.SGD(net.parameters(), lr=cfg["lr"], momentum=0.9)
start = 0
if cfg["resume"]:
    state = torch.load(cfg["resume"])
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    start = state["step"]
os.makedirs(cfg["out"], exist_ok=True)
for step in range(start, cfg["steps"]):
    x = torch.randn(8, 5)
    optimizer.zero_grad()
    (net(x) - x.flip(1)).square().mean().backward()
    optimizer.step()
    if step % cfg["save_every"] == cfg["save_every"] - 1:
        state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
        torch.save(state, os.path.join(cfg["out"], "last.pt"))
