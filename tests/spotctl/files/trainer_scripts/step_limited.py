import logging
import time

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("train")
MAX_STEPS, WARM = 75, 10


class Sentences(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(4)
        self.words = torch.randint(1, 30, (130, 7), generator=g)
        self.lengths = torch.randint(3, 8, (130,), generator=g)

    def __len__(self):
        return 130

    def __getitem__(self, i):
        return {"ids": self.words[i, : self.lengths[i]], "label": int(self.words[i, 0] % 3)}


def collate(rows):
    ids = nn.utils.rnn.pad_sequence([row["ids"] for row in rows], batch_first=True)
    return {"ids": ids, "mask": (ids > 0).float(), "label": torch.tensor([row["label"] for row in rows])}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 8, padding_idx=0)
        self.norm = nn.LayerNorm(8)
        self.out = nn.Linear(8, 3)

    def forward(self, ids, mask):
        mean = (self.embed(ids) * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
        return self.out(self.norm(mean))


model = Classifier()
decay = [p for n, p in model.named_parameters() if p.ndim > 1]
rest = [p for n, p in model.named_parameters() if p.ndim <= 1]
optimizer = optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=2e-3)
warm = optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=WARM)
cosine = optim.lr_scheduler.CosineAnnealingLR(optimizer, MAX_STEPS - WARM)
scheduler = optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], [WARM])
train_loader = DataLoader(Sentences(), batch_size=20, shuffle=True, collate_fn=collate)

step = 0
started = time.time()
while step < MAX_STEPS:
    for batch in train_loader:
        logits = model(batch["ids"], batch["mask"])
        loss = nn.functional.cross_entropy(logits, batch["label"])
        optimizer.zero_grad()
        loss.backward()
        grad_norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        step += 1
        if step % 25 == 0:
            log.info("step %d, %.3f s", step, time.time() - started)
        if step >= MAX_STEPS:
            break
