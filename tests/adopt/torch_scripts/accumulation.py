import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR

ACCUMULATE = 4
losses = []


def train(model, batches, device, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    scheduler = CosineAnnealingLR(optimizer, T_max=steps)
    optimizer.zero_grad()
    for step in range(steps):
        x, y = batches[step % len(batches)]
        x = x.to(device)
        y = y.to(device)
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        loss = loss / ACCUMULATE
        loss.backward()
        losses.append(loss.item() * ACCUMULATE)
        if (step + 1) % ACCUMULATE == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = nn.Sequential(nn.Linear(20, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 5)).to(device)
    train(net, [(torch.randn(32, 20), torch.randint(0, 5, (32,))) for _ in range(4)], device, 24)
