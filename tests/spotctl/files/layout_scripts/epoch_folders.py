"""A classifier, fine-tuned epoch by epoch; each epoch leaves a folder of its own."""

import argparse
import os

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--output_dir", default="runs")
parser.add_argument("--num_epochs", type=int, default=200)
parser.add_argument("--train_batch_size", type=int, default=64)
parser.add_argument("--resume_from_checkpoint", default=None, help="a folder that an earlier run has left")


def main():
    args = parser.parse_args()
    inputs = torch.randn(512, 12)
    labels = (inputs.sum(1) > 0).long()
    loader = DataLoader(TensorDataset(inputs, labels), args.train_batch_size, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Linear(12, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    first = 0
    if args.resume_from_checkpoint:
        saved = torch.load(os.path.join(args.resume_from_checkpoint, "training.bin"))
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"] + 1
    for epoch in range(first, args.num_epochs):
        for batch, target in loader:
            loss = torch.nn.functional.cross_entropy(model(batch), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.3f}")
        folder = os.path.join(args.output_dir, f"epoch_{epoch}")
        os.makedirs(folder, exist_ok=True)
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch},
            os.path.join(folder, "training.bin"),
        )
    torch.save(model.state_dict(), os.path.join(args.output_dir, "final.bin"))


if __name__ == "__main__":
    main()
