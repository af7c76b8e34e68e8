import os
import tempfile

import torch
import torch.nn.functional as F

losses = []


def save_checkpoint(state, filename):
    torch.save(state, filename)


def main(path, epochs):
    torch.manual_seed(0)
    device = torch.device("cpu")
    model = torch.nn.Sequential(torch.nn.Linear(6, 24), torch.nn.Tanh(), torch.nn.Linear(24, 2)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    start_epoch = 0
    if os.path.isfile(path):
        checkpoint = torch.load(path)
        start_epoch = checkpoint["epoch"]
        model.load_state_dict(checkpoint["state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer"])

    x, y = torch.randn(40, 6), torch.randint(0, 2, (40,))
    for epoch in range(start_epoch, epochs):
        for i in range(0, 40, 10):
            optimizer.zero_grad()
            out = model(x[i : i + 10])
            loss = F.cross_entropy(out, y[i : i + 10])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        save_checkpoint({"epoch": epoch + 1, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(os.path.join(folder, "model.pt"), 2)
        main(os.path.join(folder, "model.pt"), 4)
