"""A variational autoencoder: a loss that autocast refuses, and exponentials."""

import torch
import torch.nn.functional as F
from torch import nn, optim

torch.manual_seed(0)
device = torch.device("cpu")
losses = []


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(32, 16)
        self.mean = nn.Linear(16, 4)
        self.logvar = nn.Linear(16, 4)
        self.decoder = nn.Linear(4, 32)

    def forward(self, x):
        h = torch.relu(self.encoder(x))
        mu, logvar = self.mean(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return torch.sigmoid(self.decoder(z)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    bce = F.binary_cross_entropy(recon_x, x, reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


model = VAE().to(device)
optimizer = optim.Adam(model.parameters(), lr=1e-2)


def train(data):
    model.train()
    for _ in range(15):
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data)
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


def test(data):
    model.eval()
    with torch.no_grad():
        recon_batch, mu, logvar = model(data)
        return loss_function(recon_batch, data, mu, logvar).item()


images = torch.rand(64, 32).to(device)
train(images)
test(images)
