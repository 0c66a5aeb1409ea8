"""Steps, phases, loss and samples of a training script that knows nothing of hvtui.

`sitecustomize.py` loads this file once a framework has been imported and calls one of the `attach_…` functions at its
end. They put hooks around a few functions of the framework; the hooks tell `Steps` what begins and ends, and `Steps`
appends a line for each step to the file that HVTUI_REPORT names (docs/formats/report.md) and keeps the page
`<report>.now` at what is being done. docs/decisions/python-hooks.md says why each hook stands where it does.

Times are microseconds of CLOCK_MONOTONIC.

Rules: a hook never raises into the script, never changes a result, never waits for a device, keeps no tensor or batch.
The first fault switches all hooks off for good and says so in one line.
"""
import atexit
import fcntl
import functools
import math
import mmap
import os
import struct
import sys
import threading
from collections import deque
from time import monotonic_ns

import hvtui_start as start

# The first seven are the numbers on the page. PENDING is the time after a backward whose name the next event decides,
# BETWEEN the time from the end of a step to the first event of the next one, READY that from a batch to the forward pass.
DATA, FORWARD, BACKWARD, WAIT, TRANSFER, OPTIMIZER, OTHER, PENDING, BETWEEN, READY = range(10)
NAMES = ("data", "forward", "backward", "wait", "transfer", "optimizer", "other")
# What stands above the sequence on the page. Where no model was seen to begin, READY may be the forward pass itself.
SHOWN = [min(phase, OTHER) << 32 for phase in range(9)] + [FORWARD << 32]
# Under which name the hook on the next call of a model is kept.
CALL = "hvtui"
# Spans of one line; a step with more of them (many micro-batches) is summed up, one span for each phase.
MOST_SPANS = 40
# Two waits so close together (all_reduce for each parameter) are one.
SAME_WAIT_US = 100
# A step shorter than this has its spans told for each 2^k-th step only: the hooks stay under 1 % of the time.
WORTH_US = 7_000
# A backward of at least this long always has its ready callback: the page then says `wait` in a hang.
WAIT_WORTH_US = 2_000
# The line of a step that took so long is written at once; others at the latest after HELD_US, and at exit.
AT_ONCE_US = 5_000
HELD_US = 50_000
# What is never reached.
NEVER = 1 << 63


