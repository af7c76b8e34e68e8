"""A script without functions, on the CPU."""

import torch
from torch import nn

torch.manual_seed(0)
inputs = torch.randn(64, 10)
targets = inputs @ torch.randn(10, 1) + 0.1

model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
loss_fn = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

losses = []
for step in range(20):
    prediction = model(inputs)
    loss = loss_fn(prediction, targets)  # the mean over the batch

    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
