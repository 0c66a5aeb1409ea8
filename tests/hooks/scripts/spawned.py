"""Two ranks started by torch.multiprocessing, which know their rank by an argument only."""
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import common


def train(rank, size):
    dist.init_process_group("gloo", rank=rank, world_size=size)
    model = DistributedDataParallel(common.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = common.dataset().tensors
    for step in range(20):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    common.done(model, 20)


if __name__ == "__main__":
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    mp.spawn(train, args=(2,), nprocs=2)
