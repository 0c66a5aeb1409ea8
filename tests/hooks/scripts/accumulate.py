"""Four micro-batches for each step."""
import torch
from torch import nn
from torch.utils.data import DataLoader

import common

model = common.model()
loader = DataLoader(common.dataset(), batch_size=8)
optimizer = torch.optim.AdamW(model.parameters())
steps = samples = 0
for epoch in range(3):
    total = 0.0
    for index, (x, y) in enumerate(loader):
        loss = nn.functional.mse_loss(model(x), y) / 4
        loss.backward()
        total += loss.item()
        samples += len(x)
        if (index + 1) % 4 == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            steps, last, total = steps + 1, total, 0.0
common.done(model, steps, samples=samples, loss=last)
