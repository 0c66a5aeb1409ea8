"""LBFGS runs forward and backward inside `step`, many times."""
import torch
from torch import nn
from torch.utils.data import DataLoader

import common

model = common.model()
loader = DataLoader(common.dataset(), batch_size=64)
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
steps = samples = 0
for epoch in range(5):
    for x, y in loader:

        def closure():
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        steps, samples = steps + 1, samples + len(x)
common.done(model, steps, samples=samples, loss=loss.item())
