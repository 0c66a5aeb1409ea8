"""Loaders with worker processes, forked or spawned: loaders.py fork|spawn."""
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

import common

if __name__ == "__main__":
    model = common.model()
    loader = DataLoader(common.dataset(), batch_size=16, num_workers=2 if sys.argv[1] == "fork" else 1, multiprocessing_context=sys.argv[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    steps = samples = 0
    for epoch in range(2 if sys.argv[1] == "fork" else 1):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            steps, samples = steps + 1, samples + len(x)
    common.done(model, steps, samples=samples, loss=loss.item())
