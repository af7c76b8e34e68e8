"""A critic whose gradients are differentiated again."""

import torch
from torch import autograd, nn

torch.manual_seed(0)
device = torch.device("cpu")
critic = nn.Sequential(nn.Linear(6, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)).to(device)
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
losses = []


def gradient_penalty(real, fake):
    alpha = torch.rand(real.size(0), 1, device=device)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    score = critic(mixed)
    gradients = autograd.grad(score, mixed, torch.ones_like(score), create_graph=True)[0]
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


for step in range(10):
    real, fake = torch.randn(32, 6, device=device) + 1, torch.randn(32, 6, device=device)
    optimizer.zero_grad()
    loss = critic(fake).mean() - critic(real).mean() + 10 * gradient_penalty(real, fake)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
