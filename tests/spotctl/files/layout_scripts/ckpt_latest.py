import argparse
from pathlib import Path

import torch

p = argparse.ArgumentParser()
p.add_argument("--logdir", type=Path, default=Path("logs"))
p.add_argument("--ckpt", default="", help="a file, or 'latest'")
p.add_argument("--iterations", type=int, default=3000)
a = p.parse_args()

policy = torch.nn.Linear(4, 2)
optim = torch.optim.Adam(policy.parameters(), 1e-3)
it = 0
if a.ckpt:
    found = sorted(a.logdir.glob("model_*.pt"), key=lambda f: int(f.stem[6:]))
    source = found[-1] if a.ckpt == "latest" else Path(a.ckpt)
    loaded = torch.load(source)
    policy.load_state_dict(loaded["policy"])
    optim.load_state_dict(loaded["optim"])
    it = loaded["iter"]
a.logdir.mkdir(parents=True, exist_ok=True)
for it in range(it, a.iterations):
    obs = torch.randn(64, 4)
    loss = -(policy(obs).log_softmax(-1)[:, 0] * obs.sum(1)).mean()
    optim.zero_grad()
    loss.backward()
    optim.step()
    if (it + 1) % 30 == 0:
        torch.save(
            {"policy": policy.state_dict(), "optim": optim.state_dict(), "iter": it + 1},
            a.logdir / f"model_{it + 1}.pt",
        )
