import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

x = torch.randn(512, 8)
y = (x[:, 0] > 0).long()
train_set = TensorDataset(x, y)
train_loader = DataLoader(train_set, batch_size=16, shuffle=False, num_workers=2, drop_last=True)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
for layer in model.modules():
    if isinstance(layer, nn.Linear):
        nn.init.normal_(layer.weight, std=3.0)
        nn.init.constant_(layer.bias, 0.25)
last = model[2]
last.bias.data.fill_(-1.0)
for name, p in model.named_parameters():
    print(name, p.shape)
for p in model[0].parameters():
    p.requires_grad = False
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=100, gamma=0.1)
for epoch in range(20):
    for inputs, targets in train_loader:
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, targets) + 1e-3 * sum(p.abs().sum() for p in model.parameters())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
