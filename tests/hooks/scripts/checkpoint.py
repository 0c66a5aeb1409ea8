"""Reentrant checkpoints call the backward inside the backward."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

import common

model = common.model()
loader = DataLoader(common.dataset(), batch_size=16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
steps = 0
for epoch in range(4):
    for x, y in loader:
        x.requires_grad_()
        optimizer.zero_grad()
        hidden = checkpoint(model[:2], x, use_reentrant=True)
        hidden = checkpoint(model[2:4], hidden, use_reentrant=True)
        loss = nn.functional.mse_loss(model[4](hidden), y)
        loss.backward()
        optimizer.step()
        steps += 1
common.done(model, steps, loss=loss.item())
