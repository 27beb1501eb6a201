from pathlib import Path

import torch
import typer


def train(
    workdir: Path = typer.Option(Path("work"), help="where checkpoints go"),
    steps: int = 3000,
    resume: bool = typer.Option(False, help="continue from workdir"),
) -> None:
    workdir.mkdir(parents=True, exist_ok=True)
    net = torch.nn.Linear(10, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    step = 0
    if resume:
        saved = torch.load(workdir / "newest.pt")
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    while step < steps:
        batch = torch.randn(12, 10)
        optimizer.zero_grad()
        (net(batch) - batch.roll(1, 1)).square().mean().backward()
        optimizer.step()
        step += 1
        if step % 25 == 0:
            torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, workdir / "new.pt")
            (workdir / "new.pt").replace(workdir / "newest.pt")


if __name__ == "__main__":
    typer.run(train)
