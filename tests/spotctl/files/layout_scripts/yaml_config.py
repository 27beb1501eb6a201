import os

import torch
import yaml

with open("yaml_config.yaml") as file:
    cfg = yaml.safe_load(file)

net = torch.nn.Sequential(torch.nn.Linear(cfg["width"], 16), torch.nn.SiLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=cfg["lr"])
epoch = 0
if cfg["resume"]:
    state = torch.load(os.path.join(cfg["save_dir"], "state.pt"))
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    epoch = state["epoch"]
os.makedirs(cfg["save_dir"], exist_ok=True)
while epoch < cfg["epochs"]:
    for _ in range(6):
        x = torch.randn(10, cfg["width"])
        optimizer.zero_grad()
        (net(x)[:, 0] - x.max(1).values).square().mean().backward()
        optimizer.step()
    epoch += 1
    state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(state, os.path.join(cfg["save_dir"], "state.pt"))
