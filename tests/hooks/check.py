#!/usr/bin/env python3
"""Runs small training scripts with and without the Python hooks and compares.

  tests/hooks/check.py [--python PY] [--jobs N] [--list] [NAME…]

With the hooks a script must give the same output, weights and exit code, and the report must hold its steps. A NAME is
a check or the beginning of one. PY is a Python with torch (default: the one that runs this). Exit 1 if a check fails.
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOOKS = HERE.parents[1] / "assets/python"
SCRIPTS = HERE / "scripts"
PHASES = ("data", "forward", "backward", "wait", "transfer", "optimizer", "other")
CHECKS = {}
TORCH = (0, 0)


class Skipped(Exception):
    """A check that this torch cannot run."""


def check(remedy):
    def add(function):
        CHECKS[function.__name__] = (function, remedy)
        return function
    return add


def need(condition, message):
    if not condition:
        raise AssertionError(message)


class Place:
    """A temporary folder, and processes with the hooks on or off."""

    def __init__(self, python):
        self.python, self.folder, self.count, self.started = python, Path(tempfile.mkdtemp(prefix="hvtui-hooks.")), 0, []
        self.torch = TORCH

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        shutil.rmtree(self.folder)

    def report(self):
        self.count += 1
        return self.folder / ("report-%d" % self.count)

    def environment(self, report, more):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("HVTUI_", "OMPI_", "SLURM_", "PMI_", "HOROVOD_")) and name not in (
                    "RANK", "WORLD_SIZE", "LOCAL_RANK", "PYTHONPATH")}
        kept["OMP_NUM_THREADS"] = "1"
        kept["PYTHONDONTWRITEBYTECODE"] = "1"
        kept["GLOO_SOCKET_IFNAME"] = "lo"
        kept["PYTHONHASHSEED"] = "0"
        if report is not None:
            kept["PYTHONPATH"] = str(HOOKS)
            kept["HVTUI_REPORT"] = str(report)
        kept.update({name: str(value) for name, value in more.items()})
        return kept

    def start(self, words, report=None, **more):
        process = subprocess.Popen(
            [self.python, *map(str, words)], cwd=self.folder, env=self.environment(report, more),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.started.append(process)
        return process

    def run(self, words, report=None, limit=None, **more):
        process = subprocess.run(
            [self.python, *map(str, words)], cwd=self.folder, env=self.environment(report, more), timeout=150,
            capture_output=True, text=True, preexec_fn=limit)
        return process.returncode, process.stdout, process.stderr

    def pair(self, words, hooks=True, **more):
        """Two ranks side by side; their results and reports."""
        processes, reports = self.start_pair(words, hooks, **more)
        results = []
        for process in processes:
            out, err = process.communicate(timeout=150)
            results.append((process.returncode, out, err))
        return results, reports

    def start_pair(self, words, hooks=True, **more):
        port, processes, reports = free_port(), [], []
        for rank in range(2):
            report = self.report() if hooks else None
            reports.append(report)
            processes.append(self.start(words, report, RANK=rank, WORLD_SIZE=2, LOCAL_RANK=rank, HVTUI_RANK=rank,
                                        MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **more))
        return processes, reports


def free_port():
    """One below those that the system gives to connections, which would have it before a process listens there."""
    while True:
        port = random.randrange(12000, 32000)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("", port))
            return port


def lines(report, kind=None, rank=None):
    found = []
    for text in report.read_text().splitlines():
        line = json.loads(text)
        need(line["by"] == "hooks" and isinstance(line["rank"], int), "a line without by and rank: %s" % text)
        if kind in (None, line["kind"]) and rank in (None, line["rank"]):
            found.append(line)
    return found


def told(out):
    """What the script says of itself."""
    found = re.findall(r"^(?:\[\w+\]:)?steps (\d+) weights (\w+)(.*)$", out, re.M)
    need(found, "the script said nothing: %r" % out)
    more = found[-1][2].split()
    return int(found[-1][0]), found[-1][1], dict(zip(more[::2], more[1::2]))


def covered(step):
    return sum(span["dur_us"] for span in step["spans"])


def check_steps(steps, out):
    """The steps of a report against the script's own account."""
    count, _, more = told(out)
    first = steps[0]["step"] if steps else 1
    need([step["step"] for step in steps] == list(range(first, first + count)),
         "%d steps, and the report has %s" % (count, [step["step"] for step in steps]))
    end = 0
    for step in steps:
        need(step["t"] >= end - 1, "step %d begins before the end of the former" % step["step"])
        end = step["t"] + step["dur_us"]
        at = 0
        for span in step.get("spans", ()):
            need(span["phase"] in PHASES and span["start_us"] >= at and span["dur_us"] >= 0, "spans out of order: %s" % step)
            at = span["start_us"] + span["dur_us"]
        if "spans" in step:
            need(at <= step["dur_us"], "spans beyond the end: %s" % step)
            need(covered(step) >= 0.9 * step["dur_us"], "spans cover %d of %d us: %s" % (covered(step), step["dur_us"], step))
    if count and first == 1:
        need(all("spans" in step for step in steps[:15]), "the first steps lack spans")
    if "samples" in more:
        need(sum(step["samples"] for step in steps) == int(more["samples"]), "samples: %s" % steps[:3])
    if "loss" in more:
        need(abs(steps[-1]["loss"] - float(more["loss"])) <= 1e-4 * abs(float(more["loss"])),
             "loss %s, not %s" % (steps[-1]["loss"], more["loss"]))


