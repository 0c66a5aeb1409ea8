"""A terminal for benchmarks of the UI: what the program shows, how long a key takes, what the program costs."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

TOKEN = re.compile(rb"\x1b\[(\d*);?(\d*)H|\x1b\[[?>=]?[\d;:]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>78]|([^\x1b]+)")


class Screen:
    """A terminal as far as the UI uses one: it moves the cursor and writes."""

    def __init__(self, command, environment, size=(120, 40)):
        self.width, self.height = size
        self.clear()
        self.row = self.column = 0
        self.rest = b""
        self.bytes = self.arrived = 0
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, environment | {"TERM": "xterm-256color", "COLORTERM": "truecolor"})
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", self.height, self.width, 0, 0))

    def clear(self):
        self.cells = [[" "] * self.width for _ in range(self.height)]

    def take(self, patience):
        """Takes in what is there, waiting for it at most so many seconds. All of it is read before any is looked at:
        a terminal holds few bytes, and what is read late keeps the program waiting."""
        data = self.rest
        while select.select([self.fd], [], [], patience)[0]:
            data += os.read(self.fd, 1 << 16)
            self.arrived, patience = time.monotonic(), 0.002
        if len(data) == len(self.rest):
            return
        self.bytes += len(data) - len(self.rest)
        whole = data.rfind(b"\x1b")
        # the last sequence, or the last letter, may be cut
        cut = whole if whole >= 0 and not TOKEN.fullmatch(data[whole:]) else len(data)
        while cut == len(data) and cut and data[cut - 1] >= 0x80 and cut > len(data) - 4:
            try:
                data[max(0, cut - 4):cut].decode()
                break
            except UnicodeDecodeError as error:
                if error.reason != "unexpected end of data":
                    break
                cut -= 1
        data, self.rest = data[:cut], data[cut:]
        for move in TOKEN.finditer(data):
            if move[1] is not None:
                self.row, self.column = int(move[1] or 1) - 1, int(move[2] or 1) - 1
            elif move[3] is not None:
                for letter in move[3].decode(errors="replace"):
                    if letter >= " " and self.row < self.height and self.column < self.width:
                        self.cells[self.row][self.column] = letter
                        self.column += 1
            elif move[0].endswith(b"J"):
                self.clear()

    def text(self):
        return "\n".join("".join(row) for row in self.cells)

    def wait(self, what, condition, patience=60):
        end = time.monotonic() + patience
        while not condition(self.text()):
            if time.monotonic() > end:
                sys.exit(f"waited in vain for {what}:\n{self.text()}")
            self.take(0.05)

    def press(self, keys):
        os.write(self.fd, keys.encode())

    def latency(self, key, condition):
        """Seconds from a key to the last byte of a screen on which the condition holds."""
        while select.select([self.fd], [], [], 0)[0]:
            self.take(0)
        begin = time.monotonic()
        self.press(key)
        while not condition(self.text()):
            if time.monotonic() > begin + 30:
                sys.exit(f"the key {key!r} shows nothing:\n{self.text()}")
            self.take(1)
        return self.arrived - begin


class Echo:
    """The least that a program on a terminal can do: `cat`. The cost of a key there is the lower bound on this machine."""

    def __init__(self):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvp("sh", ["sh", "-c", "stty raw -echo; echo ready; exec cat"])
        while b"ready" not in os.read(self.fd, 100):
            pass
        while select.select([self.fd], [], [], 0.2)[0]:
            os.read(self.fd, 100)

    def latency(self):
        begin = time.monotonic()
        os.write(self.fd, b"x")
        os.read(self.fd, 100)
        return time.monotonic() - begin

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def rss(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


def cpu(pid):
    """Seconds of processor time that a process has taken, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def writes(pid):
    """How often a process has written."""
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("syscw"):
            return int(line.split()[1])
    return 0