class Report:
    """The report file of this rank, with the page and the file for stacks beside it."""

    __slots__ = (
        "claimed_rank", "due", "file", "group_rank", "held", "locks", "missing", "page", "path", "side_rank",
        "stack_signal", "torn", "versions", "written",
    )

    def __init__(self):
        self.path = os.environ["HVTUI_REPORT"]
        self.file = self.locks = self.page = self.side_rank = None
        self.group_rank = self.claimed_rank = None
        self.torn = False
        self.held, self.written = [], 0
        self.due = NEVER  # when what is held back goes out at the next mark
        self.versions = {"python": "%d.%d.%d" % sys.version_info[:3]}
        self.missing = []
        self.stack_signal = None

    def rank(self):
        if self.claimed_rank is not None:  # eight microseconds less for each line
            return self.claimed_rank
        return start.rank() if self.group_rank is None else self.group_rank

    def open(self):
        if self.file is None:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self.file = start.high(os.open(self.path, flags, 0o600))

    def write(self, line):
        """Appends one line, and those held back before it, by one write."""
        self.held.append(line.encode("utf-8"))
        self.flush(monotonic_ns() // 1000)

    def step(self, line, took, now):
        """Appends the line of a step: at once if it was a long one. A write costs as much as all else of a short step
        on a busy disk, so those are held back until the first mark after 50 ms; the page has their number all the same, also
        where a rank hangs and no mark comes."""
        self.held.append(line)
        self.due = self.written + HELD_US
        if took >= AT_ONCE_US or now >= self.due:
            self.flush(now)

    def flush(self, now):
        """A full disk costs the lines, never the script."""
        start.Stacks.look()
        data = b"\n".join(self.held) + b"\n"
        self.held, self.written, self.due = [], now, NEVER
        if self.torn:
            data = b"\n" + data
        try:
            self.torn = 0 < os.write(self.file, data) < len(data)
        except OSError:
            pass

    def hello(self, **more):
        fields = ['"kind":"hello","by":"hooks","rank":%d,"job":%s,"pid":%d' % (
            self.rank(), start.quoted(start.script_name()), os.getpid())]
        pairs = ("%s:%s" % (start.quoted(name), start.quoted(text)) for name, text in self.versions.items())
        fields.append('"versions":{%s}' % ",".join(pairs))
        if self.missing:
            fields.append('"missing":[%s]' % ",".join(map(start.quoted, self.missing)))
        if self.stack_signal:
            fields.append('"stack_signal":%d' % self.stack_signal)
        for name, value in more.items():
            fields.append('"%s":%s' % (name, value if isinstance(value, int) else start.quoted(value)))
        self.write("{%s}" % ",".join(fields))

    def lock(self):
        """Whether this process may report for its rank: the byte at the rank's number is locked while it lives, so
        that a second training in the same rank stays silent. A lock of the process, not of the file: a fork has none. It
        is on a file of its own, for it goes as soon as anything in the process closes the file.
        """
        try:
            if self.locks is None:
                self.locks = start.high(os.open(self.path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            fcntl.lockf(self.locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self.rank())
            return True
        except OSError as error:
            # a file system without locks: rather two reports than none
            return not isinstance(error, BlockingIOError) and error.errno != 13

    def unlock(self):
        try:
            fcntl.lockf(self.locks, fcntl.LOCK_UN, 1, self.rank())
        except OSError:
            pass

    def beside(self, ending):
        """The name of a file beside the report: a worker of an inner launcher has its rank in it."""
        rank = self.rank()
        own = os.environ.get("HVTUI_RANK", "0")
        return "%s%s.%s" % (self.path, "" if str(rank) == own else ".%d" % rank, ending)

    def open_beside(self):
        """Makes the page, and registers the signal that writes the stacks, once for a rank."""
        if self.side_rank == self.rank():
            return
        self.side_rank = self.rank()
        self.page = Page(self.beside("now"), start.pid_outside(self.path))
        self.stack_signal = start.Stacks.listen(self.beside("stack"))
        if self.stack_signal:
            if self.gives_up_signal not in start.Stacks.taken:
                start.Stacks.taken.append(self.gives_up_signal)
            self.page.listens(int(self.stack_signal))

    def gives_up_signal(self):
        """The script has taken the signal: it is not sent any more."""
        self.stack_signal = None
        if self.page is not None:
            self.page.listens(0)

    def forked(self):
        # The child's copies: the page and the locks are the parent's.
        for file in (self.file, self.locks):
            if file is not None:
                try:
                    os.close(file)
                except OSError:
                    pass  # the script has closed it
        self.file = self.locks = self.page = self.side_rank = self.stack_signal = None
        self.held, self.due = [], NEVER
        start.Stacks.forked()


class Page:
    """32 bytes that say what this rank is doing: u32 sequence (odd while it is written), u32 phase, u64 step,
    u64 since (microseconds of CLOCK_MONOTONIC), u32 pid (0: not known outside), u32 the signal upon which it writes its stacks (0: none)."""

    __slots__ = "map", "pid", "sequence", "words"

    def __init__(self, path, pid):
        self.pid = pid
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # written, not truncated to length: on a full disk a hole would end the script by SIGBUS
            page = struct.pack("<IIQQII", 0, OTHER, 0, monotonic_ns() // 1000, pid, 0)
            if os.pwrite(file, page, 0) != len(page):
                raise OSError("short write")
            self.map = mmap.mmap(file, len(page))
        finally:
            os.close(file)
        # stores of eight bytes: a quarter of the time of packing the fields
        self.words = memoryview(self.map).cast("Q")
        self.sequence = 0

    def listens(self, number):
        self.words[3] = self.pid | number << 32

    def set(self, phase, now):
        # who reads between these stores has the former phase as one that began just now, and reads again soon
        words = self.words
        words[2] = now
        self.sequence = sequence = (self.sequence + 2) & 0xFFFFFFFF
        words[0] = SHOWN[phase] | sequence

    def turn(self, step):
        """What is `set` next is of this step; until then the page is being written."""
        words = self.words
        words[0] = self.sequence + 1
        words[1] = step


class Steps:
    """Turns events into steps. A step is a list of marks, each a phase and the time at which it began; it begins where
    the former one ended, so that its spans leave nothing out."""

    # with more than 30 attributes Python looks each of them up in a dict
    __slots__ = (
        "at_exit", "attached", "backwards", "batches", "calls", "child", "claimed", "closures", "device", "events",
        "every", "forms", "full", "group", "handle", "in_backward", "in_batch", "in_optimizer", "in_wait",
        "loss", "many", "off", "on_call", "optimizers", "page", "paused", "phases", "recent", "report", "samples",
        "slots", "step", "stepped_inside", "thread", "times", "unused", "wanted",
    )

    def __init__(self, report):
        self.report = report
        self.page = None
        self.device = None
        self.off = False  # a fault, or another process reports for this rank
        self.claimed = False
        self.child = False  # forked or spawned by multiprocessing: says nothing before it trains
        self.attached = self.at_exit = False
        self.thread = threading.main_thread().ident
        self.step = 0
        self.group = 1  # ranks of the process group
        self.many = False
        self.every = 1
        self.wanted = 1  # optimizers after one backward
        self.recent = []
        self.forms = {}
        self.batches = deque(maxlen=16)  # samples of the batches that no backward has used
        self.unused = 0
        self.calls = self.on_call = None  # torch's hooks on every module, and ours on the next one that is called
        self.restart()
        self.begin_step()
        self.reset_depths()

    def reset_depths(self):
        self.in_backward = self.in_optimizer = self.in_wait = self.in_batch = 0
        self.handle = None

    def begin_step(self):
        self.backwards = 0
        self.optimizers = 0
        self.closures = 0
        self.stepped_inside = False
        self.loss = 0.0
        self.slots = []
        self.samples = 0
        self.full = self.every == 1 or (self.step + 1) % self.every == 0

    # -- who reports

    def fail(self, where, error):
        """Switches everything off, for good. The line names our own place: an error's text could hold data."""
        if self.off:
            return
        self.off = True
        line, trace = 0, error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == __file__:
                line = trace.tb_lineno
            trace = trace.tb_next
        text = "%s in %s (hvtui_report.py:%d)" % (type(error).__name__, where, line)
        start.debug("off: %s: %s" % (text, error))
        try:
            if self.report.file is not None:
                self.report.hello(off=text)
            if self.page is not None:
                self.show(OTHER, monotonic_ns() // 1000)
        except Exception:
            pass

    def attach(self, framework, version, missing=()):
        """A framework has been hooked: says so, unless another process reports for this rank."""
        report = self.report
        report.versions[framework] = str(version)
        report.missing.extend(missing)
        if not self.attached:
            self.attached = True
            self.child = is_multiprocessing_child()
            os.register_at_fork(after_in_child=self.forked)
        if self.child and not self.claimed:
            return
        report.open()
        if self.claimed or report.lock():
            report.open_beside()
            self.page = report.page
            report.hello()
            if not self.claimed:
                report.unlock()  # the first process that trains takes it
        start.debug("attached to %s %s%s" % (framework, version, "".join(", without " + part for part in missing)))

    def claim(self):
        """At the first sign of training: from now on this process reports for its rank, or never."""
        report = self.report
        report.open()
        if not report.lock():
            start.debug("another process reports for rank %d" % report.rank())
            self.off = True
            return False
        report.claimed_rank = report.rank()
        self.forms = {}
        if not self.at_exit:
            self.at_exit = True
            atexit.register(self.exits)
            hook_exit(self)
        self.claimed = True
        told = report.side_rank == report.rank()
        report.open_beside()
        self.page = report.page
        if not told:
            report.hello()
        return True

    def exits(self):
        """The process is about to end: what was held back goes out."""
        try:
            if self.claimed and self.device is not None:
                self.device.drain()
            if self.claimed and self.report.held:
                self.report.flush(monotonic_ns() // 1000)
        except Exception:
            pass

    def forked(self):
        try:
            self.report.forked()
            self.page = self.device = None
            self.claimed, self.child, self.group = False, True, 1
            self.report.group_rank = self.report.claimed_rank = None
            self.forms = {}
            self.reset_depths()
            self.restart()
            self.begin_step()
        except Exception:
            self.off = True

    def group_made(self, rank, size, transport):
        """The ranks are connected; `size` is that of torch's process group, 1 where another library connects them."""
        if self.child and not self.claimed:
            self.report.group_rank = rank
        if self.off or not (self.claimed or self.claim()):
            return
        self.group = size
        self.report.hello(transport=transport)
        self.report.write('{"kind":"met","by":"hooks","rank":%d,"t":%d}' % (self.report.rank(), monotonic_ns() // 1000))
        if not self.step:
            self.awaits_call()  # of the first step too

    # -- marks

    def enter(self, phase, now):
        times = self.times
        if not times:
            self.page.turn(self.step + 1)
        times.append(now)
        self.phases.append(phase)
        if self.device is not None:
            self.events.append(self.device.record() if self.full or phase == BETWEEN else None)
        self.page.set(phase, now)
        if now >= self.report.due:
            self.report.flush(now)  # this phase may be one that never ends

    def show(self, phase, now):
        """What is done, where it is no mark."""
        self.page.turn(self.step + 1)
        self.page.set(phase, now)

    def leave(self):
        """Takes the last mark back."""
        self.times.pop()
        self.phases.pop()
        if self.events:
            self.events.pop()

    def restart(self):
        """What was marked since the last step is no part of the next one."""
        self.times, self.phases, self.events = [], [], []
        self.paused = False

    def last(self):
        return self.phases[-1] if self.phases else BETWEEN

    # -- events

    def settle(self):
        """Ends a step that was left open for another optimizer, at the end of its last one."""
        if self.optimizers and not self.in_optimizer:
            self.finish(self.times[-1])

    def data_begins(self, now, first):
        if self.in_optimizer or self.in_backward:  # an exception left them
            self.reset_depths()
        if self.optimizers:
            self.settle()
        if (self.paused or first) and not self.backwards:
            # an evaluation or the start of an epoch stands between: that is no part of the step
            self.restart()
        if first:
            self.batches.clear()
            self.unused = 0
        self.enter(DATA, now)
        if self.calls:
            self.calls.pop(CALL, None)  # a loader in this process may call modules of its own

    def data_ends(self, batch):
        self.enter(READY if self.awaits_call() else FORWARD, monotonic_ns() // 1000)
        self.unused += 1
        self.batches.append(samples_of(batch))

    def data_fails(self):
        """No batch came: the epoch is over, or the loader failed."""
        if self.last() != DATA:
            return
        self.leave()
        now = monotonic_ns() // 1000
        if self.unused > 1 and not self.backwards and len(self.batches) == min(self.unused, self.batches.maxlen):
            # many batches and no backward: an evaluation with gradients on
            self.batches.clear()
            self.restart()
        if self.backwards:
            self.show(OTHER, now)
        elif self.batches:  # one was fetched ahead, as Accelerate does: its forward comes now
            self.enter(READY if self.awaits_call() else FORWARD, now)
        else:
            self.restart()
            self.enter(BETWEEN, now)
            self.paused = True

    def evaluates(self):
        """Something that is not training begins, if a step is not under way."""
        if self.claimed and not self.paused and self.last() == BETWEEN and not self.in_wait:
            self.paused = True
            self.show(OTHER, monotonic_ns() // 1000)

    def trains(self):
        """The end of an evaluation, where no loader tells it."""
        if self.paused and self.last() == BETWEEN and not self.off:
            self.restart()
            self.enter(BETWEEN, monotonic_ns() // 1000)
            self.awaits_call()

    def awaits_call(self):
        """The next model that is called begins the forward pass. Our hook stands only until then: while there is one,
        torch calls every module the slow way. Whether it stands."""
        if self.calls is None or not (self.full or not self.many):
            return False
        self.calls[CALL] = self.on_call
        return True

    def forward_begins(self, now):
        """A model is called. What lay before, since the step or the micro-batch before, is no forward pass."""
        last = self.last()
        if last == READY:
            self.phases[-1] = DATA  # the script prepares the batch
        elif not (last == BETWEEN and not self.paused or last == PENDING and not self.optimizers):
            return
        self.enter(FORWARD, now)

    def backward_begins(self, now):
        phases = self.phases
        if self.calls:
            self.calls.pop(CALL, None)
        if phases and phases[-1] == FORWARD:
            pass
        elif self.paused and self.last() == BETWEEN:
            self.restart()
        elif phases and phases[-1] in (BETWEEN, PENDING, OPTIMIZER, READY):
            phases[-1] = FORWARD  # no model was called: where the forward pass began is not known
        self.enter(BACKWARD, now)

    def ready(self):
        """All gradients of this rank are there. Called by the autograd engine, before it waits for other ranks."""
        try:
            if self.in_backward == 1 and self.last() == BACKWARD and not self.off:
                self.enter(WAIT, monotonic_ns() // 1000)
        except Exception as error:
            self.fail("ready callback", error)

    def backward_ends(self, now, whole):
        if whole:
            self.backwards += 1
        if self.in_optimizer:
            self.enter(OPTIMIZER, now)
        elif self.stepped_inside:
            self.finish(now)
        elif not self.in_batch or self.last() != PENDING:
            self.enter(PENDING, now)
            self.awaits_call()

    def count(self, loss):
        """Adds the loss and samples of a backward. An optimizer with a closure (LBFGS) may run it many times for the
        same batch: only the first counts."""
        self.unused = 0
        if self.in_optimizer:
            self.closures += 1
            if self.closures > 1:
                return
        if self.batches:
            self.samples += self.batches.popleft()
        if loss is None or self.loss is None:
            self.loss = None
        elif isinstance(loss, float):
            self.loss += loss
        else:
            self.slots.append(loss)

    def optimizer_begins(self, now):
        self.in_optimizer += 1
        if self.in_optimizer > 1:
            return
        if self.in_backward:
            self.stepped_inside = True
            return
        if self.last() == PENDING:
            # what the script does between backward and step (clipping, unscaling) belongs to the update
            self.phases[-1] = OPTIMIZER
            self.page.set(OPTIMIZER, now)
        else:
            self.enter(OPTIMIZER, now)

    def optimizer_ends(self, now):
        self.in_optimizer = max(0, self.in_optimizer - 1)
        if self.in_optimizer or self.in_backward:
            return
        if self.in_batch:
            self.enter(PENDING, now)
        elif not self.backwards:
            # a second optimizer after one backward is the same step: from the next step on the end waits for it
            self.enter(BETWEEN, now)
            self.awaits_call()
            self.wanted += 1
        else:
            self.optimizers += 1
            if self.optimizers >= self.wanted:
                self.finish(now)
            else:
                self.enter(PENDING, now)

    def wait_begins(self, now):
        """A collective of the script's own. Returns the phase to go back to."""
        last = self.last()
        if len(self.phases) > 1 and self.phases[-2] == WAIT and now - self.times[-1] < SAME_WAIT_US:
            self.leave()
            self.show(WAIT, now)
        elif self.phases:
            self.enter(WAIT, now)
        else:
            self.show(WAIT, now)
        return last

    def wait_ends(self, back, now):
        if self.phases:
            self.enter(back, now)
        else:
            self.show(OTHER, now)

    def batch_begins(self, now):
        """Keras is about to train on a batch."""
        if self.last() == BETWEEN and (self.paused or not self.phases):
            self.restart()
            self.enter(FORWARD, now)
        elif self.last() == BETWEEN:
            self.enter(FORWARD, now)
        self.in_batch = 1

    def batch_ends(self, now, steps, loss=None, write=None):
        """Keras has trained on a batch. Without a backward that was seen, only its time is known."""
        self.in_batch = 0
        if self.backwards:
            if self.last() == PENDING:
                self.phases[-1] = OPTIMIZER
        else:
            self.full, self.loss = False, loss
        self.finish(now, steps, write)

    def metric(self, name, value, step):
        """A number that the script itself names. Only a plain one: a tensor may be on a device."""
        if type(value) not in (int, float) or not math.isfinite(value) or not (self.claimed or self.claim()):
            return
        step = ',"step":%d' % step if type(step) is int and step >= 0 else ""
        self.report.write('{"kind":"metric","by":"hooks","rank":%d,"name":%s,"value":%.9g%s}' % (
            self.report.rank(), start.quoted(str(name)[:80]), value, step))

    # -- the end of a step

    def finish(self, end, steps=1, write=None):
        """The step is over at `end`; the next one begins there. `write` takes the line, if not the report."""
        if self.optimizers:
            if self.optimizers < self.wanted:
                self.wanted = self.optimizers  # fewer optimizers than in the step before
            if self.last() == PENDING and self.times[-1] == end:
                self.leave()
        step = self.step = self.step + steps
        times, phases, events = self.times, self.phases, self.events
        loss, slots, samples, full = self.loss, self.slots, self.samples, self.full
        if not self.backwards and not slots and loss == 0.0:
            loss = None
        self.restart()
        self.begin_step()
        self.enter(BETWEEN, end)
        self.awaits_call()
        if not times:
            times, phases = [end], [BETWEEN]
        took = end - times[0]
        times.append(end)
        self.recent.append(took)
        if step % 16 == 0:
            self.thin()
        if self.device is None:
            line = self.line(times, phases, loss, samples, full, step)
            if write is None:
                self.report.step(line, took, end)
            else:
                write(line)
        else:
            events = events + [None] * (len(phases) - len(events)) + self.events
            self.device.push(times, phases, events, loss, slots, (samples, full, step))
            self.device.drain()

    def thin(self):
        """Decides for which steps spans are told: each 2^k-th, by the median of 16 steps, at step numbers that are
        alike on all ranks. Ranks that decide differently still share the multiples of the larger one."""
        if len(self.recent) >= 16:
            median = sorted(self.recent)[len(self.recent) // 2]
            self.recent = []
            self.many = median < WAIT_WORTH_US
            self.every = 1
            while self.every < 64 and median * self.every < WORTH_US:
                self.every *= 2
            self.full = self.every == 1 or (self.step + 1) % self.every == 0

    def line(self, times, phases, loss, samples, full, step):
        """A step as a line; `times` has one more than `phases`: the end."""
        origin = times[0]
        values = [step, origin, times[-1] - origin]
        has_loss = loss is not None and math.isfinite(loss)
        if has_loss:
            values.append(loss)
        if samples:
            values.append(samples)
        kinds = spans(times, phases, values) if full else None
        # one formatting by a form that is kept costs a third of putting the parts together; one of bytes passes over
        # the letters between the numbers at once
        key = kinds, has_loss, samples > 0
        form = self.forms.get(key)
        if form is None:
            if len(self.forms) > 100:
                self.forms.clear()
            form = self.forms[key] = line_form(self.report.rank(), *key)
        return form % tuple(values)


def line_form(rank, kinds, has_loss, has_samples):
    form = '{"kind":"step","by":"hooks","rank":' + str(rank) + ',"step":%d,"t":%d,"dur_us":%d'
    form += ',"loss":%.7g' * has_loss + ',"samples":%d' * has_samples
    if kinds is not None:
        form += ',"spans":[' + ",".join(
            '{"phase":"' + NAMES[kind] + '","start_us":%d,"dur_us":%d}' for kind in kinds) + "]"
    return (form + "}").encode("ascii")


def spans(times, phases, values):
    """Appends the start and length of each span to `values` and returns their phases. What is named
    `other` and too short to matter is left out; neighbours of one phase are one span."""
    origin = times[0]
    least = (times[-1] - origin) >> 7
    kinds, lengths, at = [], [], 0
    for number, phase in enumerate(phases, 1):
        end = times[number] - origin
        if phase > OTHER:
            phase = DATA if phase == READY else OTHER
        if end > at and (phase != OTHER or end - at > least):
            if kinds and kinds[-1] == phase and lengths[-2] + lengths[-1] == at:
                lengths[-1] = end - lengths[-2]
            else:
                kinds.append(phase)
                lengths.append(at)
                lengths.append(end - at)
        at = end
    if len(kinds) > MOST_SPANS:
        kinds, lengths = summed(kinds, lengths)
    values.extend(lengths)
    return tuple(kinds)


def summed(kinds, lengths):
    """One span for each phase, one after the other in the order in which they first came."""
    totals = {}
    for number, kind in enumerate(kinds):
        totals[kind] = totals.get(kind, 0) + lengths[2 * number + 1]
    at, result = lengths[0], []
    for length in totals.values():
        result += at, length
        at += length
    return list(totals), result


def samples_of(batch):
    """The first length of the first tensor in a batch; 0 where there is none."""
    for _ in range(4):
        if isinstance(batch, (list, tuple)) and batch:
            batch = batch[0]
            continue
        shape = getattr(batch, "shape", None)
        if shape is not None:
            return int(shape[0]) if len(shape) else 0
        if hasattr(batch, "values") and hasattr(batch, "keys"):
            batch = next((value for value in batch.values() if hasattr(value, "shape")), None)
        else:
            return 0
    return 0


def is_multiprocessing_child():
    words = getattr(sys, "orig_argv", None) or []
    return "--multiprocessing-fork" in words or any("multiprocessing" in word for word in words[1:4] if " " in word)


def hook_exit(steps):
    """`os._exit` runs no exit functions. A forked child has claimed nothing, so it writes nothing."""
    original = os._exit

    @functools.wraps(original)
    def _exit(*values, **names):
        steps.exits()
        return original(*values, **names)

    os._exit = _exit


STEPS = Steps(Report())


def guarded(where, event, *values):
    """Runs a hook's part; a fault in it switches the hooks off."""
    try:
        return event(*values)
    except Exception as error:
        STEPS.fail(where, error)
        return None


class DeviceClock:
    """Times on a GPU without waiting for it: an event in the stream at each mark, read when a later step ends and the
    device has passed the last of them. A span is then what the device did or idled through: `data` the exposed wait
    for a batch, `wait` the exposed allreduce."""

    MOST_PENDING = 32
    LOSSES = 1024

    def __init__(self, torch, steps):
        self.steps = steps
        self.make, self.capturing = torch.cuda.Event, torch.cuda.is_current_stream_capturing
        self.losses = torch.empty(self.LOSSES, dtype=torch.float32, device="cpu", pin_memory=True)
        self.places = self.losses.unbind()
        self.next_loss = 0
        self.pool, self.pending = [], deque()
        self.known = None  # an event, and the time of this host at which it was passed, or earlier

    def record(self):
        """An event in the current stream; None while a graph is captured, which must not hold it."""
        if self.capturing():
            return None
        event = self.pool.pop() if self.pool else self.make(enable_timing=True)
        event.record()
        return event

    def loss(self, tensor):
        """Asks for a copy of the loss in pinned memory; the copy is there when a later event has been passed."""
        if self.capturing():
            return None
        slot, self.next_loss = self.next_loss, (self.next_loss + 1) % self.LOSSES
        value = tensor.detach()
        self.places[slot].copy_(value if value.dim() == 0 else value.reshape(()), non_blocking=True)
        return slot

    def push(self, times, phases, events, loss, slots, rest):
        """Keeps a step until its events can be read. `times` and `events` have one more than `phases`: the end."""
        if self.known is None and events[0] is not None:
            self.known = events[0], times[0] * 1000
        self.pending.append((times, phases, events, loss, slots, rest))

    def drain(self):
        """Writes the steps that the device has passed. `query` does not wait."""
        while self.pending and not self.steps.off:
            last = self.pending[0][2][-1]
            if last is not None and not last.query():
                if len(self.pending) <= self.MOST_PENDING:
                    return
                self.write(self.pending.popleft(), False)
            else:
                self.write(self.pending.popleft(), True)

    def write(self, step, passed):
        times, phases, events, loss, slots, (samples, full, number) = step
        if slots:
            # a device far behind, or a slot that was used again: unknown
            known = passed and loss is not None and len(slots) * self.MOST_PENDING <= self.LOSSES
            loss = loss + sum(float(self.losses[slot]) for slot in slots) if known else None
        full = full and passed and None not in events
        if passed and events[0] is not None and events[-1] is not None:
            try:
                times = self.placed(times, events)
            except RuntimeError as error:  # events of two devices
                start.debug("no device times for step %d: %s" % (number, error))
                full = False
            self.pool.extend(event for event in events[:-1] if event is not None and event is not self.known[0])
        line = self.steps.line(times, phases, loss, samples, full, number)
        self.steps.report.step(line, times[-1] - times[0], monotonic_ns() // 1000)

    def placed(self, times, events):
        """The times at which the device passed the events, on this host's clock. The device passes an event after it
        was recorded: the latest such bound wins, and holds for the next step too, as durations are exact. It is exact
        once the device was idle at any mark. In nanoseconds within, so that what is cut off does not add up."""
        begin = events[0]
        offsets, latest = [], 0
        for event in events:
            if event is not None:
                latest = max(latest, int(begin.elapsed_time(event) * 1e6)) if event is not begin else 0
            offsets.append(latest)
        origin = max(time * 1000 - offset for time, offset, event in zip(times, offsets, events) if event is not None)
        event, time = self.known
        origin = max(origin, time + (0 if event is begin else int(event.elapsed_time(begin) * 1e6)))
        self.known = events[-1], origin + offsets[-1]
        return [(origin + offset) // 1000 for offset in offsets]


# ---------------------------------------------------------------------------------------------------------- PyTorch


class Torch:
    """What the hooks need of torch, looked up once."""

    def __init__(self, torch):
        self.torch = torch
        self.missing = []
        compiler = getattr(torch, "compiler", None)
        self.compiling = getattr(compiler, "is_compiling", None)
        if self.compiling is None:
            self.compiling = getattr(getattr(torch, "_dynamo", None), "is_compiling", None) or (lambda: False)
        self.scaled = None

    def part(self, name, hook):
        """Sets one hook; a version that lacks its private part is told as missing it."""
        try:
            hook()
        except (AttributeError, KeyError, ImportError) as error:
            start.debug("no %s: %s" % (name, error))
            self.missing.append(name)


def attach_torch(torch):
    known = Torch(torch)
    known.part("autograd.backward", lambda: hook_backward(known))
    known.part("DataLoader.__next__", lambda: hook_loader(torch, sys.modules["torch.utils.data.dataloader"]))
    known.part("Optimizer.step", lambda: hook_optimizer(known))
    known.part("GradScaler.scale", lambda: hook_scaler(known))
    known.part("Module.eval", lambda: hook_eval(known))
    known.part("Module.forward", lambda: hook_forward(known))
    known.part("torch.distributed", lambda: hook_distributed(known))
    known.part("NCCL plugin", lambda: load_nccl_plugin(torch))
    guarded("attach to torch", STEPS.attach, "torch", torch.__version__.split("+")[0], known.missing)


def load_nccl_plugin(torch):
    """NCCL before 2.27.5 takes a profiler by its name alone; the C library finds one that is open by its SONAME."""
    path = os.environ.get("HVTUI_NCCL_PLUGIN")
    version = getattr(torch._C, "_nccl_version", None)
    if path and version and os.environ.get("NCCL_PROFILER_PLUGIN") in (path, "hvtui"):
        if (2, 27, 0) <= (version() >> 32, version() >> 16 & 65535, version() & 65535) < (2, 27, 5):
            import ctypes

            try:
                ctypes.CDLL(path)
            except OSError as error:
                start.debug("the NCCL plugin can't be opened: %s" % error)
                return
            os.environ["NCCL_PROFILER_PLUGIN"] = "hvtui"


def attach_loader(module):
    """A module with a loader of its own that follows torch's."""
    hook_loader(sys.modules["torch"], module)


def hook_loader(torch, module):
    """The loaders' `__next__`: waiting for data. Without gradients it is an evaluation."""
    kind = module._BaseDataLoaderIter
    original, grad_enabled, steps = kind.__next__, torch.is_grad_enabled, STEPS
    get_ident = threading.get_ident

    def begins(loader):
        if not grad_enabled():
            steps.evaluates()
            return False
        if steps.in_batch or get_ident() != steps.thread:
            return False
        # a loader's worker claims nothing
        if not steps.claimed and (steps.child or torch.utils.data.get_worker_info() is not None or not steps.claim()):
            return False
        steps.data_begins(monotonic_ns() // 1000, getattr(loader, "_num_yielded", 1) == 0)
        return True

    @functools.wraps(original)
    def __next__(self):
        if steps.off:
            return original(self)
        try:
            watched = begins(self)
        except Exception as error:
            watched = steps.fail("loader hook", error)
        if not watched:
            return original(self)
        try:
            batch = original(self)
        except BaseException:
            guarded("loader hook", steps.data_fails)
            raise
        if not steps.off:
            try:
                steps.data_ends(batch)
            except Exception as error:
                steps.fail("loader hook", error)
        return batch

    kind.__next__ = __next__


def hook_backward(known):
    """`Tensor.backward` calls `torch.autograd.backward` by that name. A root hook asks the engine to call `ready` when
    all gradients are there: engine callbacks run in the order in which they were asked for, and DDP asks for its wait
    when its last bucket is full, so ours comes before it."""
    torch, steps, compiling = known.torch, STEPS, known.compiling
    original = torch.autograd.backward
    engine = torch.autograd.Variable._execution_engine
    if not hasattr(engine, "queue_callback"):
        known.missing.append("engine.queue_callback")
        engine = None
    get_ident, tensor = threading.get_ident, torch.Tensor

    def queue(_gradient):
        try:
            engine.queue_callback(steps.ready)
        except Exception as error:
            steps.fail("ready callback", error)

    def begins(tensors):
        steps.in_backward += 1
        if steps.in_backward > 1:
            return
        if not steps.claimed and not steps.claim():
            return
        steps.thread = get_ident()
        root = tensors if isinstance(tensors, tensor) else next(iter(tensors), None) \
            if isinstance(tensors, (list, tuple)) else None
        if not isinstance(root, tensor):
            root = None  # an edge of the graph has no value
        if steps.optimizers:
            steps.settle()
        if root is not None:
            if root.is_cuda:
                watch_device(torch, root)
            steps.count(loss_of(known, root))
        steps.backward_begins(monotonic_ns() // 1000)
        if steps.group > 1 and (steps.full or not steps.many) and engine is not None and root is not None \
                and root.requires_grad:
            steps.handle = root.register_hook(queue)

    def ends(whole):
        if steps.in_backward > 1:
            steps.in_backward -= 1
            return
        steps.in_backward = 0
        now = monotonic_ns() // 1000
        if steps.handle is not None:
            handle, steps.handle = steps.handle, None
            handle.remove()
        steps.backward_ends(now, whole)

    @functools.wraps(original)
    def backward(tensors, *values, **names):
        if steps.off or compiling():
            return original(tensors, *values, **names)
        try:
            begins(tensors)
        except Exception as error:
            steps.fail("backward hook", error)
        try:
            result = original(tensors, *values, **names)
        except BaseException:
            if not steps.off:
                guarded("backward hook", ends, False)
            raise
        if not steps.off:
            try:
                ends(True)
            except Exception as error:
                steps.fail("backward hook", error)
        return result

    torch.autograd.backward = backward


def loss_of(known, root):
    """The loss as a number, as a slot that a device fills, or None. Only a CPU's tensor is read at once."""
    if known.scaled is not None:
        scaled, known.scaled = known.scaled, None
        if scaled[0] == id(root):
            return scaled[1]
    if root.numel() != 1:
        return None
    return loss_value(root)


def watch_device(torch, tensor):
    """From the first loss on a GPU the marks have events in its stream."""
    steps = STEPS
    if steps.device is None and tensor.is_cuda and steps.claimed:
        steps.device = DeviceClock(torch, steps)
        steps.events = [None] * len(steps.times)


def loss_value(tensor):
    # a torch without `is_cpu` has the slower word
    if getattr(tensor, "is_cpu", False) or tensor.device.type == "cpu":
        value = tensor.item()
        return value if type(value) is float else None
    if tensor.is_cuda:
        return STEPS.device.loss(tensor) if STEPS.device is not None and tensor.is_floating_point() else None
    return None


def hook_scaler(known):
    """`GradScaler.scale` multiplies the loss: what it was given is the loss."""
    torch = known.torch
    module = sys.modules.get("torch.amp.grad_scaler") or sys.modules["torch.cuda.amp.grad_scaler"]
    kind = module.GradScaler
    original = kind.scale

    def remember(given, result):
        if result is not given and isinstance(given, torch.Tensor) and given.numel() == 1:
            watch_device(torch, given)
            known.scaled = (id(result), loss_value(given))

    @functools.wraps(original)
    def scale(self, outputs):
        result = original(self, outputs)
        if not STEPS.off and not known.compiling():
            guarded("scaler hook", remember, outputs, result)
        return result

    kind.scale = scale


def hook_optimizer(known):
    torch, steps = known.torch, STEPS
    module = sys.modules["torch.optim.optimizer"]  # torch 1.x deletes the attribute

    def before(_optimizer, _values, _names):
        if steps.off:
            return
        try:
            if steps.claimed or steps.claim():
                steps.optimizer_begins(monotonic_ns() // 1000)
        except Exception as error:
            steps.fail("optimizer hook", error)

    def after(_optimizer, _values, _names):
        if steps.off or not steps.in_optimizer:
            return
        try:
            steps.optimizer_ends(monotonic_ns() // 1000)
        except Exception as error:
            steps.fail("optimizer hook", error)

    if hasattr(module, "register_optimizer_step_pre_hook"):
        hide = getattr(torch, "_disable_dynamo", None) or (lambda function: function)
        module.register_optimizer_step_pre_hook(hide(before))
        module.register_optimizer_step_post_hook(hide(after))
    else:
        hook_optimizer_classes(module.Optimizer, before, after)


def hook_optimizer_classes(base, before, after):
    """torch 1.x has no global hooks, but wraps the `step` of each class at its first object: we do it after it."""
    original = base._hook_for_profile

    def wrap(step):
        @functools.wraps(step)  # copies torch's own mark `hooked` too
        def wrapped(self, *values, **names):
            before(self, values, names)
            try:
                return step(self, *values, **names)
            finally:
                after(self, values, names)

        wrapped.hooked = wrapped.hvtui = True
        return wrapped

    def hook(kind):
        if not getattr(kind.step, "hvtui", False):
            kind.step = wrap(kind.step)

    @functools.wraps(original)
    def _hook_for_profile(self):
        original(self)
        if not STEPS.off:
            guarded("optimizer hook", hook, type(self))

    base._hook_for_profile = _hook_for_profile


def hook_eval(known):
    """`model.eval()` between two steps begins an evaluation, `model.train()` ends it: that tells one without a loader.
    `train` calls itself for each submodule, so it is hooked only from an `eval` to the next `train`."""
    module = known.torch.nn.Module
    original_eval, original_train = module.eval, module.train

    @functools.wraps(original_train)
    def train(self, mode=True):
        if mode and module.train is train:
            module.train = original_train
            guarded("train hook", STEPS.trains)
        return original_train(self, mode)

    def begins():
        if STEPS.claimed and module.train is original_train:
            module.train = train
        STEPS.evaluates()

    @functools.wraps(original_eval)
    def eval(self):
        result = original_eval(self)
        if not STEPS.off and not known.compiling():
            guarded("eval hook", begins)
        return result

    module.eval = eval


def hook_forward(known):
    """The first call of a model after a step or a batch: there the forward pass begins. Losses and transforms are modules
    too; a model has parameters. Who compiles gets no such hook: it would be compiled into the model, or torch warns of it."""
    steps, torch, get_ident = STEPS, known.torch, threading.get_ident
    calls = sys.modules["torch.nn.modules.module"]._global_forward_pre_hooks

    def has_parameters(module):
        try:
            return next(iter(module.parameters()), None) is not None
        except Exception:  # a model's own method of that name
            return False

    def begins(module, _values):
        if known.compiling():
            return
        try:
            if steps.off or not steps.claimed:
                calls.pop(CALL, None)
            elif get_ident() == steps.thread and has_parameters(module):
                calls.pop(CALL, None)
                SHOWN[READY] = SHOWN[DATA]
                steps.forward_begins(monotonic_ns() // 1000)
        except Exception as error:
            calls.pop(CALL, None)
            steps.fail("forward hook", error)

    steps.calls, steps.on_call = calls, begins
    if hasattr(torch, "compile"):
        original = torch.compile

        @functools.wraps(original)
        def compile(*values, **names):
            steps.calls = None
            calls.pop(CALL, None)
            return original(*values, **names)

        torch.compile = compile


COLLECTIVES = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_to_all", "all_to_all_single",
    "barrier", "monitored_barrier", "broadcast", "broadcast_object_list", "gather", "gather_object", "recv", "reduce",
    "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list",
)


def hook_distributed(known):
    """The script's own collectives that wait: averaging by hand, metrics, barriers."""
    names = [sys.modules["torch.distributed"], sys.modules["torch.distributed.distributed_c10d"]]
    home = names[1]
    for name in COLLECTIVES:
        if hasattr(home, name):
            put(names, name, waiting(getattr(home, name), known.compiling))
    hook_group(names, home)


def put(modules, name, function):
    for module in modules:
        if hasattr(module, name):
            setattr(module, name, function)


def waiting(original, compiling=lambda: False):
    """A function that waits for other ranks, told as `wait` unless it is asynchronous."""
    steps = STEPS

    def begins():
        if steps.claimed and threading.get_ident() == steps.thread:
            return steps.wait_begins(monotonic_ns() // 1000)
        return None

    def ends(back):
        steps.wait_ends(back, monotonic_ns() // 1000)

    @functools.wraps(original)
    def collective(*values, **names):
        if steps.off or compiling() or steps.in_wait or names.get("async_op") or any(
                value is True for value in values[2:]):
            return original(*values, **names)
        back = guarded("collective hook", begins)
        if back is None:
            return original(*values, **names)
        steps.in_wait = 1
        try:
            return original(*values, **names)
        finally:
            steps.in_wait = 0
            if not steps.off:
                guarded("collective hook", ends, back)

    return collective


def hook_group(names, home):
    original = home.init_process_group

    def made():
        STEPS.group_made(home.get_rank(), home.get_world_size(), str(home.get_backend()))

    @functools.wraps(original)
    def init_process_group(*values, **named):
        result = original(*values, **named)
        if not STEPS.off:
            guarded("process group hook", made)
        return result

    put(names, "init_process_group", init_process_group)


# --------------------------------------------------------------------------------------- Horovod, Keras, log writers


def attach_horovod_init(module):
    """`hvd.init`, before horovod.torch takes it over into its own names."""
    original = module.init

    def made():
        transport = "gloo" if module.gloo_enabled() else "mpi" if module.mpi_enabled() else "horovod"
        STEPS.group_made(module.rank(), 1, transport)

    @functools.wraps(original)
    def init(*values, **names):
        result = original(*values, **names)
        if not STEPS.off:
            guarded("horovod init hook", made)
        return result

    module.init = init


def attach_horovod(module):
    """`synchronize` waits for the allreduces; the class is copied into that of each wrapped optimizer, so it must be
    hooked before one is made."""
    kind = module._DistributedOptimizer
    kind.synchronize = waiting(kind.synchronize)
    version = getattr(sys.modules.get("horovod"), "__version__", "?")
    guarded("attach to horovod", STEPS.attach, "horovod", version)


def attach_keras(module):
    """The batches of `fit`, on the class that calls the callbacks: an added callback would switch on the conversion of
    logs, and end Keras 3's asynchronous calls. Its steps count, not those of an optimizer inside a batch."""
    kind = getattr(module, "CallbackList", None)
    if kind is None or "hvtui" in vars(kind):  # two modules hand out the same class
        return
    kind.hvtui = True
    keras = KerasSteps()
    for name in ("on_epoch_begin", "on_train_batch_begin"):
        hook_after(kind, name, getattr(keras, name))
    hook_before(kind, "on_train_batch_end", keras.on_train_batch_end)
    hook_before(kind, "on_epoch_end", keras.on_epoch_end)
    package = module.__name__.partition(".")[0]
    # Keras sets its version after this import
    version = getattr(sys.modules.get(package), "__version__", None) or keras_version(package)
    guarded("attach to keras", STEPS.attach, "keras", version)


def keras_version(package):
    try:
        from importlib.metadata import version

        return version(package)
    except Exception:
        return "?"


def hook_before(kind, name, event):
    original = getattr(kind, name)

    @functools.wraps(original)
    def method(self, *values, **names):
        if not STEPS.off:
            guarded("keras hook", event, self, *values[:2])
        return original(self, *values, **names)

    setattr(kind, name, method)


def hook_after(kind, name, event):
    original = getattr(kind, name)

    @functools.wraps(original)
    def method(self, *values, **names):
        result = original(self, *values, **names)
        if not STEPS.off:
            guarded("keras hook", event, self, *values[:2])
        return result

    setattr(kind, name, method)


class KerasSteps:
    """Batches of `fit` as steps. Keras' loss is the mean since the epoch began: the batch's own is the difference of
    two sums, exact where all batches are alike in size. With torch below, the loss of the backward is taken."""

    def __init__(self):
        self.first = self.sum = self.done = 0
        self.late = None
        self.total = None

    def on_epoch_begin(self, callbacks, epoch=0, _logs=None):
        self.read_late()
        STEPS.in_batch = 0
        self.sum, self.done = 0.0, 0
        params = getattr(callbacks, "params", None) or {}
        epochs, steps = params.get("epochs"), params.get("steps")
        if not isinstance(epochs, int) or not isinstance(steps, int) or steps < 1:
            return
        total = STEPS.step + (epochs - epoch) * steps
        if total != self.total and (STEPS.claimed or STEPS.claim()):
            self.total = total
            STEPS.report.hello(total_steps=total)

    def on_epoch_end(self, _callbacks, _epoch=0, _logs=None):
        self.read_late()
        if STEPS.claimed and STEPS.last() == BETWEEN:
            STEPS.paused = True  # a validation may follow

    def on_train_batch_begin(self, _callbacks, batch=0, _logs=None):
        if not STEPS.claimed and not STEPS.claim():
            return
        self.first = batch
        now = monotonic_ns() // 1000
        STEPS.batch_begins(now)

    def on_train_batch_end(self, _callbacks, batch=0, logs=None):
        if not STEPS.claimed:
            return
        now = monotonic_ns() // 1000
        self.read_late()
        steps = max(1, batch - self.first + 1) if isinstance(batch, int) and isinstance(self.first, int) else 1
        if STEPS.backwards:
            STEPS.batch_ends(now, steps)
            return
        value = logs.get("loss") if isinstance(logs, dict) else None
        if value is None or is_here(value):
            STEPS.batch_ends(now, steps, self.own_loss(value, batch))
        else:
            held = []
            STEPS.batch_ends(now, steps, None, held.append)
            self.late = value, batch, held

    def own_loss(self, mean, batch):
        """The mean loss of the batches since the last call."""
        try:
            mean, number = float(mean), int(batch) + 1
        except (TypeError, ValueError):
            return None
        total, count = mean * number, number - self.done
        before, self.sum, self.done = self.sum, total, number
        return (total - before) / count if count > 0 else None

    def read_late(self):
        """A loss on a device is read a step later, when it is there."""
        if self.late is not None:
            (value, batch, held), self.late = self.late, None
            loss = self.own_loss(value, batch)
            known = loss is not None and math.isfinite(loss)
            for line in held:
                STEPS.report.write((line[:-1] + b',"loss":%.7g}' % loss if known else line).decode("ascii"))


def is_here(value):
    """Whether reading the number does not wait for a device."""
    device = getattr(value, "device", None)
    return device is None or "CPU" in str(device).upper()


def attach_writer(module):
    """Named numbers that the script writes for TensorBoard."""
    kind = module.SummaryWriter
    original = kind.add_scalar

    @functools.wraps(original)
    def add_scalar(self, tag, scalar_value, global_step=None, *values, **names):
        if not STEPS.off:
            guarded("writer hook", STEPS.metric, tag, scalar_value, global_step)
        return original(self, tag, scalar_value, global_step, *values, **names)

    kind.add_scalar = add_scalar


def attach_wandb(module):
    """Named numbers that the script sends to wandb."""
    kind = module.Run
    original = kind.log

    def told(data, step):
        for name, value in data.items() if isinstance(data, dict) else ():
            STEPS.metric(name, value, step)

    @functools.wraps(original)
    def log(self, data, step=None, *values, **names):
        if not STEPS.off:
            guarded("wandb hook", told, data, step)
        return original(self, data, step, *values, **names)

    kind.log = log
