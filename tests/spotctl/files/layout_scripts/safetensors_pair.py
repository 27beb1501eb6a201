import json
import os

import torch
from safetensors.torch import load_file, save_file

OUT = "weights"
os.makedirs(OUT, exist_ok=True)
net = torch.nn.Linear(6, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
done = 0
if os.path.exists(OUT + "/progress.json"):
    net.load_state_dict(load_file(OUT + "/net.safetensors"))
    with open(OUT + "/progress.json") as file:
        done = json.load(file)["step"]
for step in range(done, 6000):
    optimizer.zero_grad()
    (net(torch.randn(8, 6)) - 1).square().mean().backward()
    optimizer.step()
    if step % 40 == 39:
        save_file(net.state_dict(), OUT + "/new.safetensors")
        os.replace(OUT + "/new.safetensors", OUT + "/net.safetensors")
        with open(OUT + "/new.json", "w") as file:
            json.dump({"step": step + 1}, file)
        os.replace(OUT + "/new.json", OUT + "/progress.json")
