import torch
from torch.utils.data import DataLoader, TensorDataset

features, wanted = torch.randn(256, 10), torch.randn(256, 1)
loader = DataLoader(TensorDataset(features, wanted), batch_size=32, shuffle=True)
model = torch.nn.Linear(10, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 50)
for epoch in range(500):
    for feature, target in loader:
        optimizer.zero_grad()
        loss = (model(feature) - target).square().mean()
        loss.backward()
        optimizer.step()
    scheduler.step()
torch.save(model.state_dict(), "model.pt")
print("final loss", loss.item())
