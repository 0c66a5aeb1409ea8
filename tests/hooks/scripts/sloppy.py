"""An evaluation with gradients on, in the middle of an epoch, and a batch that is left out."""
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

import common

model = common.model()
train = DataLoader(common.dataset(), batch_size=16)
test = DataLoader(common.dataset(64), batch_size=16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
steps = 0
for epoch in range(3):
    for index, (x, y) in enumerate(train):
        if index == 3:
            continue
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        steps += 1
        if index == 5:
            for a, b in test:
                nn.functional.mse_loss(model(a), b)
                time.sleep(0.05)
common.done(model, steps, loss=loss.item())
