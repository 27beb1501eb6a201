#!/usr/bin/env python
# coding=utf-8
"""Train a small causal language model on a synthetic corpus *without* using a Trainer."""

import argparse
import logging
import math
import os
import shutil

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

logger = logging.getLogger(__name__)
logging.basicConfig(format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", level=logging.INFO)


def parse_args():
    parser = argparse.ArgumentParser(description="Train a tiny causal LM")
    parser.add_argument("--output_dir", type=str, default="./clm-out", help="Where to store the final model.")
    parser.add_argument("--num_train_epochs", type=int, default=75, help="Total number of training epochs to perform.")
    parser.add_argument("--per_device_train_batch_size", type=int, default=16)
    parser.add_argument("--learning_rate", type=float, default=2e-3)
    parser.add_argument("--num_warmup_steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--checkpointing_steps", type=str, default="epoch", help="n steps, or 'epoch' for each epoch.")
    parser.add_argument("--resume_from_checkpoint", type=str, default=None, help="Continue from a checkpoint folder.")
    return parser.parse_args()


class TinyLM(nn.Module):
    def __init__(self, vocab=96, dim=128):
        super().__init__()
        self.emb, self.head = nn.Embedding(vocab, dim), nn.Linear(dim, vocab)
        self.rnn = nn.GRU(dim, dim, num_layers=2, batch_first=True, dropout=0.1)

    def forward(self, ids):
        return self.head(self.rnn(self.emb(ids))[0])


def make_corpus(n, length, vocab=96):
    rng = np.random.default_rng(0)
    succ = rng.integers(0, vocab, size=(vocab, 4))
    x = np.zeros((n, length), dtype=np.int64)
    x[:, 0] = rng.integers(0, vocab, size=n)
    for t in range(1, length):
        x[:, t] = succ[x[:, t - 1], rng.integers(0, 4, size=n)]
    return torch.from_numpy(x)


def save_state(path, objects):
    os.makedirs(path, exist_ok=True)
    for name, obj in objects.items():
        torch.save(obj.state_dict(), os.path.join(path, name + ".bin"))
    torch.save({"torch": torch.get_rng_state()}, os.path.join(path, "random_states_0.pkl"))
    logger.info(f"Saved current state to {path}")


def load_state(path, objects):
    logger.info(f"Loading states from {path}")
    for name, obj in objects.items():
        obj.load_state_dict(torch.load(os.path.join(path, name + ".bin")))
    torch.set_rng_state(torch.load(os.path.join(path, "random_states_0.pkl"))["torch"])


def main():
    args = parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    data, g = make_corpus(1024, 49), torch.Generator()
    train_dataset, eval_ids = TensorDataset(data[:960]), data[960:]
    train_dataloader = DataLoader(
        train_dataset,
        sampler=RandomSampler(train_dataset, generator=g),
        batch_size=args.per_device_train_batch_size,
        generator=g,
    )
    steps_per_epoch = len(train_dataloader)
    max_train_steps = args.num_train_epochs * steps_per_epoch
    model, loss_fn = TinyLM(), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=0.01)
    lr_lambda = lambda s: min(1.0, (s + 1) / args.num_warmup_steps) * max(0.05, 1 - s / max_train_steps)  # noqa: E731
    lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda)
    objects = {"pytorch_model": model, "optimizer": optimizer, "scheduler": lr_scheduler}
    every = int(args.checkpointing_steps) if args.checkpointing_steps.isdigit() else 0

    logger.info(f"***** Running training: {args.num_train_epochs} epochs, {max_train_steps} optimization steps *****")
    completed_steps, starting_epoch, resume_step = 0, 0, 0
    if args.resume_from_checkpoint:
        load_state(args.resume_from_checkpoint, objects)
        kind, number = os.path.basename(os.path.normpath(args.resume_from_checkpoint)).split("_")
        completed_steps = int(number) if kind == "step" else (int(number) + 1) * steps_per_epoch
        starting_epoch, resume_step = divmod(completed_steps, steps_per_epoch)

    for epoch in range(starting_epoch, args.num_train_epochs):
        model.train()
        g.manual_seed(args.seed + epoch)
        total_loss = 0.0
        for step, (ids,) in enumerate(train_dataloader):
            if epoch == starting_epoch and step < resume_step:
                continue
            loss = loss_fn(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            lr_scheduler.step()
            optimizer.zero_grad()
            total_loss += loss.item()
            completed_steps += 1
            if every and completed_steps % every == 0:
                save_state(os.path.join(args.output_dir, f"step_{completed_steps}"), objects)
        model.eval()
        with torch.no_grad():
            eval_loss = loss_fn(model(eval_ids[:, :-1]).flatten(0, 1), eval_ids[:, 1:].flatten()).item()
        logger.info(
            f"epoch {epoch}: perplexity: {math.exp(eval_loss):.4f} eval_loss: {eval_loss:.4f} "
            f"train_loss: {total_loss / (step + 1):.4f} completed_steps: {completed_steps}"
        )
        if not every:
            save_state(os.path.join(args.output_dir, f"epoch_{epoch}"), objects)
            shutil.rmtree(os.path.join(args.output_dir, f"epoch_{epoch - 3}"), ignore_errors=True)


if __name__ == "__main__":
    main()
