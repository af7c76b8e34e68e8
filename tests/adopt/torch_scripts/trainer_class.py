import os
import tempfile

import torch
from torch import nn

losses = []


class Trainer:
    def __init__(self, model, loader, lr, device="cpu"):
        self.device = torch.device(device)
        self.model = model.to(self.device)
        self.loader = loader
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.epoch = 0

    def fit(self, epochs):
        for self.epoch in range(epochs):
            self.model.train()
            for batch in self.loader:
                self.train_step(batch)
            self.validate()

    def train_step(self, batch):
        x, y = batch[0].to(self.device), batch[1].to(self.device)
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.model(x)
        loss = self.criterion(logits, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        losses.append(loss.item())

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        total = 0.0
        for x, y in self.loader:
            logits = self.model(x.to(self.device))
            total += self.criterion(logits, y.to(self.device)).item()
        return total / len(self.loader)

    def save(self, path):
        torch.save(
            {
                "epoch": self.epoch,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
            },
            path,
        )

    def load(self, path):
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch = state["epoch"]


torch.manual_seed(0)
data = [(torch.randn(16, 12), torch.randint(0, 3, (16,))) for _ in range(4)]
trainer = Trainer(nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, 3)), data, lr=1e-2)
trainer.fit(3)
with tempfile.TemporaryDirectory() as folder:
    trainer.save(os.path.join(folder, "last.pt"))
    trainer.load(os.path.join(folder, "last.pt"))
trainer.fit(1)
