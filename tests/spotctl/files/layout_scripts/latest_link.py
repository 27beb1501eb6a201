import os

import torch

root = os.environ.get("SPOTCTL_CHECKPOINT_DIR", "checkpoints")
net = torch.nn.Linear(5, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
epoch = 0
latest = os.path.join(root, "latest")
if os.path.exists(latest):
    state = torch.load(os.path.join(latest, "all.pt"))
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    epoch = state["epoch"]
while epoch < 500:
    for _ in range(6):
        optimizer.zero_grad()
        net(torch.randn(3, 5)).square().sum().backward()
        optimizer.step()
    epoch += 1
    folder = os.path.join(root, f"epoch{epoch:04d}")
    os.makedirs(folder, exist_ok=True)
    torch.save(
        {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, os.path.join(folder, "all.pt")
    )
    link = os.path.join(root, "latest.new")
    if os.path.lexists(link):
        os.unlink(link)
    os.symlink(os.path.basename(folder), link)
    os.replace(link, latest)
