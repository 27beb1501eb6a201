import os

import torch
import torch.distributed.checkpoint as dcp

FOLDER = "dcp"
net = torch.nn.Linear(16, 16)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
step = 0
folders = sorted(os.listdir(FOLDER), key=int) if os.path.isdir(FOLDER) else []
if folders:
    state = {"net": net.state_dict(), "step": torch.tensor(0)}
    dcp.load(state, checkpoint_id=os.path.join(FOLDER, folders[-1]))
    net.load_state_dict(state["net"])
    step = int(state["step"])
while step < 10000:
    optimizer.zero_grad()
    net(torch.randn(4, 16)).square().mean().backward()
    optimizer.step()
    step += 1
    if step % 30 == 0:
        dcp.save({"net": net.state_dict(), "step": torch.tensor(step)}, checkpoint_id=os.path.join(FOLDER, str(step)))
