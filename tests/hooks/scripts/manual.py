"""Gradients averaged by hand, as in PyTorch's tutorial on distributed applications."""
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

import common

dist.init_process_group("gloo")
model = common.model()
dataset = common.dataset()
loader = DataLoader(dataset, batch_size=16, sampler=DistributedSampler(dataset))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.5)
steps = 0
for epoch in range(5):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad.data, op=dist.ReduceOp.SUM)
            parameter.grad.data /= dist.get_world_size()
        optimizer.step()
        steps += 1
    total = loss.detach().clone()
    dist.reduce(total, 1)
    dist.barrier()
common.done(model, steps, loss=loss.item())