def same(off, on):
    need(on[0] == off[0], "exit code %s with hooks, %s without: %s" % (on[0], off[0], on[2][-2000:]))
    need(on[1] == off[1], "output with hooks %r, without %r" % (on[1], off[1]))
    # torch's own log lines begin with a time and the pid
    bare = [re.sub(r"^[A-Z]\d{4} [\d:.]+ \d+ ", "", err, flags=re.M) for err in (off[2], on[2])]
    need(bare[0] == bare[1], "stderr with hooks %r, without %r" % (on[2], off[2]))


def phases(steps, *ignored):
    found = []
    for step in steps:
        found += [span["phase"] for span in step.get("spans", ()) if span["phase"] not in found]
    return sorted(set(found) - {"other", *ignored})


def script(place, name, *words, exit=0, needs=None, wanted=("backward", "data", "forward", "optimizer")):
    """One process, with and without the hooks. Returns the steps."""
    if needs and place.torch < needs:
        raise Skipped("needs torch %s" % ".".join(map(str, needs)))
    report = place.report()
    off = place.run([SCRIPTS / (name + ".py"), *words])
    on = place.run([SCRIPTS / (name + ".py"), *words], report)
    need(off[0] == exit, "exit code %s without hooks: %s" % (off[0], off[2][-2000:]))
    same(off, on)
    for line in lines(report, "hello"):
        need("off" not in line, "a hook failed: %s" % line)
    steps = lines(report, "step")
    if off[1]:
        check_steps(steps, off[1])
    if wanted is not None:
        need(phases(steps) == sorted(wanted), "phases %s, not %s" % (phases(steps), sorted(wanted)))
    return steps, report


EVENTS = "look at the events of Steps (hvtui_report.py) for this kind of loop"


def gaps(steps):
    return [after["t"] - step["t"] - step["dur_us"] for step, after in zip(steps, steps[1:])]


def evaluations(*numbers, least):
    def test(steps):
        found = gaps(steps)
        for number in numbers:
            need(found[number - 2] >= least, "the evaluation is in step %d: %s" % (number, found))
    return test


def finite(steps):
    need(["loss" in step for step in steps] == [True] * 7 + [False] * 13, "a loss that is not a number: %s" % steps[6:9])


