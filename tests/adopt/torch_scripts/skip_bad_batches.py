import math

import torch
import torch.nn as nn

losses = []


def train(model, optimizer, loader, criterion):
    model.train()
    for images, targets in loader:
        images = images.to(device, non_blocking=True)
        targets = targets.to(device, non_blocking=True)

        output = model(images)
        loss = criterion(output, targets)
        loss_value = loss.item()
        if not math.isfinite(loss_value):
            print(f"loss is {loss_value}, skipping")
            optimizer.zero_grad()
            continue

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss_value)


torch.manual_seed(0)
device = torch.device("cpu")
model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
model.to(device)
loader = [(torch.randn(8, 3, 8, 8), torch.randint(0, 5, (8,))) for _ in range(5)]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
for epoch in range(3):
    train(model, optimizer, loader, nn.CrossEntropyLoss(label_smoothing=0.1))
