import torch
import torch.nn.functional as F

losses = []


class Siamese(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = torch.nn.Linear(12, 8)

    def embed(self, x):
        return F.normalize(torch.tanh(self.tower(x)), dim=1)

    def forward(self, a, b):
        return self.embed(a), self.embed(b)


def compute_loss(model, batch):
    first, second, same = batch
    a, b = model(first, second)
    return F.cosine_embedding_loss(a, b, same)


def train_step(model, optimizer, batch):
    loss = compute_loss(model, batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    torch.manual_seed(0)
    device = torch.device("cpu")
    model = Siamese().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    first = torch.randn(32, 12, device=device)
    same = torch.where(torch.arange(32) % 2 == 0, 1, -1)
    second = torch.where(same[:, None] > 0, first + 0.1 * torch.randn(32, 12), torch.randn(32, 12))
    for _ in range(15):
        losses.append(train_step(model, optimizer, (first, second, same)).item())


main()
