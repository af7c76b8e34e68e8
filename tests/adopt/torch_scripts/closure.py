"""LBFGS takes a closure, which a GradScaler does not."""

import torch
from torch import nn

torch.manual_seed(0)
device = torch.device("cpu")
x = torch.linspace(-1, 1, 64, device=device).unsqueeze(1)
y = torch.sin(3 * x)
model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
criterion = nn.MSELoss()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
losses = []

for i in range(5):

    def closure():
        optimizer.zero_grad()
        out = model(x)
        loss = criterion(out, y)
        loss.backward()
        return loss

    losses.append(optimizer.step(closure).item())
