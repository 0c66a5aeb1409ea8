"""An agent that lies: it speaks the wire's frames, and in place of telling of its host it floods the client with one kind of
message after the other.

    agent.py FOLDER SECONDS KINDS agent --stdio --nonce NONCE

Until FOLDER/go exists it is an honest one that knows a live run. From then on each of KINDS (joined by commas) has its share
of SECONDS, also over lost links; then it is honest again, and FOLDER/over exists. Where the client reads so slowly that what
was begun in one share ends behind it, all that follows comes later by as much: FOLDER/late has the seconds. Each link,
each end of one and how many bytes of a kind were taken is a line of FOLDER/links. See docs/formats/wire.md.
"""

import json
import os
import random
import struct
import sys
import threading
import time

FOLDER, SECONDS, KINDS = sys.argv[1], float(sys.argv[2]), sys.argv[3].split(",")
SHARE = SECONDS / len(KINDS)
NONCE = sys.argv[sys.argv.index("--nonce") + 1]
RUN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
HOST = "evil"
BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
CHUNK = 16 << 10

output = threading.Lock()
telling = threading.Lock()
taken = {}
granted_some = threading.Event()
credit = 0
sent = 0


def frame(kind, payload):
    payload = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return struct.pack("<IH", len(payload) + 2, kind) + payload


def say(data, kind=None):
    with output:
        view = memoryview(data)
        while view:
            count = os.write(1, view)
            view = view[count:]
            if kind:
                with telling:
                    taken[kind] = taken.get(kind, 0) + count


def note(line):
    with open(os.path.join(FOLDER, "links"), "a") as file:
        file.write(f"{time.time():.3f} {line}\n")


def tell():
    """What of the flood was taken since this was told last."""
    with telling:
        for kind, count in taken.items():
            note(f"said {kind} {count}")
        taken.clear()


def now():
    return time.monotonic_ns() // 1000


def run_id():
    return "7" + "".join(random.choices(BASE32, k=25))


def info(**other):
    facts = {
        "hostname": "evil", "kernel": "6", "arch": "x86_64", "user": "mallory", "cpus": 1, "memory_total": None,
        "boot_id": "b", "agent_version": "0", "addresses": [], "ssh_server_address": None, "ssh_client_address": None,
        "gpus": [], "gpu_absence": {"reason": "no_library", "detail": ""}, "driver": None, "cuda_driver": None,
        "nccl": None,
    }
    return frame(103, {**facts, **other})


def sample(gpus=()):
    values = {"cpu_percent": 1, "memory_used": None, "load": None, "net_rx": None, "net_tx": None, "gpus": list(gpus)}
    return frame(104, {"sample": values})


def share(run):
    place = {"rank": 0, "host": HOST, "local_rank": 0, "slot": {"slot": "cpu", "index": 0}}
    spec = {
        "id": run, "name": "bait", "kind": "plain", "command": ["bait"], "env": {}, "workdir": None,
        "placements": [place], "created": 1,
    }
    return {
        "run": run, "host": HOST, "name": "bait", "ranks": [0], "stage": "training", "supervised": True, "live": True,
        "started": [0], "spec": spec,
    }


def chunk(stream, offset, data, run=RUN):
    return frame(110, run.encode() + struct.pack("<IBQ", 0, stream, offset) + data)


def noise(size):
    """Lines that don't compress."""
    lines = random.randbytes(size).translate(bytes((byte % 94) + 33 for byte in range(256)))
    return b"".join(lines[at : at + 199] + b"\n" for at in range(0, size - 199, 200)).ljust(size, b"x")


class Files:
    """The offsets that come next, and pieces that honour the credit or don't."""

    def __init__(self):
        self.next = {0: 0, 1: 0, 2: 0}

    def piece(self, stream, data, limit):
        global sent
        while limit and sent >= credit:
            time.sleep(0.001)
            if over() or kind_now() != limit:
                return b""
        at = self.next[stream]
        self.next[stream] = at + len(data)
        sent += len(data)
        return chunk(stream, at, data)


files = Files()
pieces = [noise(CHUNK) for _ in range(64)]


def events():
    uuid = {"uuid": "GPU-" + run_id(), "index": 0}
    many = [{**uuid, "what": "xid", "xid": random.randrange(1, 150)} for _ in range(1000)]
    stands = {"run": RUN, "rank": 0, "phase": "forward", "step": random.randrange(1 << 40), "for_us": 1}
    lease = {"gpu": "GPU-" + run_id(), "user": "x" * 200, "own": False}
    return frame(140, {"events": many}) + info(hostname=run_id()) + frame(119, {"held": [lease] * 100}) + b"".join(
        [frame(120, stands), sample()] * 500
    )


def notes():
    text = {"what": "unkillable", "text": noise(100_000).decode() + run_id(), "t": 0}
    return frame(114, {"run": RUN, "host": HOST, "number": (1 << 64) - 1, "note": text}) * 8


def logs():
    """More than was granted, which is an offence once anything was."""
    granted_some.wait(5)
    return b"".join(files.piece(0, piece, None) for piece in pieces)


def granted():
    return files.piece(0, random.choice(pieces), "granted")


