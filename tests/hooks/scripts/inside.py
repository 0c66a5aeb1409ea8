"""The optimizer runs in gradient hooks, inside the backward: one for each parameter."""
import torch
from torch import nn
from torch.utils.data import DataLoader

import common

model = common.model()
loader = DataLoader(common.dataset(), batch_size=16)
kept = []
for parameter in model.parameters():
    optimizer = torch.optim.SGD([parameter], lr=1e-3)

    def update(*_, optimizer=optimizer):
        optimizer.step()
        optimizer.zero_grad()

    if hasattr(parameter, "register_post_accumulate_grad_hook"):
        parameter.register_post_accumulate_grad_hook(update)
    else:
        accumulate = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        accumulate.register_hook(update)
        kept.append(accumulate)
steps = 0
for epoch in range(4):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        steps += 1
common.done(model, steps, loss=loss.item())
