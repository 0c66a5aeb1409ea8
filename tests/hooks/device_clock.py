"""The clock of a GPU against a scripted one: events are passed when the device gets there, and nothing ever waits."""
import sys

import torch  # so that the hooks are loaded

report = sys.modules["hvtui_report"]
report.WORTH_US = 0  # spans for every step


class Device:
    """A stream: work is queued, and takes its time after what was queued before. Times in nanoseconds."""

    def __init__(self):
        self.host = 1_000_000_000
        self.free = 0  # when the device has done all that was queued
        self.is_capturing = False
        self.made = 0

    def work(self, nanoseconds):
        self.free = max(self.free, self.host) + nanoseconds


device = Device()


class Event:
    def __init__(self, enable_timing=False):
        assert enable_timing
        device.made += 1
        self.at = None

    def record(self):
        assert not device.is_capturing
        self.at = max(device.free, device.host)

    def query(self):
        return self.at <= device.host

    def elapsed_time(self, other):
        assert self.query() and other.query(), "not passed yet: this would raise"
        return (other.at - self.at) / 1e6

    def synchronize(self):
        raise AssertionError("a synchronisation")


class Loss:
    def __init__(self, value):
        self.value, self.at = value, device.free

    def detach(self):
        return self

    def dim(self):
        return 1

    def reshape(self, _shape):
        return self

    def __float__(self):
        assert self.at <= device.host, "read before it was there"
        return self.value


class Losses(dict):
    class Slot:
        def __init__(self, losses, slot):
            self.losses, self.slot = losses, slot

        def copy_(self, loss, non_blocking):
            assert non_blocking
            dict.__setitem__(self.losses, self.slot, loss)

        def __float__(self):
            return float(dict.__getitem__(self.losses, self.slot))

    def __getitem__(self, slot):
        return self.Slot(self, slot)

    def unbind(self):
        return [self[slot] for slot in range(report.DeviceClock.LOSSES)]


class Cuda:
    pass


class Torch:
    float32 = None
    cuda = Cuda()

    @staticmethod
    def empty(_count, dtype, device, pin_memory):
        assert pin_memory and device == "cpu"
        return Losses()


Torch.cuda.Event = Event
Torch.cuda.is_current_stream_capturing = lambda: device.is_capturing


class Out:
    """Takes the place of the report file."""

    def __init__(self):
        self.lines = []

    def rank(self):
        return 0

    def write(self, line):
        import json
        self.lines.append(json.loads(line))

    due = report.NEVER

    def step(self, line, _took, _now):
        self.write(line)

    def hello(self, **more):
        raise AssertionError("a fault: %s" % more)


class NoPage:
    def set(self, *_):
        pass

    turn = set


MS = 1_000_000


def fresh():
    steps = report.Steps(Out())
    steps.page, steps.claimed = NoPage(), True
    steps.device = report.DeviceClock(Torch, steps)
    report.monotonic_ns = lambda: device.host
    return steps


def step(steps, data=0, forward=4, backward=8, wait=2, optimizer=1, launch=0.2, loss=1.5):
    """The host launches work in `launch` ms for each phase; the device does it in its own time."""
    def host(ms):
        device.host += int(ms * MS)

    steps.data_begins(device.host // 1000, False)
    host(data or 0.05)
    steps.data_ends(None)
    device.work(int(forward * MS))
    host(launch)
    steps.in_backward = 1
    steps.settle()
    steps.count(steps.device.loss(Loss(loss)))
    steps.backward_begins(device.host // 1000)
    device.work(int(backward * MS))
    host(launch)
    steps.ready()
    device.work(int(wait * MS))
    host(launch)
    steps.in_backward = 0
    steps.backward_ends(device.host // 1000, True)
    steps.optimizer_begins(device.host // 1000)
    device.work(int(optimizer * MS))
    host(launch)
    steps.optimizer_ends(device.host // 1000)


def phases(line):
    found = {}
    for span in line["spans"]:
        found[span["phase"]] = found.get(span["phase"], 0) + span["dur_us"]
    return found


def close(value, wanted, slack=60):
    assert abs(value - wanted) <= slack, (value, wanted)


# The host runs ahead: 0.85 ms of launches for 15 ms of work. Lines come late, and carry the device's times.
steps = fresh()
origin = device.host
for number in range(40):
    step(steps, loss=1.5 + number)
assert len(steps.report.lines) < 40, "lines before the device got there"
assert len(steps.device.pending) <= steps.device.MOST_PENDING, "the queue has no bound"
unread = [line for line in steps.report.lines if "spans" not in line]
assert 0 < len(unread) < 9 and not any("loss" in line for line in unread), "times of events not passed"
device.host = device.free + MS
step(steps)
device.host = device.free + MS
steps.device.drain()
assert [line["step"] for line in steps.report.lines] == list(range(1, 42))
for line in [line for line in steps.report.lines[:40] if line not in unread]:
    found = phases(line)
    close(found["forward"], 4000)
    close(found["backward"], 8000)
    close(found["wait"], 2000)
    close(found["optimizer"], 1000)
    close(line["dur_us"], 15000)
    assert found.get("data", 0) < 60, "the wait for data was hidden"
    assert line["loss"] == 0.5 + line["step"], line
    close(line["t"], (origin // 1000) + 50 + 15000 * (line["step"] - 1), 120)

# A slow loader: the device idles, and data is what it idles through.
steps = fresh()
for number in range(6):
    step(steps, data=40)
device.host = device.free + MS
steps.device.drain()
for line in steps.report.lines[1:]:
    found = phases(line)
    close(found["data"], 40_000 - 15_000 + 800, 300)
    close(found["forward"], 4000)

# While a graph is captured there are no events, and the lines carry the host's time only.
steps = fresh()
device.is_capturing = True
step(steps)
device.is_capturing = False
steps.device.drain()
step(steps)
device.host = device.free + MS
steps.device.drain()
assert [("spans" in line, "loss" in line) for line in steps.report.lines] == [(False, False), (False, True)], steps.report.lines

# Events are used again.
steps = fresh()
before = device.made
for number in range(100):
    step(steps)
    device.host = device.free
assert device.made - before < 30, device.made - before

# Two devices: their events cannot be compared. The step keeps the host's time.
steps = fresh()
def two(self, other):
    raise RuntimeError("two devices")
original, Event.elapsed_time = Event.elapsed_time, two
step(steps)
device.host = device.free
steps.device.drain()
Event.elapsed_time = original
assert len(steps.report.lines) == 1 and "spans" not in steps.report.lines[0]
print("ok")
