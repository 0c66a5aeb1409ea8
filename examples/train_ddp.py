"""An ordinary PyTorch script: nothing in it knows of hvtui. 1,797 handwritten digits, DistributedDataParallel.

  hvtui run -np 2 -- python3 examples/train_ddp.py
"""
import argparse
import csv
import gzip
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

DIGITS = Path(__file__).resolve().parents[1] / "assets/data/digits.csv.gz"


def digits():
    """8 × 8 grey values from 0 to 16, and the digit."""
    with gzip.open(DIGITS, "rt") as file:
        rows = torch.tensor([[float(value) for value in row] for row in csv.reader(file)])
    return TensorDataset(rows[:, :64].reshape(-1, 1, 8, 8) / 16, rows[:, 64].long())


def network():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 10),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    wanted = parser.parse_args()

    torch.manual_seed(1)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)

    dataset = digits()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=wanted.batch_size, sampler=sampler)
    model = DistributedDataParallel(network().to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    for epoch in range(wanted.epochs):
        sampler.set_epoch(epoch)
        right = torch.zeros(2, device=device)
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            scores = model(images)
            loss = nn.functional.cross_entropy(scores, labels)
            loss.backward()
            optimizer.step()
            right += torch.tensor([(scores.argmax(1) == labels).sum().item(), len(labels)], device=device)
        dist.all_reduce(right)
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1}: {100 * right[0] / right[1]:.1f} % right", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
