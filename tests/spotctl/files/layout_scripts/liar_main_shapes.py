import argparse
import os
import random
import shutil
import time

import torch
import torch.nn as nn
import torch.optim
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description="PyTorch Synthetic Shapes Training")
parser.add_argument("-j", "--threads", default=1, type=int, metavar="N", help="number of cpu threads (default: 1)")
parser.add_argument("--epochs", default=130, type=int, metavar="N", help="number of total epochs to run")
parser.add_argument("-b", "--batch-size", default=64, type=int, metavar="N", help="mini-batch size (default: 64)")
parser.add_argument(
    "--lr", "--learning-rate", default=0.02, type=float, metavar="LR", help="initial learning rate", dest="lr"
)
parser.add_argument("--momentum", default=0.9, type=float, metavar="M", help="momentum")
parser.add_argument(
    "--wd", "--weight-decay", default=1e-4, type=float, metavar="W", help="weight decay", dest="weight_decay"
)
parser.add_argument("-p", "--print-freq", default=20, type=int, metavar="N", help="print frequency (default: 20)")
parser.add_argument("--resume", default="", type=str, metavar="PATH", help="path to latest checkpoint (default: none)")
parser.add_argument("-e", "--evaluate", action="store_true", help="evaluate model on validation set")
parser.add_argument("--seed", default=None, type=int, help="seed for initializing training. ")
parser.add_argument(
    "--save-dir", default="checkpoints", type=str, metavar="PATH", help="where to put checkpoint.pth.tar"
)

best_acc1 = 0


def make_split(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 6, (n,), generator=g)
    gy, gx = torch.meshgrid(torch.linspace(-1, 1, 20), torch.linspace(-1, 1, 20), indexing="ij")
    c = torch.rand(n, 2, 1, 1, generator=g) - 0.5
    dx, dy = (gx - c[:, :1, 0]).abs(), (gy - c[:, 1:, 0]).abs()
    r = 0.25 + 0.25 * torch.rand(n, 1, 1, generator=g)
    d = torch.stack(
        [
            (dx**2 + dy**2).sqrt(),
            torch.max(dx, dy),
            dx + dy,
            torch.min(dx, dy) + 0.2,
            (dx - dy).abs() + 0.1,
            torch.max(dx, 2 * dy),
        ]
    )[y, torch.arange(n)]
    return TensorDataset((d < r).float().unsqueeze(1) + 0.7 * torch.randn(n, 1, 20, 20, generator=g), y)


def build_model():
    def block(i, o):
        return nn.Sequential(
            nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True), nn.MaxPool2d(2)
        )

    return nn.Sequential(block(1, 12), block(12, 24), block(24, 48), nn.Flatten(), nn.Linear(48 * 4, 6))


def main():
    global best_acc1
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.seed is not None:
        random.seed(args.seed)
        torch.manual_seed(args.seed)
    os.makedirs(args.save_dir, exist_ok=True)
    print("=> creating model 'smallconv'")
    model = build_model()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay)

    # optionally resume from a checkpoint
    if args.resume:
        if os.path.isfile(args.resume):
            print("=> loading checkpoint '{}'".format(args.resume))
            checkpoint = torch.load(args.resume)
            best_acc1 = checkpoint["best_acc1"]
            model.load_state_dict(checkpoint["state_dict"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            print("=> loaded checkpoint '{}' (epoch {})".format(args.resume, checkpoint["epoch"]))
        else:
            print("=> no checkpoint found at '{}'".format(args.resume))

    train_loader = DataLoader(make_split(6000, 0), batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(make_split(1000, 1), batch_size=250)
    if args.evaluate:
        validate(val_loader, model, args)
        return

    for epoch in range(args.epochs):
        lr = args.lr * (0.1 ** (epoch // 50))
        for param_group in optimizer.param_groups:
            param_group["lr"] = lr
        train(train_loader, model, criterion, optimizer, epoch, args)
        acc1 = validate(val_loader, model, args)
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        filename = os.path.join(args.save_dir, "checkpoint.pth.tar")
        torch.save(
            {
                "epoch": epoch + 1,
                "arch": "smallconv",
                "state_dict": model.state_dict(),
                "best_acc1": best_acc1,
                "optimizer": optimizer.state_dict(),
            },
            filename,
        )
        if is_best:
            shutil.copyfile(filename, os.path.join(args.save_dir, "model_best.pth.tar"))


def train(train_loader, model, criterion, optimizer, epoch, args):
    model.train()
    end = time.time()
    for i, (images, target) in enumerate(train_loader):
        output = model(images)
        loss = criterion(output, target)
        acc1 = (output.argmax(1) == target).float().mean().item() * 100
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % args.print_freq == 0:
            print(
                "Epoch: [{}][{:3d}/{}]\tTime {:.3f}\tLoss {:.4e}\tAcc@1 {:6.2f}".format(
                    epoch, i, len(train_loader), time.time() - end, loss.item(), acc1
                ),
                flush=True,
            )
        end = time.time()


def validate(val_loader, model, args):
    model.eval()
    with torch.no_grad():
        hits = sum((model(x).argmax(1) == y).sum().item() for x, y in val_loader)
    acc1 = 100.0 * hits / len(val_loader.dataset)
    print(" * Acc@1 {:.3f}".format(acc1), flush=True)
    return acc1


if __name__ == "__main__":
    main()
