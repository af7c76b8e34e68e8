"""A graph network that adds messages in place, and fills a tensor under a mask."""

import torch
from torch import nn

torch.manual_seed(0)
losses = []


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message = nn.Linear(width, width)
        self.update = nn.GRUCell(width, width)
        self.special = nn.Linear(width, width)

    def forward(self, x, source, target, mask):
        messages = torch.relu(self.message(x[source]))
        total = torch.zeros(x.size(0), x.size(1), device=x.device)
        total.index_add_(0, target, messages)
        total[mask] = self.special(x[mask])
        return self.update(total, x)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Layer(16), Layer(16)])
        self.head = nn.Linear(16, 3)

    def forward(self, x, source, target, mask):
        for layer in self.layers:
            x = layer(x, source, target, mask)
        return self.head(x)


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = Network().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
features, labels = torch.randn(40, 16, device=device), torch.randint(0, 3, (40,), device=device)
source, target = torch.randint(0, 40, (2, 120), device=device)
mask = torch.arange(40, device=device) % 5 == 0
for _ in range(12):
    optimizer.zero_grad()
    out = model(features, source, target, mask)
    loss = nn.functional.cross_entropy(out, labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
