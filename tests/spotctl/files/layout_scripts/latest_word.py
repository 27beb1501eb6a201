"""Steps that are saved in folders checkpoint-N; `--resume_from_checkpoint latest` takes the newest."""

import argparse
import os

import torch


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", type=str, default="model-out")
    parser.add_argument("--max_train_steps", type=int, default=5000)
    parser.add_argument("--checkpointing_steps", type=int, default=500)
    parser.add_argument("--resume_from_checkpoint", type=str, default=None)
    return parser.parse_args()


def main():
    args = parse()
    net = torch.nn.Linear(6, 6)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    global_step = 0
    if args.resume_from_checkpoint:
        if args.resume_from_checkpoint != "latest":
            name = os.path.basename(args.resume_from_checkpoint)
        else:
            names = [entry for entry in os.listdir(args.output_dir) if entry.startswith("checkpoint")]
            names = sorted(names, key=lambda entry: int(entry.split("-")[1]))
            name = names[-1] if names else None
        if name is None:
            print("there is no checkpoint yet: starting from the beginning")
        else:
            state = torch.load(os.path.join(args.output_dir, name, "state.pt"))
            net.load_state_dict(state["net"])
            optimizer.load_state_dict(state["optimizer"])
            global_step = int(name.split("-")[1])
    while global_step < args.max_train_steps:
        loss = (net(torch.randn(16, 6)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        global_step += 1
        if global_step % args.checkpointing_steps == 0:
            folder = os.path.join(args.output_dir, f"checkpoint-{global_step}")
            os.makedirs(folder, exist_ok=True)
            torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, os.path.join(folder, "state.pt"))


main()