PLAIN = ("backward", "data", "forward", "optimizer")
# A script, the phases of its steps, and what else holds of them.
LOOPS = {
    "plain": (PLAIN, evaluations(9, 17, 25, least=50_000)),
    "accumulate": (PLAIN, None),
    "amp": (PLAIN, None),
    "closure": (PLAIN, None),
    "inside": (("backward", "data", "forward"), None),
    "checkpoint": (PLAIN, None),
    "batches": (("backward", "forward", "optimizer"), evaluations(11, 21, least=200_000)),
    "sloppy": (PLAIN, evaluations(6, 13, 20, least=200_000)),
    "optimizers": (PLAIN, None),
    "odd:nan": (("backward", "forward", "optimizer"), finite),
    "odd:twice": (("backward", "forward", "optimizer"), None),
    "odd:stdout": (("backward", "forward", "optimizer"), None),
    "odd:no_optimizer": ((), None),
}


@check(EVENTS)
def loops(place, names=tuple(LOOPS)):
    """One interpreter trains with one script after the other."""
    report = place.report()
    off = place.run([SCRIPTS / "loops.py", *names])
    on = place.run([SCRIPTS / "loops.py", *names], report)
    need(off[0] == 0, off[2][-2000:])
    same(off, on)
    need(not any("off" in line or "missing" in line for line in lines(report, "hello")), "hello: %s" % lines(report, "hello"))
    steps, said = lines(report, "step"), off[1].splitlines()
    for name, out in zip(names, said):
        wanted, more = LOOPS[name]
        mine, steps = steps[:told(out)[0]], steps[told(out)[0]:]
        try:
            check_steps(mine, out)
            need(phases(mine) == sorted(wanted) or len(phases(mine)) == 0 and mine and mine[0]["step"] > 1,
                 "phases %s, not %s" % (phases(mine), sorted(wanted)))
            if more:
                more(mine)
        except AssertionError as error:
            raise AssertionError("%s: %s" % (name, error)) from None
    need(not steps and len(said) == len(names), "steps left over: %s" % steps)


@check("start(), say_hello and Steps.attach")
def hellos(place):
    # that its output is the same without the hooks is seen in `loops`
    report = place.report()
    code, out, err = place.run([SCRIPTS / "plain.py"], report)
    need(code == 0, err[-2000:])
    check_steps(lines(report, "step"), out)
    hellos = lines(report, "hello")
    need([sorted(line["versions"]) for line in hellos] == [["python"], ["python", "torch"]], "hellos: %s" % hellos)
    need(all(line["job"] == "plain.py" and line["pid"] for line in hellos), "hellos: %s" % hellos)
    need("missing" not in hellos[1] and "off" not in hellos[1], "parts are missing or off: %s" % hellos[1])
    need("/" not in report.read_text(), "a path is in the report")


@check("a loader's worker process must stay silent: Steps.forked, is_multiprocessing_child")
def loaders_fork(place):
    _, report = script(place, "loaders", "fork")
    need(len({line["pid"] for line in lines(report, "hello")}) == 1, "a worker spoke")


@check("a loader's worker process must stay silent: Steps.forked, is_multiprocessing_child")
def loaders_spawn(place):
    report = place.report()
    code, out, err = place.run([SCRIPTS / "loaders.py", "spawn"], report)
    need((code, err) == (0, ""), err)
    check_steps(lines(report, "step"), out)
    need(len({line["pid"] for line in lines(report, "hello")}) == 1, "a worker spoke")


@check("test is_compiling first in each wrapper; hide the optimizer's hooks from dynamo")
def compiled(place):
    script(place, "compiled", needs=(2, 3))


def odd(name, what, exit=0, wanted=("backward", "forward", "optimizer")):
    def run(place):
        return script(place, "odd", what, exit=exit, wanted=wanted)
    run.__name__ = name
    check(EVENTS)(run)


