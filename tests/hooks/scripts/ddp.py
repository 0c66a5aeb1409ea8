"""DistributedDataParallel; with PHASE RANK MS one rank is late in forward, backward or the loader."""
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import common


class Late(nn.Module):
    def __init__(self, model, forward, backward):
        super().__init__()
        self.model, self.forward_s, self.backward_s = model, forward, backward

    def forward(self, x):
        time.sleep(self.forward_s)
        hidden = self.model[:4](x)
        if hidden.requires_grad and self.backward_s:
            hidden.register_hook(lambda gradient: time.sleep(self.backward_s))
        return self.model[4](hidden)


def main():
    dist.init_process_group("gloo")
    phase, rank, late = (sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) / 1e3) if len(sys.argv) > 3 else ("", -1, 0)
    late = late if dist.get_rank() == rank else 0

    def collate(items):
        time.sleep(late if phase == "data" else 0)
        return torch.utils.data.dataloader.default_collate(items)

    module = Late(common.model(256), late if phase == "forward" else 0, late if phase == "backward" else 0)
    model = DistributedDataParallel(module)
    dataset = common.dataset(256)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler, collate_fn=collate)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    steps = samples = 0
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            steps, samples = steps + 1, samples + len(x)
    common.done(model, steps, samples=samples, loss=loss.item())


main()