def holes():
    """A byte each, far apart: a hole in front of each."""
    out = b""
    for _ in range(500):
        files.next[1] += 1 << 20
        out += files.piece(1, b"\n", "holes")
    gaps = []
    for _ in range(500):
        at = files.next[1]
        files.next[1] = at + 2
        gaps.append(frame(112, {"run": RUN, "rank": 0, "stream": "stderr", "from": at, "to": at + 2, "reason": "not_kept"}))
    return out + b"".join(gaps)


def lines():
    """A piece of a mebibyte, of empty lines."""
    return files.piece(0, b"\n" * ((1 << 20) - 100), "lines")


def reports():
    told = ""
    for _ in range(20):
        told += json.dumps({"kind": "metric", "name": run_id() * 10, "value": 1e308}) + "\n"
    versions = {run_id(): "1" for _ in range(300)}
    told += json.dumps({"kind": "hello", "job": run_id() * 100, "facts": {"versions": versions}}) + "\n"
    return files.piece(2, told.encode()[: CHUNK - 1] + b"\n", "reports")


def runs():
    unknown = run_id()
    return frame(113, {"shares": [share(run_id()) for _ in range(800)], "last": True}) + b"".join(
        [
            frame(108, {"run": unknown, "rank": 0, "pid": 1, "t": 1}),
            chunk(0, 0, b"new\n", unknown),
            frame(107, {"run": unknown, "host": HOST}),
            frame(111, {"run": unknown, "host": HOST}),
        ]
    )


def strings():
    long = "x" * 900_000
    about = {"run": run_id(), "host": HOST}
    return (
        info(hostname=long) + frame(106, {**about, "rank": None, "reason": long}) + frame(142, {**about, "why": long})
        + frame(121, {**about, "of": [], "why": long, "last": True}) + frame(143, {"ask": 1, "host": long, "findings": []})
        + frame(117, {"results": [[long, None]]})
    )


def lists():
    findings = [{"mark": "bad", "text": "x"}] * 30_000
    gpu = {"index": 0, "throttle": [""] * 250_000}
    return (
        frame(143, {"ask": 1, "host": HOST, "findings": findings}) + sample([gpu])
        + info(topology={"paths": [[]] * 250_000, "affinity": []})
        + frame(105, {"run": run_id(), "host": HOST, "ports": [1] * 300_000})
    )


def deep():
    return frame(104, b"[" * 1_000_000)


def gauges():
    big = {"index": 0, "util": 4000000000, "processes": [{"pid": 1, "user": "u", "command": "c" * 4000, "memory": 1 << 60}] * 200}
    return sample([big] * 1) * 20


def pongs():
    return frame(102, {"t0": 1, "t1": 1, "t2": 1}) * 2000


def unknown():
    return frame(9999, b"x" * 60_000) * 10


def endless():
    return struct.pack("<IH", 0xFFFFFFFF, 104) + b"x" * 100_000


def started():
    try:
        return os.stat(os.path.join(FOLDER, "go")).st_mtime
    except FileNotFoundError:
        return None


def late():
    try:
        with open(os.path.join(FOLDER, "late")) as file:
            return float(file.read())
    except FileNotFoundError:
        return 0.0


def place_now():
    """Whose share it is; those behind the last one belong to none."""
    since = started()
    return -1 if since is None else int((time.time() - since - late()) / SHARE)


def kind_at(place):
    return KINDS[place] if 0 <= place < len(KINDS) else None


def kind_now():
    return kind_at(place_now())


def over():
    return place_now() >= len(KINDS)


def put_off(place):
    """What was begun in this share has just ended: the next one is not shorter for it."""
    behind = time.time() - started() - late() - (place + 1) * SHARE
    if behind > 0:
        draft = os.path.join(FOLDER, "late.new")
        with open(draft, "w") as file:
            file.write(str(late() + behind))
        os.rename(draft, os.path.join(FOLDER, "late"))


def listen():
    global credit
    source = sys.stdin.buffer
    while head := source.read(6):
        length, kind = struct.unpack("<IH", head)
        body = source.read(length - 2)
        told = json.loads(body) if body[:1] == b"{" else {}
        if kind == 2:
            say(frame(102, {"t0": told["t0"], "t1": now(), "t2": now()}))
        elif kind == 3:
            say(info() + sample())
        elif kind == 7:
            for rank, stream, at in told["from"]:
                files.next[["stdout", "stderr", "report"].index(stream)] = at
            say(frame(108, {"run": RUN, "rank": 0, "pid": 1, "t": 1}))
        elif kind == 9:
            credit = told["until"]
            granted_some.set()
        elif kind == 10:
            say(frame(113, {"shares": [share(RUN)], "last": True}))
        elif kind == 8:
            say(frame(111, {"run": RUN, "host": HOST}))
    tell()
    note("end")
    os._exit(0)


say(b"\x01HVT1 " + NONCE.encode() + b"\n")
say(frame(101, {"proto_min": 4, "proto_max": 4, "version": "0.1.0", "build": ""}))
note(f"begin {kind_now()}")
threading.Thread(target=listen, daemon=True).start()
try:
    while True:
        place = place_now()
        kind = kind_at(place)
        if kind is None:
            if over():
                open(os.path.join(FOLDER, "over"), "w").close()
            say(sample())
            time.sleep(0.2)
            continue
        say(globals()[kind](), kind)
        tell()
        put_off(place)
except OSError as error:
    tell()
    note(f"cut {kind_now()} {error}")
