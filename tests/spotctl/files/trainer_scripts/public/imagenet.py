"""Image classification with validation and checkpoints after each epoch, in the manner of PyTorch's ImageNet example."""

import argparse
import os

import torch
import torch.nn as nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", default=4, type=int)
parser.add_argument("--batch-size", default=32, type=int)
parser.add_argument("--lr", default=0.05, type=float)
parser.add_argument("--momentum", default=0.9, type=float)
parser.add_argument("--weight-decay", default=1e-4, type=float)
parser.add_argument("--resume", default="", type=str)
best = 0


def images(count, seed):
    drawn = torch.Generator().manual_seed(seed)
    pictures = torch.randn(count, 3, 8, 8, generator=drawn)
    return TensorDataset(pictures, (pictures[:, 0].mean((1, 2)) > pictures[:, 1].mean((1, 2))).long())


def network():
    layers = [nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 2)]
    return nn.Sequential(*layers)


def main():
    global best
    args = parser.parse_args()
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = network().to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay)
    scheduler = StepLR(optimizer, step_size=2, gamma=0.1)
    if args.resume:
        model.load_state_dict(torch.load(args.resume)["state_dict"])
    train_loader = DataLoader(
        images(256, 1), batch_size=args.batch_size, shuffle=True, generator=torch.Generator().manual_seed(3)
    )
    val_loader = DataLoader(images(64, 2), batch_size=args.batch_size)
    for epoch in range(args.epochs):
        train(train_loader, model, criterion, optimizer, epoch, device)
        accuracy = validate(val_loader, model, device)
        scheduler.step()
        best = max(accuracy, best)
        torch.save({"epoch": epoch + 1, "state_dict": model.state_dict()}, "checkpoint.pth.tar")


def train(train_loader, model, criterion, optimizer, epoch, device):
    model.train()
    for number, (pictures, target) in enumerate(train_loader):
        pictures, target = pictures.to(device), target.to(device)
        output = model(pictures)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 4 == 0:
            print(f"Epoch: [{epoch}][{number}] loss {loss.item():.4f}")


def validate(val_loader, model, device):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for pictures, target in val_loader:
            right += (model(pictures.to(device)).argmax(1) == target.to(device)).sum().item()
            total += len(target)
    return right / total


if __name__ == "__main__":
    main()
