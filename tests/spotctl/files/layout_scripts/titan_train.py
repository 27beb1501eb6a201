# Minimal pre-training loop, configured with TOML.
#   CONFIG_FILE=my.toml python titan_train.py [--section.key value ...]
import logging
import os
import shutil
import sys
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed.checkpoint as dcp
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="[titan] %(asctime)s - %(levelname)s - %(message)s")
logger = logging.getLogger("titan")

DEFAULT = """
job = {dump_folder = "./outputs"}
model = {dim = 96, n_layers = 3, vocab_size = 128}
optimizer = {lr = 1e-3}
training = {local_batch_size = 8, seq_len = 64, steps = 6500, warmup_steps = 100, seed = 0}
checkpoint = {enable = true, folder = "checkpoint", interval = 50, keep_latest_k = 3, load_step = -1}
"""


def load_config(argv):
    cfg = tomllib.loads(DEFAULT)
    if path := os.environ.get("CONFIG_FILE"):
        with open(path, "rb") as f:
            for section, values in tomllib.load(f).items():
                cfg[section].update(values)
    for k, v in zip(argv[::2], argv[1::2]):
        section, key = k.lstrip("-").split(".")
        old = cfg[section][key]
        cfg[section][key] = (v.lower() == "true") if isinstance(old, bool) else type(old)(v)
    return cfg


class TokenStream:
    """Endless stream of Markov text; knows where it is."""

    def __init__(self, vocab, batch, seq, seed):
        self.table = torch.randint(0, vocab, (vocab, 3), generator=torch.Generator().manual_seed(seed))
        self.shape, self.seed, self.pos = (batch, seq + 1), seed, 0

    def __next__(self):
        g = torch.Generator().manual_seed(self.seed * 1_000_003 + self.pos)
        out = torch.randint(0, len(self.table), self.shape, generator=g)
        pick = torch.randint(0, 3, self.shape, generator=g)
        for t in range(1, self.shape[1]):
            out[:, t] = self.table[out[:, t - 1], pick[:, t]]
        self.pos += 1
        return out[:, :-1], out[:, 1:]

    def state_dict(self):
        return {"pos": self.pos}

    def load_state_dict(self, sd):
        self.pos = sd["pos"]


class Decoder(nn.Module):
    def __init__(self, dim, n_layers, vocab_size):
        super().__init__()
        self.tok_embeddings, self.output = nn.Embedding(vocab_size, dim), nn.Linear(dim, vocab_size)
        layer = nn.TransformerEncoderLayer(dim, 4, 3 * dim, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, n_layers, nn.LayerNorm(dim), enable_nested_tensor=False)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        return self.output(self.layers(self.tok_embeddings(x), mask=mask, is_causal=True))


def main():
    cfg = load_config(sys.argv[1:])
    t, c = cfg["training"], cfg["checkpoint"]
    torch.set_num_threads(1)
    torch.manual_seed(t["seed"])
    data = TokenStream(cfg["model"]["vocab_size"], t["local_batch_size"], t["seq_len"], t["seed"])
    model = Decoder(**cfg["model"])
    optim = torch.optim.AdamW(model.parameters(), lr=cfg["optimizer"]["lr"], weight_decay=0.1)
    sched = torch.optim.lr_scheduler.LambdaLR(
        optim, lambda s: min((s + 1) / t["warmup_steps"], 1 - 0.9 * s / t["steps"])
    )
    counters = {"step": 0, "ntokens_seen": 0}
    optimizer = SimpleNamespace(
        state_dict=lambda: get_optimizer_state_dict(model, optim),
        load_state_dict=lambda sd: set_optimizer_state_dict(model, optim, sd),
    )
    train_state = SimpleNamespace(state_dict=counters.copy, load_state_dict=counters.update)
    states = {
        "model": model,
        "lr_scheduler": sched,
        "optimizer": optimizer,
        "dataloader": data,
        "train_state": train_state,
    }
    folder = Path(cfg["job"]["dump_folder"]) / c["folder"]
    saved_steps = lambda: sorted(int(p.parent.name.split("-")[1]) for p in folder.glob("step-*/.metadata"))
    if c["enable"] and c["load_step"] != 0 and (steps := saved_steps()):
        load_step = steps[-1] if c["load_step"] == -1 else c["load_step"]
        dcp.load(states, checkpoint_id=folder / f"step-{load_step}")
        logger.info(f"Loaded the checkpoint at step {load_step}.")
    logger.info(f"Training starts at step {counters['step'] + 1}, with total steps {t['steps']}")
    while counters["step"] < t["steps"]:
        counters["step"] = step = counters["step"] + 1
        begin = time.perf_counter()
        x, y = next(data)
        optim.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        gnorm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step()
        sched.step()
        counters["ntokens_seen"] += x.numel()
        if step == 1 or step % 10 == 0:
            tps = x.numel() / (time.perf_counter() - begin)
            logger.info(f"step: {step:2}  loss: {loss.item():7.4f}  grad_norm: {gnorm:6.4f}  tps: {tps:,.0f}")
        if c["enable"] and (step % c["interval"] == 0 or step == t["steps"]):
            dcp.save(states, checkpoint_id=folder / f"step-{step}")
            logger.info(f"Saved the checkpoint (step-{step})")
            for s in saved_steps()[: -c["keep_latest_k"]]:
                shutil.rmtree(folder / f"step-{s}")


if __name__ == "__main__":
    main()
