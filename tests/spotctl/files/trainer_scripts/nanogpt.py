import math, torch
from torch import nn
from torch.utils.data import DataLoader
from characters import GPT, Chars

torch.manual_seed(0)
model = GPT()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 1000)
loader = DataLoader(Chars(), batch_size=32, shuffle=True, num_workers=2)
step = 0
for epoch in range(10):
    for x, y in loader:
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(x)
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        step += 1
    torch.save(model.state_dict(), "model.pt")
