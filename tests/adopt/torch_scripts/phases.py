import copy

import torch
import torch.nn as nn
import torch.optim as optim
from torch.optim import lr_scheduler

losses = []


def train_model(model, criterion, optimizer, scheduler, dataloaders, num_epochs):
    best_model_wts = copy.deepcopy(model.state_dict())
    best_acc = 0.0
    for epoch in range(num_epochs):
        for phase in ["train", "val"]:
            if phase == "train":
                model.train()
            else:
                model.eval()
            running_corrects = 0
            for inputs, labels in dataloaders[phase]:
                inputs = inputs.to(device)
                labels = labels.to(device)

                optimizer.zero_grad()

                # track history only in training
                with torch.set_grad_enabled(phase == "train"):
                    outputs = model(inputs)
                    _, preds = torch.max(outputs, 1)
                    loss = criterion(outputs, labels)
                    if phase == "train":
                        loss.backward()
                        optimizer.step()
                        losses.append(loss.item())
                running_corrects += torch.sum(preds == labels.data)
            if phase == "train":
                scheduler.step()
            elif running_corrects > best_acc:
                best_acc = running_corrects
                best_model_wts = copy.deepcopy(model.state_dict())
    model.load_state_dict(best_model_wts)
    return model


torch.manual_seed(0)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
data = [(torch.randn(16, 3, 6, 6), torch.randint(0, 2, (16,))) for _ in range(3)]
model_ft = nn.Sequential(nn.Flatten(), nn.Linear(108, 32), nn.ReLU(), nn.Linear(32, 2)).to(device)
optimizer_ft = optim.SGD(model_ft.parameters(), lr=0.01, momentum=0.9)
exp_lr_scheduler = lr_scheduler.StepLR(optimizer_ft, step_size=2, gamma=0.1)
train_model(model_ft, nn.CrossEntropyLoss(), optimizer_ft, exp_lr_scheduler, {"train": data, "val": data}, 4)
