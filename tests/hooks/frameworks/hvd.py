"""Horovod's optimizer; with `late` rank 1 is late by 4 ms in forward."""
import sys
import time

import horovod.torch as hvd
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

hvd.init()
torch.manual_seed(1)
x = torch.randn(1120, 16)
dataset = TensorDataset(x, x.sum(1, keepdim=True))
loader = DataLoader(dataset, batch_size=16, sampler=DistributedSampler(dataset, hvd.size(), hvd.rank()))
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1e-3), named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
steps = 0
for x, y in loader:
    optimizer.zero_grad()
    outputs = model(x)
    if hvd.rank() == 1 and "late" in sys.argv:
        time.sleep(0.004)
    loss = F.mse_loss(outputs, y)
    loss.backward()
    optimizer.step()
    steps += 1
print("steps", steps, "rank", hvd.rank())
