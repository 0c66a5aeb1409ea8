"""The loop of PyTorch's tutorial: training, then an evaluation, for each epoch."""
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

import common

model = common.model()
train = DataLoader(common.dataset(), batch_size=16)
test = DataLoader(common.dataset(64), batch_size=16)
loss_fn = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
steps = samples = 0
for epoch in range(4):
    model.train()
    for batch, (x, y) in enumerate(train):
        pred = model(x)
        loss = loss_fn(pred, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps, samples = steps + 1, samples + len(x)
    model.eval()
    with torch.no_grad():
        for x, y in test:
            loss_fn(model(x), y).item()
        time.sleep(0.05)
common.done(model, steps, samples=samples, loss=loss.item())
