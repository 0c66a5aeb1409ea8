"""Scripts that do unusual things: odd.py WHAT."""
import io
import os
import subprocess
import sys

import torch
from torch import nn

import common

WHAT = sys.argv[1]


def train(model, steps=20):
    x, y = common.dataset().tensors
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        if WHAT == "raises" and step == 12:
            raise ValueError("batch 12 has no labels")
        if WHAT == "nan" and step == 7:
            loss = loss * float("nan")
        loss.backward()
        optimizer.step()
    return loss


def fault(*_):
    raise ZeroDivisionError("planted")


model = common.model()
if WHAT.startswith("fault:") and "hvtui_report" in sys.modules:
    setattr(sys.modules["hvtui_report"].Steps, WHAT[6:], fault)
if WHAT == "imports":
    print("steps 0 weights none")
elif WHAT == "no_optimizer":
    x, y = common.dataset().tensors
    for step in range(20):
        model.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 1e-3 * parameter.grad
    common.done(model, 0)
elif WHAT == "stdout":
    real, sys.stdout = sys.stdout, io.StringIO()
    train(model)
    sys.stdout = real
    common.done(model, 20)
elif WHAT == "closed":
    common.done(model, 20)
    sys.stdout.close()
    os.close(1)
    os.close(2)
    train(model)
elif WHAT == "excepthook":
    sys.excepthook = lambda kind, value, trace: print("own hook: %s" % value, file=sys.stderr)
    train(model)
    common.done(model, 20)
    raise RuntimeError("the end")
elif WHAT == "os_exit":
    train(model)
    common.done(model, 20)
    os._exit(7)
elif WHAT == "twice":
    train(model)
    other = common.model(32)
    train(other)
    common.done(other, 40)
elif WHAT == "child":
    # a second training in a process of its own, while this one holds the rank
    train(model, 10)
    subprocess.run([sys.executable, __file__, "plain"], check=True, stdout=subprocess.DEVNULL)
    train(model, 10)
    common.done(model, 20)
else:
    train(model)
    common.done(model, 20)
