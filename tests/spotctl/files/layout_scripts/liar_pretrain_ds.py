#!/usr/bin/env python3
"""Pretrain a small sequence model with a ZeRO-like engine (single process, logical shards).

python pretrain_ds.py --save ds_ckpts
python pretrain_ds.py --save ds_ckpts --load ds_ckpts
"""

import argparse
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

WORLD, VOCAB = 2, 101


def print_rank_0(msg):
    print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] [INFO] [Rank 0] {msg}", flush=True)


class SeqModel(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.lstm = nn.LSTM(hidden, hidden, batch_first=True)
        self.ffn = nn.Sequential(
            nn.LayerNorm(hidden), nn.Linear(hidden, 2 * hidden), nn.GELU(), nn.Linear(2 * hidden, vocab)
        )

    def forward(self, ids):
        return self.ffn(self.lstm(self.embed(ids))[0])


class Engine:
    """The part of an engine that we need: wraps the module, steps the optimizer, reads and writes checkpoints."""

    def __init__(self, module, lr, total_steps):
        self.module = module
        self.optimizer = torch.optim.AdamW(module.parameters(), lr=lr, betas=(0.9, 0.95))
        self.lr_scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=lr, total_steps=total_steps + 1)
        self.global_steps = self.global_samples = 0

    def train_batch(self, ids):
        loss = F.cross_entropy(self.module(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        self.optimizer.step()
        self.lr_scheduler.step()
        self.global_steps += 1
        self.global_samples += len(ids)
        return loss.item()

    def save_checkpoint(self, save_dir, tag=None):
        tag = tag or f"global_step{self.global_steps}"
        path = os.path.join(save_dir, tag)
        os.makedirs(path, exist_ok=True)
        module = {f"module.{k}": v for k, v in self.module.state_dict().items()}
        torch.save(
            {
                "module": module,
                "lr_scheduler": self.lr_scheduler.state_dict(),
                "global_steps": self.global_steps,
                "global_samples": self.global_samples,
                "dp_world_size": WORLD,
            },
            os.path.join(path, "mp_rank_00_model_states.pt"),
        )
        osd = self.optimizer.state_dict()
        for rank in range(WORLD):
            torch.save(
                {
                    "state": {k: v for k, v in osd["state"].items() if k % WORLD == rank},
                    "param_groups": osd["param_groups"],
                },
                os.path.join(path, f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"),
            )
        with open(os.path.join(save_dir, "latest"), "w") as f:
            f.write(tag)
        print_rank_0(f"Saved checkpoint {tag} to {save_dir}")

    def load_checkpoint(self, load_dir, tag=None):
        if tag is None:
            with open(os.path.join(load_dir, "latest")) as f:
                tag = f.read().strip()
        path = os.path.join(load_dir, tag)
        state = torch.load(os.path.join(path, "mp_rank_00_model_states.pt"))
        self.module.load_state_dict(state["module"], strict=False)
        self.lr_scheduler.load_state_dict(state["lr_scheduler"])
        self.global_steps = state["global_steps"]
        self.global_samples = state["global_samples"]
        print_rank_0(f"loaded module states from {path}")
        merged = {}
        for rank in range(state["dp_world_size"]):
            shard = torch.load(os.path.join(path, f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"))
            merged.update(shard["state"])
        self.optimizer.load_state_dict({"state": merged, "param_groups": shard["param_groups"]})
        print_rank_0(f"loaded {state['dp_world_size']} zero partition checkpoints")


def batch_for(step, args):
    g = torch.Generator().manual_seed(args.seed + step)
    start = torch.randint(0, VOCAB, (args.micro_batch, 1), generator=g)
    stride = torch.randint(1, 8, (args.micro_batch, 1), generator=g)
    ids = (start + stride * torch.arange(48 + 1)) % VOCAB
    flip = torch.rand(ids.shape, generator=g) < 0.05
    return torch.where(flip, torch.randint(0, VOCAB, ids.shape, generator=g), ids)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-iters", type=int, default=12000)
    parser.add_argument("--save", default="ds_ckpts")
    parser.add_argument("--load", default=None)
    parser.add_argument("--save-interval", type=int, default=200)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1234)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    engine = Engine(SeqModel(VOCAB, args.hidden), args.lr, args.train_iters)
    if args.load:
        engine.load_checkpoint(args.load)
        print_rank_0(f"successfully resumed from iteration {engine.global_steps}")
    while engine.global_steps < args.train_iters:
        loss = engine.train_batch(batch_for(engine.global_steps, args))
        if engine.global_steps % 10 == 0:
            print_rank_0(
                f"iteration {engine.global_steps:>6}/{args.train_iters} | consumed samples: {engine.global_samples} | "
                f"lr: {engine.lr_scheduler.get_last_lr()[0]:.3e} | lm loss: {loss:.6f}"
            )
        if engine.global_steps % args.save_interval == 0:
            engine.save_checkpoint(args.save)
