# toy diffusion on a 2d spiral + fourier features, w/ EMA. for the cluster: on requeue set RESUME=latest
#   python ddpm_toy.py --name spiral
#   RESUME=latest python ddpm_toy.py --name spiral
#   RESUME=runs/spiral/ckpt_000400.pt python ddpm_toy.py --name spiral
import argparse, copy, json, math, os
from pathlib import Path

import torch
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--name", default="spiral")
ap.add_argument("--max-steps", type=int, default=22000)
ap.add_argument("--save-every", type=int, default=200)
ap.add_argument("--log-every", type=int, default=100)
ap.add_argument("--keep", type=int, default=4)
ap.add_argument("--bs", type=int, default=256)
ap.add_argument("--lr", type=float, default=1e-3)
ap.add_argument("--ema", type=float, default=0.999)
ap.add_argument("--width", type=int, default=192)
args = ap.parse_args()

torch.set_num_threads(int(os.environ.get("SLURM_CPUS_PER_TASK", 1)))
torch.manual_seed(0)
run = Path("runs") / args.name
run.mkdir(parents=True, exist_ok=True)
T = 200
betas = torch.linspace(1e-4, 0.04, T)
abar = torch.cumprod(1 - betas, 0)


def sample_data(n):
    t = torch.rand(n).sqrt() * 3 * math.pi
    return torch.stack([t * t.cos(), t * t.sin()], 1) / 5 + 0.02 * torch.randn(n, 2)


class Denoiser(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.register_buffer("freqs", torch.randn(3, 32))
        self.inp = nn.Linear(64, w)
        self.mid = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(w), nn.Linear(w, w), nn.SiLU(), nn.Linear(w, w)) for _ in range(3)
        )
        self.out = nn.Linear(w, 2)

    def forward(self, x, t):
        f = torch.cat([x, t[:, None] / T], 1) @ self.freqs * 2
        h = self.inp(torch.cat([f.sin(), f.cos()], 1))
        for m in self.mid:
            h = h + m(h)
        return self.out(h)


net = Denoiser(args.width)
ema = copy.deepcopy(net).requires_grad_(False)
opt = torch.optim.Adam(net.parameters(), lr=args.lr)
warm = torch.optim.lr_scheduler.LinearLR(opt, 0.01, total_iters=300)
cos = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.max_steps - 300)
sched = torch.optim.lr_scheduler.SequentialLR(opt, [warm, cos], [300])
step, avg = 0, None


def save():
    name = f"ckpt_{step:06d}.pt"
    torch.save(
        dict(
            step=step,
            avg=avg,
            net=net.state_dict(),
            ema=ema.state_dict(),
            opt=opt.state_dict(),
            sched=sched.state_dict(),
            rng=torch.get_rng_state(),
        ),
        run / (name + ".tmp"),
    )
    os.replace(run / (name + ".tmp"), run / name)
    link = run / ".latest_new"
    link.unlink(missing_ok=True)
    link.symlink_to(name)
    os.replace(link, run / "latest")
    for old in sorted(run.glob("ckpt_*.pt"))[: -args.keep]:
        old.unlink()


def eval_ema():
    g = torch.Generator().manual_seed(1)
    rng = torch.get_rng_state()
    torch.manual_seed(1)
    x0 = sample_data(1000)
    torch.set_rng_state(rng)
    t = torch.randint(0, T, (1000,), generator=g)
    eps = torch.randn(x0.shape, generator=g)
    a = abar[t][:, None]
    with torch.no_grad():
        return (ema(a.sqrt() * x0 + (1 - a).sqrt() * eps, t) - eps).pow(2).mean().item()


resume = os.environ.get("RESUME", "")
if resume:
    path = run / "latest" if resume == "latest" else Path(resume)
    ck = torch.load(path)
    net.load_state_dict(ck["net"])
    ema.load_state_dict(ck["ema"])
    opt.load_state_dict(ck["opt"])
    sched.load_state_dict(ck["sched"])
    torch.set_rng_state(ck["rng"])
    step, avg = ck["step"], ck["avg"]
    print(f"resumed {path.resolve().name} @ step {step}")
else:
    print("fresh run in", run)
    (run / "args.json").write_text(json.dumps(vars(args)))

while step < args.max_steps:
    x0 = sample_data(args.bs)
    t = torch.randint(0, T, (args.bs,))
    eps = torch.randn_like(x0)
    a = abar[t][:, None]
    loss = (net(a.sqrt() * x0 + (1 - a).sqrt() * eps, t) - eps).pow(2).mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    sched.step()
    with torch.no_grad():
        for pe, p in zip(ema.parameters(), net.parameters()):
            pe.lerp_(p, 1 - args.ema)
    step += 1
    avg = loss.item() if avg is None else 0.98 * avg + 0.02 * loss.item()
    if step % args.log_every == 0:
        print(f"[{step}/{args.max_steps}] loss {avg:.4f} lr {sched.get_last_lr()[0]:.2e}", flush=True)
    if step % args.save_every == 0 or step == args.max_steps:
        save()
        print(f"[{step}/{args.max_steps}] ema eval {eval_ema():.4f} -> {run}/ckpt_{step:06d}.pt", flush=True)