odd("own_excepthook", "excepthook", exit=1)
odd("os_exit", "os_exit", exit=7)
odd("never_trains", "imports", wanted=())


@check("Report.lock: one training for each rank; debug lines go to stderr")
def second_process(place):
    report = place.report()
    code, out, err = place.run([SCRIPTS / "odd.py", "child"], report, HVTUI_PYTHON_HOOKS="debug")
    need(code == 0 and all(line.startswith("hvtui hooks: ") for line in err.splitlines()), err)
    need("another process reports for rank 0" in err and "attached to torch" in err, err)
    check_steps(lines(report, "step"), out)


@check("print nothing, raise nothing when descriptors are closed")
def closed_output(place):
    report = place.report()
    off, on = place.run([SCRIPTS / "odd.py", "closed"]), place.run([SCRIPTS / "odd.py", "closed"], report)
    same(off, on)
    need(len(lines(report, "step")) == 20, "not 20 steps")


@check("the script's own traceback must not change")
def raises(place):
    report = place.report()
    off, on = place.run([SCRIPTS / "odd.py", "raises"]), place.run([SCRIPTS / "odd.py", "raises"], report)
    same(off, on)
    need(off[0] == 1 and len(lines(report, "step")) == 12, "not 12 steps")


WITHOUT_HOOKS, WITHOUT_HOOKS_LOCK = [], threading.Lock()


def plain_without_hooks(place):
    """How `odd.py plain` ends without the hooks; run once."""
    with WITHOUT_HOOKS_LOCK:
        if not WITHOUT_HOOKS:
            WITHOUT_HOOKS.append(place.run([SCRIPTS / "odd.py", "plain"]))
        return WITHOUT_HOOKS[0]


@check("guard the hook's part, and switch all hooks off in Steps.fail")
def faults(place):
    off = plain_without_hooks(place)
    for event, where in (("backward_begins", "backward hook"), ("finish", "optimizer hook"), ("claim", "backward hook")):
        report = place.report()
        same(off, place.run([SCRIPTS / "odd.py", "fault:" + event], report))
        need(not lines(report, "step"), "steps after a fault in %s" % event)
        said = [line["off"] for line in lines(report, "hello") if "off" in line]
        need(len(said) == 1 and re.fullmatch(r"ZeroDivisionError in %s \(hvtui_report\.py:\d+\)" % where, said[0]),
             "a fault in %s is told as %s" % (event, said))


@check("set each hook in a Torch.part")
def missing_parts(place):
    report = place.report()
    words = ["-c", "import sys; sys.path.insert(0, %r); import torch; print(torch.__version__)" % str(HERE / "fake")]
    code, out, err = place.run(words, report)
    need((code, out, err) == (0, "9.9.0\n", ""), "%s %s %s" % (code, out, err))
    need(len(lines(report, "hello")[-1]["missing"]) >= 5, "missing: %s" % lines(report))


@check("run_hidden in sitecustomize.py")
def hidden_sitecustomize(place):
    (place.folder / "sitecustomize.py").write_text("import sys\nsys.hidden = __file__, __name__, __spec__.origin\n")
    words = ["-c", "import sys, os; print(sys.hidden, os.environ['PYTHONPATH'].split(':')[0], "
             "%r in sys.path, sys.modules['sitecustomize'].__file__)" % str(HOOKS)]
    report = place.report()
    path = "%s:%s" % (HOOKS, place.folder)
    code, out, err = place.run(words, report, PYTHONPATH=path)
    mine = str(place.folder / "sitecustomize.py")
    need((code, out, err) == (0, "%s %s False %s\n" % ((mine, "sitecustomize", mine), HOOKS, mine), ""), out + err)
    # one that raises is told by Python as it is without us
    (place.folder / "sitecustomize.py").write_text("raise ValueError('hidden')\n")
    on = place.run(["-c", "print(1)"], report, PYTHONPATH=path)
    off = place.run(["-c", "print(1)"], PYTHONPATH=place.folder)
    same(off, on)


