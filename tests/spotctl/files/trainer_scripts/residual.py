import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        return x + torch.relu(self.norm(self.conv(x)))


torch.manual_seed(0)
data = torch.randn(64, 4, 10)
loader = DataLoader(TensorDataset(data, (data.mean((1, 2)) > 0).long()), batch_size=16, shuffle=True)
model = nn.Sequential(Block(4), Block(4), nn.Flatten(), nn.Linear(40, 2))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
try:
    for epoch in range(5):
        total = right = 0
        for inputs, labels in loader:
            optimizer.zero_grad()
            outputs = model(inputs)
            loss = criterion(outputs, labels)
            loss.backward()
            optimizer.step()
            right += (outputs.argmax(1) == labels).sum().item()
            total += len(labels)
        print(f"epoch {epoch}: {right / total:.1%}")
except KeyboardInterrupt:
    print("stopped")
