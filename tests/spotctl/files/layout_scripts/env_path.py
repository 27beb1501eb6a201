import os
import sys

import torch

snapshots = os.getenv("OUT_DIR", "snapshots")
resume_from = os.getenv("RESUME_FROM")
model = torch.nn.GRU(5, 7)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.8)
step = 0
if resume_from:
    print("loading", resume_from, file=sys.stderr)
    bundle = torch.load(resume_from)
    model.load_state_dict(bundle["model"])
    optimizer.load_state_dict(bundle["optimizer"])
    step = bundle["step"]
os.makedirs(snapshots, exist_ok=True)
while step < 2500:
    sequence = torch.randn(9, 3, 5)
    output, _ = model(sequence)
    optimizer.zero_grad()
    (output.mean(2) - sequence.mean(2)).abs().mean().backward()
    optimizer.step()
    step += 1
    if step % 20 == 0:
        bundle = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(bundle, os.path.join(snapshots, f"step-{step}.pt"))
