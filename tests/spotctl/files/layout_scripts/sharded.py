"""Each part of the state is a file of a folder per step; the newest whole folder is loaded."""

import os

import torch

ROOT = "shards"
PARTS = 3
layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(PARTS))
optimizer = torch.optim.Adam(layers.parameters(), lr=1e-3)
step = 0
whole = (
    [name for name in os.listdir(ROOT) if os.path.exists(os.path.join(ROOT, name, "DONE"))]
    if os.path.isdir(ROOT)
    else []
)
if whole:
    newest = max(whole, key=lambda name: int(name.removeprefix("step-")))
    for number, layer in enumerate(layers):
        layer.load_state_dict(torch.load(os.path.join(ROOT, newest, f"part-{number}.pt")))
    rest = torch.load(os.path.join(ROOT, newest, "rest.pt"))
    optimizer.load_state_dict(rest["optimizer"])
    step = rest["step"]
while step < 9000:
    value = torch.randn(4, 8)
    for layer in layers:
        value = torch.tanh(layer(value))
    optimizer.zero_grad()
    value.square().mean().backward()
    optimizer.step()
    step += 1
    if step % 20 == 0:
        folder = os.path.join(ROOT, f"step-{step}")
        os.makedirs(folder, exist_ok=True)
        for number, layer in enumerate(layers):
            torch.save(layer.state_dict(), os.path.join(folder, f"part-{number}.pt"))
        torch.save({"optimizer": optimizer.state_dict(), "step": step}, os.path.join(folder, "rest.pt"))
        open(os.path.join(folder, "DONE"), "w").close()