@check("read nothing but HVTUI_REPORT before hello")
def interpreter_flags(place):
    for flag in ("-S", "-I", "-E"):
        report = place.report()
        same(place.run([flag, "-c", "print(1)"]), place.run([flag, "-c", "print(1)"], report))
        need(not report.exists(), "%s: a report" % flag)


@check("start() must not report without HVTUI_REPORT or with HVTUI_PYTHON_HOOKS=off")
def switched_off(place):
    words = ["-c", "import sys, torch; print([kind for kind in sys.meta_path if 'Finder' == getattr(kind, '__name__', '')], "
             "'hvtui_report' in sys.modules, torch.autograd.backward.__code__.co_filename.endswith('hvtui_report.py'))"]
    report = place.report()
    code, out, err = place.run(words, report, HVTUI_PYTHON_HOOKS="off")
    need((code, out, err) == (0, "[] False False\n", ""), out + err)
    code, out, err = place.run(["-c", "import sys; print([str(kind) for kind in sys.meta_path])"], HVTUI_REPORT="",
                               PYTHONPATH=HOOKS)
    need("sitecustomize.Finder" not in out and code == 0, out + err)
    need(not report.exists(), "a report")


@check("a report that cannot be written costs lines only")
def nowhere_to_write(place):
    words = [SCRIPTS / "odd.py", "plain"]
    off = plain_without_hooks(place)
    # a home that cannot be written, and a folder that is gone
    same(off, place.run(words, place.folder / "gone" / "report", HOME="/proc/nothing", PYTHONDONTWRITEBYTECODE=""))
    full = place.folder / "full"
    full.symlink_to("/dev/full")
    same(off, place.run(words, full))
    report = place.report()
    report.write_bytes(b" " * ((1 << 20) - 1000))  # torch itself writes files at its import
    same(off, place.run(words, report, limit=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))))
    need(report.stat().st_size == 1 << 20, "the limit did not hold")


@check("the true loader must stay on the module")
def loader_kept(place):
    words = ["-c", "import importlib.util as u, torch, inspect; s = u.find_spec('torch'); "
             "print(type(torch.__loader__).__name__, type(torch.__spec__.loader).__name__, vars(torch.__loader__).keys() "
             "& {'exec_module'}, type(s.loader).__name__, len(inspect.getsource(torch)))"]
    same(place.run(words), place.run(words, place.report()))


def distributed(name, *words, wanted=("backward", "data", "forward", "optimizer", "wait")):
    def run(place):
        off, _ = place.pair([SCRIPTS / (name + ".py"), *words], hooks=False)
        on, reports = place.pair([SCRIPTS / (name + ".py"), *words])
        for rank in range(2):
            need(off[rank][0] == 0, off[rank][2][-2000:])
            need((on[rank][0], on[rank][1]) == (off[rank][0], off[rank][1]), "rank %d: %s, not %s" % (rank, on[rank], off[rank]))
            steps = lines(reports[rank], "step", rank)
            check_steps(steps, off[rank][1])
            need(phases(steps) == sorted(wanted), "phases %s" % phases(steps))
            hello = lines(reports[rank], "hello", rank)[-1]
            need(hello.get("transport") == "gloo" and lines(reports[rank], "met", rank), "hello: %s" % hello)
    run.__name__ = name
    check("look at the ready callback and the collectives")(run)


distributed("ddp")
distributed("manual")


