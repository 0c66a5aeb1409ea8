"""DistributedDataParallel. With `late`, one rank is late by 50 ms in one phase, in turn."""
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import common

LATE = "late" in sys.argv
TURNS = [(phase, rank) for phase in ("data", "forward", "backward") for rank in range(2)]


class Late(nn.Module):
    """A model that is late in `phase`."""

    def __init__(self, model):
        super().__init__()
        self.model, self.phase = model, None

    def sleep(self, phase):
        if self.phase == phase:
            time.sleep(0.05)

    def forward(self, x):
        self.sleep("forward")
        hidden = self.model[:4](x)
        if hidden.requires_grad:
            hidden.register_hook(lambda gradient: self.sleep("backward"))
        return self.model[4](hidden)


def main():
    dist.init_process_group("gloo")
    module = Late(common.model())
    model = DistributedDataParallel(module)
    dataset = common.dataset((20 if LATE else 35) * 16 * 2)
    sampler = DistributedSampler(dataset)

    def collate(items):
        module.sleep("data")
        return torch.utils.data.dataloader.default_collate(items)

    loader = DataLoader(dataset, batch_size=16, sampler=sampler, collate_fn=collate)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    steps = samples = 0
    for epoch, (phase, rank) in enumerate(TURNS if LATE else TURNS[:1]):
        module.phase = phase if LATE and rank == dist.get_rank() else None
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            steps, samples = steps + 1, samples + len(x)
    common.done(model, steps, samples=samples, loss=loss.item())


main()
