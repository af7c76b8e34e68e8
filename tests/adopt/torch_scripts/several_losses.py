import torch
import torch.nn as nn
import torch.nn.functional as F

losses = []


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
        self.boxes = nn.Linear(32, 4)
        self.classes = nn.Linear(32, 3)

    def forward(self, x):
        h = self.trunk(x)
        return {"boxes": self.boxes(h), "classes": self.classes(h)}


def compute_losses(outputs, targets):
    return {
        "boxes": F.smooth_l1_loss(outputs["boxes"], targets["boxes"]),
        "classes": F.cross_entropy(outputs["classes"], targets["classes"]),
    }


def train_one_epoch(model, optimizer, batches, device):
    model.train()
    for x, targets in batches:
        x = x.to(device)
        targets = {k: v.to(device) for k, v in targets.items()}
        outputs = model(x)
        loss_dict = compute_losses(outputs, targets)
        total = sum(loss for loss in loss_dict.values())
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        losses.append(total.item())


torch.manual_seed(0)
device = torch.device("cpu")
model = TwoHeads().to(device)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
batches = [(torch.randn(16, 16), {"boxes": torch.randn(16, 4), "classes": torch.randint(0, 3, (16,))}) for _ in range(5)]
for epoch in range(3):
    train_one_epoch(model, optimizer, batches, device)
