"""Sleeps 20 ms in each step, at the places that are named one after the other: between.py WHERE…"""
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

import common

NAP, STEPS = 0.02, 16


class Napping(nn.Module):
    """A model that naps in its forward pass."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        time.sleep(NAP)
        return self.model(x)


def train(where):
    model = common.model()
    if "forward" in where:
        model = Napping(model)
    other = common.model(32)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    second = torch.optim.SGD(other.parameters(), lr=1e-3)
    loss_of = nn.MSELoss()
    prepare = nn.Flatten()  # a module without parameters is no model
    whole = common.dataset(STEPS * 16)
    batches = DataLoader(whole, batch_size=16) if "loader" in where else zip(*(part.split(16) for part in whole.tensors))
    for x, y in batches:
        if where in ("before", "loader-before"):
            time.sleep(NAP)
        optimizer.zero_grad()
        loss = loss_of(model(prepare(x)), y)
        if where == "micro":
            (loss / 2).backward()
            time.sleep(NAP)
            loss = loss_of(model(x), y) / 2
        loss.backward()
        optimizer.step()
        if where == "two":
            second.zero_grad()
            time.sleep(NAP)
            loss_of(other(x), y).backward()
            second.step()
        if where in ("after", "loader-after"):
            time.sleep(NAP)
        if where == "evaluation":
            model.eval()
            with torch.no_grad():
                loss_of(model(x), y)
            time.sleep(NAP)
            model.train()
    return model


for where in sys.argv[1:]:
    model = train(where)
common.done(model, (len(sys.argv) - 1 + sys.argv.count("two")) * STEPS)
