import argparse
import os

import torch


class Trainer:
    def __init__(self, out):
        self.out, self.step = out, 0
        self.net = torch.nn.Linear(4, 4)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    @property
    def path(self):
        return os.path.join(self.out, "trainer.pt")

    def save(self):
        state = {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}
        torch.save(state, os.path.join(self.out, "trainer.pt"))

    def load(self):
        state = torch.load(os.path.join(self.out, "trainer.pt"))
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]

    def train(self, steps, save_every):
        if os.path.exists(self.path):
            self.load()
        while self.step < steps:
            self.optimizer.zero_grad()
            self.net(torch.randn(2, 4)).square().mean().backward()
            self.optimizer.step()
            self.step += 1
            if self.step % save_every == 0:
                self.save()


parser = argparse.ArgumentParser()
parser.add_argument("--out", default="trainer-out")
parser.add_argument("--steps", type=int, default=20000)
parser.add_argument("--save-every", type=int, default=1000)
args = parser.parse_args()
os.makedirs(args.out, exist_ok=True)
Trainer(args.out).train(args.steps, args.save_every)