@check("a delay shows in another phase or rank than it was planted in")
def late(place):
    results, reports = place.pair([SCRIPTS / "ddp.py", "late"])
    need(results[0][0] == results[1][0] == 0, results[0][2][-2000:])
    ranks = [lines(report, "step") for report in reports]
    turns = [(phase, rank) for phase in ("data", "forward", "backward") for rank in range(2)]
    for turn, (phase, rank) in enumerate(turns):
        # 20 steps each
        window = [[step for step in steps[20 * turn:20 * turn + 20] if "spans" in step] for steps in ranks]
        both = {step["step"] for step in window[0]} & {step["step"] for step in window[1]}
        need(len(both) >= 15, "turn %s: only steps %s have spans on both ranks" % (turn, sorted(both)))
        def usual(of, name):
            # the least: other processes on this machine only add time, and the delay is in each step
            return min(durations(of, name))
        def durations(of, name):
            return [sum(span["dur_us"] for span in step["spans"] if span["phase"] == name)
                    for step in window[of] if step["step"] in both]
        more = {name: usual(rank, name) - usual(1 - rank, name) for name in PHASES if name != "wait"}
        more["wait"] = statistics.median(durations(rank, "wait")) - statistics.median(durations(1 - rank, "wait"))
        # 50 ms are planted: more than the turns of other processes on busy cores, which a wait has too
        told = "%s of rank %d: more than the other: %s" % (phase, rank, more)
        others = [abs(more[name]) for name in more if name not in (phase, "wait")]
        need(more[phase] >= 40_000 and more[phase] > 4 * max(others), told)
        need(min(more, key=more.get) == "wait" and -more["wait"] > more[phase] / 4, told)


@check("the time outside of the forward pass needs its own name: forward_begins and awaits_call in hvtui_report.py")
def between(place):
    # where the script naps for 20 ms in each step, and in which phase that is told
    places = {"after": "other", "before": "other", "loader-after": "other", "loader-before": "data", "micro": "other",
              "two": "other", "evaluation": None, "forward": "forward", "loader-forward": "forward"}
    steps = script(place, "between", *places, wanted=None)[0]
    for where, phase in places.items():
        mine, steps = steps[:32 if where == "two" else 16], steps[32 if where == "two" else 16:]
        spans = [{name: sum(span["dur_us"] for span in step["spans"] if span["phase"] == name) for name in PHASES}
                 for step in mine[2:] if "spans" in step]
        if where == "two":
            spans = max(spans[::2], spans[1::2], key=lambda some: min(step["other"] for step in some))
        # the nap is in each step, a turn of another process in some
        usual = {name: min(step[name] for step in spans) for name in PHASES}
        more = [name for name, us in usual.items() if us >= 10_000]
        need(more == ([phase] if phase else []), "%s: %s" % (where, usual))


@check("lines of inner workers need their rank, and files beside the report their own name")
def torchrun(place):
    report = place.report()
    words = ["-m", "torch.distributed.run", "--nproc_per_node", 2, "--master_port", free_port(), "--redirects", 1, "--tee", 1,
             SCRIPTS / "ddp.py"]
    code, out, err = place.run(words, report, HVTUI_RANK=0, RANK=0)
    need(code == 0, err[-2000:])
    for rank in range(2):
        own = [text for text in out.splitlines() if text.startswith("[default%d]:" % rank)]
        check_steps(lines(report, "step", rank), "\n".join(own))
    pids = {line["rank"]: line["pid"] for line in lines(report, "hello") if "transport" in line}
    need(len(set(pids.values())) == 2, "pids %s" % pids)
    for name in ("now", "stack", "1.now", "1.stack"):
        need(Path("%s.%s" % (report, name)).exists(), "no %s" % name)


