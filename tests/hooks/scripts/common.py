"""What the scripts share: a model, data, and the last lines that check.py reads."""
import hashlib

import torch
from torch import nn
from torch.utils.data import TensorDataset


def model(width=64):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    return nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


def dataset(samples=128):
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(samples, 16, generator=generator)
    return TensorDataset(x, x.sum(1, keepdim=True))


def done(model, steps, **more):
    """The script's own account, for comparison with the report."""
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    words = "".join(" %s %r" % pair for pair in more.items())
    print("steps %d weights %s%s" % (steps, digest.hexdigest()[:16], words), flush=True)
