"""Character model. Settings are globals; `--name=value` on the command line replaces one."""

import os
import sys
from ast import literal_eval

import torch

out_dir = "out-char"
eval_interval = 50
log_interval = 10
init_from = "scratch"  # or "resume"
max_iters = 6000
learning_rate = 1e-3
for word in sys.argv[1:]:
    name, value = word.lstrip("-").split("=")
    assert name in globals(), name
    try:
        globals()[name] = literal_eval(value)
    except (ValueError, SyntaxError):
        globals()[name] = value

os.makedirs(out_dir, exist_ok=True)
net = torch.nn.Sequential(torch.nn.Embedding(32, 16), torch.nn.Linear(16, 32))
optimizer = torch.optim.AdamW(net.parameters(), lr=learning_rate)
iter_num, best_val_loss = 0, 1e9
if init_from == "resume":
    ckpt_path = os.path.join(out_dir, "ckpt.pt")
    checkpoint = torch.load(ckpt_path)
    net.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    iter_num = checkpoint["iter_num"]
    best_val_loss = checkpoint["best_val_loss"]

local_iter_num = 0
for iter_num in range(iter_num, max_iters):
    if iter_num % eval_interval == 0 and iter_num > 0:
        with torch.no_grad():
            text = torch.randint(32, (64,))
            val = torch.nn.functional.cross_entropy(net(text), text).item()
        best_val_loss = min(best_val_loss, val)
        torch.save(
            {
                "model": net.state_dict(),
                "optimizer": optimizer.state_dict(),
                "iter_num": iter_num,
                "best_val_loss": best_val_loss,
            },
            os.path.join(out_dir, "ckpt.pt"),
        )
    text = torch.randint(32, (64,))
    loss = torch.nn.functional.cross_entropy(net(text), text)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    pass
    local_iter_num += 1
