import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
losses = []


class Tagger(nn.Module):
    def __init__(self, vocabulary=20, width=16, tags=4):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, tags)

    def forward(self, tokens, hidden=None):
        x, hidden = self.lstm(self.embedding(tokens), hidden)
        return self.head(x), hidden


def detached(hidden):
    return tuple(h.detach() for h in hidden)


def evaluate(model, tokens, tags):
    model.eval()
    correct = 0
    with torch.no_grad():
        scores, _ = model(tokens.to(device))
        correct += (scores.argmax(-1).cpu() == tags).sum().item()
    return correct


model = Tagger().to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
tokens = torch.randint(0, 20, (8, 48))
tags = tokens % 4
hidden = None
for epoch in range(3):
    model.train()
    hidden = None
    for start in range(0, 48, 8):
        batch = tokens[:, start : start + 8].to(device)
        target = tags[:, start : start + 8].to(device)
        if hidden is not None:
            hidden = detached(hidden)
        optimizer.zero_grad()
        scores, hidden = model(batch, hidden)
        loss = criterion(scores.reshape(-1, 4), target.reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    evaluate(model, tokens, tags)
