"""DistributedDataParallel for some seconds and 100 steps or more; a check stops one of the ranks after 20."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import common

dist.init_process_group("gloo")
model = DistributedDataParallel(common.model(256))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x, y = common.dataset().tensors
end = torch.tensor(time.monotonic() + 4)
dist.broadcast(end, 0)
more, steps = torch.ones(1), 0
while more.item():
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
    more = torch.tensor([float(time.monotonic() < end.item() or steps < 100)])
    dist.all_reduce(more, op=dist.ReduceOp.MIN)
