import torch
from torch import nn

text = torch.randint(0, 9, (500,))
model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 9))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def get_batch():
    ix = torch.randint(len(text) - 9, (12,))
    return torch.stack([text[i : i + 8] for i in ix]), torch.stack([text[i + 1 : i + 9] for i in ix])


for step in range(100):
    x, y = get_batch()
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
