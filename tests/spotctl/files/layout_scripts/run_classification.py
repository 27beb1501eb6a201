"""Text-classification example with a small Trainer (the API loosely follows transformers.Trainer)."""

import argparse
import json
import os
import re
import shutil

import numpy as np
import torch
from torch import nn

_re_checkpoint = re.compile(r"^checkpoint\-(\d+)$")


def list_checkpoints(folder):
    names = os.listdir(folder) if os.path.isdir(folder) else []
    found = [
        n for n in names if _re_checkpoint.match(n) and os.path.isfile(os.path.join(folder, n, "trainer_state.json"))
    ]
    return [os.path.join(folder, n) for n in sorted(found, key=lambda n: int(_re_checkpoint.match(n).group(1)))]


class Trainer:
    def __init__(self, model, args, train, evals):
        self.model, self.args, self.train_data, self.eval_data = model, args, train, evals
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
        self.steps_per_epoch = len(train[0]) // args.per_device_train_batch_size
        max_steps = int(args.num_train_epochs * self.steps_per_epoch)
        self.state = {"epoch": 0.0, "global_step": 0, "max_steps": max_steps, "best_metric": 0.0, "log_history": []}
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda s: max(0.0, 1 - s / max_steps))

    def log(self, logs):
        logs["epoch"] = round(self.state["epoch"], 2)
        self.state["log_history"].append({**logs, "step": self.state["global_step"]})
        print(logs, flush=True)

    def evaluate(self):
        self.model.eval()
        with torch.no_grad():
            acc = (self.model(self.eval_data[0]).argmax(-1) == self.eval_data[1]).float().mean().item()
        self.model.train()
        self.state["best_metric"] = max(acc, self.state["best_metric"])
        self.log({"eval_accuracy": round(acc, 4)})

    def _save_checkpoint(self):
        out = os.path.join(self.args.output_dir, f"checkpoint-{self.state['global_step']}")
        os.makedirs(out, exist_ok=True)
        torch.save(self.model.state_dict(), os.path.join(out, "pytorch_model.bin"))
        torch.save(self.optimizer.state_dict(), os.path.join(out, "optimizer.pt"))
        torch.save(self.lr_scheduler.state_dict(), os.path.join(out, "scheduler.pt"))
        torch.save({"cpu": torch.random.get_rng_state()}, os.path.join(out, "rng_state.pth"))
        with open(os.path.join(out, "trainer_state.json"), "w") as f:
            f.write(json.dumps(self.state, indent=2, sort_keys=True) + "\n")
        print(f"Saving model checkpoint to {out}")
        for old in list_checkpoints(self.args.output_dir)[: -self.args.save_total_limit]:
            shutil.rmtree(old)

    def _load_from_checkpoint(self, ckpt):
        print(f"Loading model from {ckpt}.")
        self.model.load_state_dict(torch.load(os.path.join(ckpt, "pytorch_model.bin")))
        self.optimizer.load_state_dict(torch.load(os.path.join(ckpt, "optimizer.pt")))
        self.lr_scheduler.load_state_dict(torch.load(os.path.join(ckpt, "scheduler.pt")))
        torch.random.set_rng_state(torch.load(os.path.join(ckpt, "rng_state.pth"))["cpu"])
        with open(os.path.join(ckpt, "trainer_state.json")) as f:
            self.state = json.load(f)
        print(f"  Continuing training from global step {self.state['global_step']}")

    def train(self, resume_from_checkpoint=None):
        args, tr_loss, bs = self.args, 0.0, self.args.per_device_train_batch_size
        print(f"***** Running training *****\n  Total optimization steps = {self.state['max_steps']}")
        if str(resume_from_checkpoint).lower() == "true":
            resume_from_checkpoint = list_checkpoints(args.output_dir)[-1]
        if resume_from_checkpoint:
            self._load_from_checkpoint(resume_from_checkpoint)
        while self.state["global_step"] < self.state["max_steps"]:
            epoch, first = divmod(self.state["global_step"], self.steps_per_epoch)
            order = torch.from_numpy(np.random.default_rng(args.seed + epoch).permutation(len(self.train_data[0])))
            for idx in order[: self.steps_per_epoch * bs].split(bs)[first:]:
                loss = nn.functional.cross_entropy(self.model(self.train_data[0][idx]), self.train_data[1][idx])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.lr_scheduler.step()
                tr_loss += loss.item()
                self.state["global_step"] += 1
                self.state["epoch"] = self.state["global_step"] / self.steps_per_epoch
                if self.state["global_step"] % args.logging_steps == 0:
                    self.log(
                        {
                            "loss": round(tr_loss / args.logging_steps, 4),
                            "learning_rate": self.lr_scheduler.get_last_lr()[0],
                        }
                    )
                    tr_loss = 0.0
                if self.state["global_step"] % args.save_steps == 0:
                    self.evaluate()
                    self._save_checkpoint()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--output_dir", default="results")
    p.add_argument("--num_train_epochs", type=float, default=80)
    p.add_argument("--per_device_train_batch_size", type=int, default=32)
    p.add_argument("--learning_rate", type=float, default=1e-4)
    p.add_argument("--logging_steps", type=int, default=100)
    p.add_argument("--save_steps", type=int, default=500)
    p.add_argument("--save_total_limit", type=int, default=3)
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--resume_from_checkpoint", default=None, help="True, or the path of a checkpoint-N folder")
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(7)
    y = rng.integers(0, 8, 22000)
    topics = rng.integers(0, 5000, (8, 400))
    noise = rng.integers(0, 5000, (22000, 40))
    x = np.where(rng.random((22000, 40)) < 0.15, topics[y[:, None], rng.integers(0, 400, (22000, 40))], noise)
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    model = nn.Sequential(nn.EmbeddingBag(5000, 96), nn.Linear(96, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 8))
    trainer = Trainer(model, args, (x[:20000], y[:20000]), (x[20000:], y[20000:]))
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
