import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 2)), batch_size=16)
netG, netD = nn.Linear(2, 2), nn.Linear(2, 1)
optimizerG = torch.optim.Adam(netG.parameters())
optimizerD = torch.optim.Adam(netD.parameters())
for epoch in range(2):
    for (real,) in loader:
        fake = netG(torch.randn_like(real))
        optimizerD.zero_grad()
        errD = (netD(fake.detach()) - netD(real)).mean()
        errD.backward()
        optimizerD.step()
        optimizerG.zero_grad()
        errG = -netD(fake).mean()
        errG.backward()
        optimizerG.step()
