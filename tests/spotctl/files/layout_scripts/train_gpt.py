"""
minimal GPT on sums. everything in one file, no deps except torch.
$ python train_gpt.py
$ python train_gpt.py --batch_size=8 --max_iters=500
$ python train_gpt.py --init_from=resume
"""

import os, sys, time, math
from ast import literal_eval
import torch
import torch.nn as nn
from torch.nn import functional as F

# -----------------------------------------------------------------------------
# default config values
out_dir = "out-sums"
eval_interval = 50
log_interval = 10
eval_iters = 5
always_save_checkpoint = True
init_from = "scratch"  # 'scratch' or 'resume'
batch_size = 16
block_size = 64
n_layer, n_head, n_embd = 3, 4, 96
learning_rate = 1e-3
max_iters = 4000
warmup_iters = 100
min_lr = 1e-4
seed = 1337
# -----------------------------------------------------------------------------
config_keys = [k for k, v in globals().items() if not k.startswith("_") and isinstance(v, (int, float, bool, str))]
for arg in sys.argv[1:]:  # poor man's configurator
    key, val = arg.lstrip("-").split("=")
    assert key in config_keys, f"Unknown config key: {key}"
    globals()[key] = val if isinstance(globals()[key], str) else literal_eval(val)
    print(f"Overriding: {key} = {val}")
config = {k: globals()[k] for k in config_keys}

torch.manual_seed(seed)
torch.set_num_threads(1)
os.makedirs(out_dir, exist_ok=True)

# data: lines like 123+456=579
chars = "0123456789+=\n"
stoi = {c: i for i, c in enumerate(chars)}


def make_text(n, s):
    g = torch.Generator().manual_seed(s)
    ab = torch.randint(0, 1000, (n, 2), generator=g).tolist()
    return torch.tensor([stoi[c] for a, b in ab for c in f"{a}+{b}={a + b}\n"])


data = {"train": make_text(20000, 0), "val": make_text(2000, 1)}


def get_batch(split):
    d = data[split]
    ix = torch.randint(len(d) - block_size - 1, (batch_size,))
    return torch.stack([d[i : i + block_size] for i in ix]), torch.stack([d[i + 1 : i + 1 + block_size] for i in ix])


class Block(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.n_head = n_head
        self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.qkv, self.proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.n_head, -1).transpose(1, 2) for t in self.qkv(self.ln1(x)).split(C, dim=2))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, n_layer, n_head, n_embd, block_size, vocab_size):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, n_embd), nn.Embedding(block_size, n_embd)
        self.h = nn.Sequential(*[Block(n_embd, n_head) for _ in range(n_layer)])
        self.ln_f, self.lm_head = nn.LayerNorm(n_embd), nn.Linear(n_embd, vocab_size, bias=False)

    def forward(self, idx, targets):
        x = self.h(self.wte(idx) + self.wpe.weight[: idx.size(1)])
        return F.cross_entropy(self.lm_head(self.ln_f(x)).flatten(0, 1), targets.flatten())


iter_num, best_val_loss = 0, 1e9
model_args = dict(n_layer=n_layer, n_head=n_head, n_embd=n_embd, block_size=block_size, vocab_size=len(chars))
if init_from == "resume":
    print(f"Resuming training from {out_dir}")
    checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"))
    model_args, iter_num, best_val_loss = checkpoint["model_args"], checkpoint["iter_num"], checkpoint["best_val_loss"]
else:
    print("Initializing a new model from scratch")
model = GPT(**model_args)
print("number of parameters: %.2fM" % (sum(p.numel() for p in model.parameters()) / 1e6,))
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.99), weight_decay=0.1)
if init_from == "resume":
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])


@torch.no_grad()
def estimate_loss():
    return {s: sum(model(*get_batch(s)).item() for _ in range(eval_iters)) / eval_iters for s in ("train", "val")}


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / warmup_iters
    return min_lr + 0.5 * (1 + math.cos(math.pi * (it - warmup_iters) / (max_iters - warmup_iters))) * (
        learning_rate - min_lr
    )


t0 = time.time()
while iter_num <= max_iters:
    for group in optimizer.param_groups:
        group["lr"] = get_lr(iter_num)
    if iter_num % eval_interval == 0:
        losses = estimate_loss()
        print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}", flush=True)
        if iter_num > 0 and (losses["val"] < best_val_loss or always_save_checkpoint):
            best_val_loss = min(best_val_loss, losses["val"])
            print(f"saving checkpoint to {out_dir}")
            torch.save(
                {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "model_args": model_args,
                    "iter_num": iter_num,
                    "best_val_loss": best_val_loss,
                    "config": config,
                },
                os.path.join(out_dir, "ckpt.pt"),
            )
    loss = model(*get_batch("train"))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if iter_num % log_interval == 0:
        print(f"iter {iter_num}: loss {loss.item():.4f}, elapsed {time.time() - t0:.1f}s", flush=True)
    iter_num += 1
