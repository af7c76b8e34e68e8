"""Two networks, two optimizers, three backward passes."""

import torch
import torch.nn as nn

torch.manual_seed(0)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
netG = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16)).to(device)
netD = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)).to(device)
criterion = nn.BCEWithLogitsLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))
fixed_noise = torch.randn(4, 8, device=device)
losses = []

for step in range(15):
    # (1) the discriminator, on real data
    netD.zero_grad()
    real = torch.randn(32, 16, device=device) + 2
    label = torch.full((32,), 1.0, device=device)
    output = netD(real).view(-1)
    errD_real = criterion(output, label)
    errD_real.backward()

    # and on fakes
    noise = torch.randn(32, 8, device=device)
    fake = netG(noise)
    label.fill_(0.0)
    output = netD(fake.detach()).view(-1)
    errD_fake = criterion(output, label)
    errD_fake.backward()
    errD = errD_real + errD_fake
    optimizerD.step()

    # (2) the generator
    netG.zero_grad()
    label.fill_(1.0)
    output = netD(fake).view(-1)
    errG = criterion(output, label)
    errG.backward()
    optimizerG.step()
    losses.append(errD.item() + errG.item())

with torch.no_grad():
    samples = netG(fixed_noise).detach().cpu().numpy()