def page(path):
    """What a page says; None while it is written or missing."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(data) != 32:
        return None
    sequence, number, step, since = struct.unpack("<IIQQ", data[:24])
    return None if sequence % 2 else (PHASES_BY_NUMBER[number], step, since)


PHASES_BY_NUMBER = ("data", "forward", "backward", "wait", "transfer", "optimizer", "other")


def until(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError("not within %d s: %s" % (seconds, what))


@check("the page's phase at the entry of the wait; faulthandler's registration")
def hang(place):
    processes, reports = place.start_pair([SCRIPTS / "hang.py"])
    until(lambda: all(report.exists() and len(lines_so_far(report)) > 20 for report in reports), "20 steps")
    processes[0].send_signal(signal.SIGSTOP)
    beside = Path(str(reports[1]) + ".now")
    def waits():
        first = page(beside)
        time.sleep(0.3)  # a page that stays as it is
        return first and first == page(beside) and first[0] == "wait" and first
    found = until(waits, "rank 1 in wait", 20)
    done = lines_so_far(reports[1])
    # the lines of short steps are held back for 50 ms, and go out at a mark, which does not come any more
    held = 0 if done[-1]["dur_us"] >= 5_000 else 50_000 // max(done[-1]["dur_us"], 1) + 1
    behind = found[1] - 1 - done[-1]["step"]
    need(0 <= behind <= held, "the last line is step %d, the page says %s" % (done[-1]["step"], found))
    hello = [line for line in map(json.loads, reports[1].read_text().splitlines()) if "stack_signal" in line][-1]
    need(hello["pid"] == processes[1].pid and hello["stack_signal"] == signal.SIGRTMAX - 4, "hello: %s" % hello)
    os.kill(hello["pid"], hello["stack_signal"])
    stack = Path(str(reports[1]) + ".stack")
    # it waits in the backward's allreduce, or in the loop's own
    wanted = ['hang.py", line %d in' % at for at, line in enumerate((SCRIPTS / "hang.py").read_text().splitlines(), 1)
              if "loss.backward()" in line or "dist.all_reduce" in line]
    until(lambda: any(line in stack.read_text() for line in wanted), "one of %s in the stack" % wanted, 20)
    need(processes[1].poll() is None, "the signal ended the rank")
    processes[0].send_signal(signal.SIGCONT)
    for process in processes:
        need(process.wait(60) == 0, "exit %s" % process.returncode)


def lines_so_far(report):
    return [json.loads(text) for text in report.read_text().splitlines() if '"kind":"step"' in text]


@check("the first Python answers before a framework is imported, one that executes another too, and no other")
def first_answers(place):
    words = "import os, time; up = os.getppid(); print(end='.', flush=True)\nwhile os.getppid() == up: time.sleep(0.1)\n"
    execs = "import os, sys; os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])"
    for command in (["-c", words], ["-c", execs, words], ["-c", "import subprocess, sys; subprocess.run(sys.argv[1:])",
                                                         sys.executable, "-c", words]):
        report = place.report()
        first, stack = Path(str(report) + ".first"), Path(str(report) + ".stack")
        process = place.start(command, report)
        try:
            need(process.stdout.read(1) == ".", "it has not begun")
            pid, number = map(int, first.read_text().split())
            need((pid, number) == (process.pid, signal.SIGRTMAX - 4), first.read_text())
            os.kill(pid, number)
            until(lambda: stack.exists() and "<module>" in stack.read_text(), "a stack", 20)
            need(process.poll() is None, "the signal ended it")
        finally:
            process.kill()
            process.wait()


@check("a script that takes the signal has it, and the file says so")
def first_gives_up(place):
    for words in ("import os, signal; signal.signal(signal.SIGRTMAX - 4, lambda *_: print('mine'))",
                  "import os; from signal import signal, SIGRTMAX; signal(SIGRTMAX - 4, lambda *_: print('mine'))"):
        report = place.report()
        code, out, err = place.run(["-c", words + "; os.kill(os.getpid(), 60)"], report)
        need((code, out, err) == (0, "mine\n", ""), out + err)
        told = Path(str(report) + ".first").read_text().split()
        need(told[1:] == ["0"] and Path(str(report) + ".stack").read_text() == "", told)


@check("register only where the signal has its default action")
def own_signal(place):
    report = place.report()
    words = ["-c", "import signal; signal.signal(signal.SIGRTMAX - 4, signal.SIG_IGN); import torch"]
    code, _, err = place.run(words, report)
    need(code == 0 and "stack_signal" not in lines(report, "hello")[-1], err)


@check("a script that takes the signal later, or closes our files, is left alone")
def later_signal(place):
    train = ("m = torch.nn.Linear(1, 1); o = torch.optim.SGD(m.parameters(), 0.1)\n"
             "for _ in range(5): m(torch.ones(1, 1)).sum().backward(); o.step()\n")
    for words in ("import signal, torch; signal.signal(signal.SIGRTMAX - 4, print)",
                  "from signal import signal, SIGRTMAX; import torch; signal(SIGRTMAX - 4, print)\n" + train):
        report = place.report()
        code, _, err = place.run(["-c", words], report)
        told = struct.unpack("<I", Path(str(report) + ".now").read_bytes()[28:])
        need(code == 0 and told == (0,), "the page has signal %s; %s" % (told, err))
    report = place.report()
    own = report.with_name("own")
    words = ("import os, sys, torch; os.closerange(3, 100); own = [open(sys.argv[1], 'w') for _ in range(9)]\n"
             + train + "own[0].write('mine')\n")
    code, _, err = place.run(["-c", words, own], report)
    need(code == 0 and own.read_text() == "mine", "%r; %s" % (own.read_text(), err))
    need(len(lines(report, "step")) == 5, report.read_text())


@check("mp.spawn's workers take their rank from the process group")
def spawned_ranks(place):
    report = place.report()
    code, out, err = place.run([SCRIPTS / "spawned.py"], report, MASTER_PORT=free_port())
    need(code == 0, err[-2000:])
    for rank in range(2):
        check_steps(lines(report, "step", rank), "\n" + re.findall("steps .*", out)[0])


@check("the arithmetic of DeviceClock")
def device_clock(place):
    code, out, err = place.run([HERE / "device_clock.py"], place.report())
    need(code == 0, err[-3000:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    names = [name for name in CHECKS if not arguments.names or name.startswith(tuple(arguments.names))]
    if arguments.list or not names:
        print("\n".join(CHECKS))
        return 0 if arguments.list else 2
    global TORCH
    found = subprocess.run([arguments.python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    if found.returncode:
        sys.exit("hooks: %s has no torch: apt-get install python3-torch, or --python PY" % arguments.python)
    TORCH = tuple(map(int, re.findall(r"\d+", found.stdout)[:2]))
    print("hooks: torch %s of %s" % (found.stdout.strip(), arguments.python), flush=True)

    def one(name):
        place = Place(arguments.python)
        begin = time.monotonic()
        try:
            CHECKS[name][0](place)
            return name, "ok", "", time.monotonic() - begin
        except Skipped as why:
            return name, "skipped", str(why), 0
        except Exception as error:
            kind = "" if isinstance(error, AssertionError) else type(error).__name__ + ": "
            return name, "FAILED", "%s%s\n  remedy: %s" % (kind, error, CHECKS[name][1]), time.monotonic() - begin
        finally:
            place.close()

    results, failed = {"ok": 0, "skipped": 0, "FAILED": 0}, []
    # what compares times runs alone
    alone = [name for name in names if name == "late"]
    beside = [name for name in names if name not in alone]
    for some, jobs in (alone, 1), (beside, arguments.jobs):
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for future in concurrent.futures.as_completed([pool.submit(one, name) for name in some]):
                name, result, why, took = future.result()
                results[result] += 1
                line = "%-7s %-22s %4.1f s%s" % (result, name, took, "  " + why if why else "")
                print(line, flush=True)
                failed += [line] * (result == "FAILED")
    if failed:
        print("\n%s" % "\n".join(failed))  # again: the end of a long output is what is kept of it
    skipped = ", %d skipped" % results["skipped"] if results["skipped"] else ""
    print("%d passed, %d failed%s" % (results["ok"], results["FAILED"], skipped))
    return 1 if results["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
