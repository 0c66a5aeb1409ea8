"""A compiled model and a compiled optimizer step: their graphs are the same with and without hooks (torch >= 2)."""
import torch
import torch._dynamo
from torch import nn
from torch.utils.data import DataLoader

import common

model = common.model()
graphs = []


def backend(graph, _inputs):
    graphs.append(len(list(graph.graph.nodes)))
    return graph.forward


compiled = torch.compile(model, backend=backend, fullgraph=True)
loader = DataLoader(common.dataset(), batch_size=16)
optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(1e-3), foreach=False)
update = torch.compile(optimizer.step, backend=backend)
steps = 0
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(compiled(x), y)
        loss.backward()
        update()
        steps += 1
common.done(model, steps, loss=loss.item(), graphs=graphs)
