"""Autoencoder in "lightning style" without lightning itself. Muon for matrices, AdamW for the rest."""

from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95, ns_steps=5):
        super().__init__(params, dict(lr=lr, momentum=momentum, ns_steps=ns_steps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                buf = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                buf.lerp_(p.grad, 1 - group["momentum"])
                g = p.grad.lerp(buf, group["momentum"])
                x = g / (g.norm() + 1e-7)
                x = x.T if g.size(0) > g.size(1) else x
                for _ in range(group["ns_steps"]):
                    a = x @ x.T
                    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
                x = x.T if g.size(0) > g.size(1) else x
                p.add_(x, alpha=-group["lr"] * max(1, p.size(0) / p.size(1)) ** 0.5)


class LitAutoEncoder(nn.Module):
    def __init__(self, dim=256, hidden=192, z=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.LayerNorm(hidden), nn.Linear(hidden, z))
        self.decoder = nn.Sequential(nn.Linear(z, hidden), nn.GELU(), nn.LayerNorm(hidden), nn.Linear(hidden, dim))

    def training_step(self, batch):
        (x,) = batch
        noisy = x + 0.1 * torch.randn_like(x)
        return nn.functional.mse_loss(self.decoder(self.encoder(noisy)), x)

    def validation_step(self, batch):
        return nn.functional.mse_loss(self.decoder(self.encoder(batch[0])), batch[0])

    def configure_optimizers(self):
        matrices = [p for p in self.parameters() if p.ndim == 2]
        others = [p for p in self.parameters() if p.ndim < 2]
        return [Muon(matrices, lr=0.005), torch.optim.AdamW(others, lr=2e-3)]


class ModelCheckpoint:
    def __init__(self, dirpath):
        self.dirpath, self.last = Path(dirpath), Path(dirpath) / "last.ckpt"
        self.best_model_path, self.best_model_score = "", float("inf")


class Trainer:
    def __init__(self, max_epochs, checkpoint_callback):
        self.max_epochs, self.ckpt = max_epochs, checkpoint_callback
        self.current_epoch = self.global_step = 0

    def save_checkpoint(self, path):
        tmp = Path(str(path) + ".part")
        tmp.parent.mkdir(parents=True, exist_ok=True)
        torch.save(
            {
                "epoch": self.current_epoch,
                "global_step": self.global_step,
                "rng": torch.get_rng_state(),
                "state_dict": self.model.state_dict(),
                "optimizer_states": [o.state_dict() for o in self.optimizers],
                "callbacks": {
                    "ModelCheckpoint": {
                        "best_model_path": self.ckpt.best_model_path,
                        "best_model_score": self.ckpt.best_model_score,
                    }
                },
            },
            tmp,
        )
        tmp.replace(path)

    def restore(self, path):
        print(f"Restoring states from the checkpoint path at {path}")
        c = torch.load(path, weights_only=False)
        self.model.load_state_dict(c["state_dict"])
        for opt, s in zip(self.optimizers, c["optimizer_states"], strict=True):
            opt.load_state_dict(s)
        torch.set_rng_state(c["rng"])
        self.current_epoch, self.global_step = c["epoch"] + 1, c["global_step"]
        self.ckpt.__dict__.update(c["callbacks"]["ModelCheckpoint"])

    def fit(self, model, train_loader, val_loader, ckpt_path=None):
        self.model, self.optimizers = model, model.configure_optimizers()
        if ckpt_path == "last":
            ckpt_path = self.ckpt.last if self.ckpt.last.exists() else None
        if ckpt_path:
            self.restore(ckpt_path)
        while self.current_epoch < self.max_epochs:
            model.train()
            for batch in train_loader:
                loss = model.training_step(batch)
                for opt in self.optimizers:
                    opt.zero_grad()
                loss.backward()
                for opt in self.optimizers:
                    opt.step()
                self.global_step += 1
            model.eval()
            with torch.no_grad():
                val_loss = sum(model.validation_step(b).item() for b in val_loader) / len(val_loader)
            print(
                f"Epoch {self.current_epoch}: train_loss={loss.item():.5f} val_loss={val_loss:.5f} "
                f"v_steps={self.global_step}",
                flush=True,
            )
            if val_loss < self.ckpt.best_model_score:
                if self.ckpt.best_model_path:
                    Path(self.ckpt.best_model_path).unlink(missing_ok=True)
                self.ckpt.best_model_score = val_loss
                self.ckpt.best_model_path = str(
                    self.ckpt.dirpath / f"epoch={self.current_epoch}-val_loss={val_loss:.4f}.ckpt"
                )
                self.save_checkpoint(self.ckpt.best_model_path)
            self.save_checkpoint(self.ckpt.last)
            self.current_epoch += 1
        print(f"`Trainer.fit` stopped: `max_epochs={self.max_epochs}` reached.")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(3)
    w1, w2 = torch.randn(12, 64), torch.randn(64, 256) / 8
    ds = TensorDataset(torch.tanh(torch.randn(5000, 12) @ w1 / 3.5) @ w2)
    train, val = random_split(ds, [4000, 1000])
    trainer = Trainer(max_epochs=150, checkpoint_callback=ModelCheckpoint("lightning_logs/ae/checkpoints"))
    trainer.fit(
        LitAutoEncoder(),
        DataLoader(train, batch_size=32, shuffle=True),
        DataLoader(val, batch_size=250),
        ckpt_path="last",
    )
