"""Two optimizers after one backward: one step."""
import torch
from torch import nn
from torch.utils.data import DataLoader

import common

model = common.model()
loader = DataLoader(common.dataset(), batch_size=16)
first = torch.optim.SGD(model[:2].parameters(), lr=1e-3)
second = torch.optim.Adam(model[2:].parameters())
schedule = torch.optim.lr_scheduler.StepLR(first, 3)
steps = 0
for epoch in range(4):
    for x, y in loader:
        model.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        first.step()
        second.step()
        steps += 1
    schedule.step()
common.done(model, steps, loss=loss.item())
