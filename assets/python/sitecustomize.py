"""Python runs this file at its start, because hvtui put its folder first on PYTHONPATH.

It imports nothing that costs time. It says once that Python has started, has the first Python of a rank write its stack
upon a signal, waits on `sys.meta_path` for the frameworks that hvtui can watch, and then runs the sitecustomize that it hides. `hvtui_report.py`, beside this file,
is loaded when one of them has been imported.

HVTUI_REPORT names the file to report to; without it nothing happens. HVTUI_PYTHON_HOOKS=off switches all of this off,
HVTUI_PYTHON_HOOKS=debug says on stderr what is done.
"""
import os
import sys

# The module whose import is waited for, and the function of hvtui_report that attaches to it.
WANTED = {
    "torch": "attach_torch",
    "torch.utils.tensorboard.writer": "attach_writer",
    "tensorboardX.writer": "attach_writer",
    "wandb.sdk.wandb_run": "attach_wandb",
    "torchdata.stateful_dataloader.stateful_dataloader": "attach_loader",
    "horovod.torch.mpi_ops": "attach_horovod_init",
    "horovod.torch.optimizer": "attach_horovod",
    "keras.callbacks": "attach_keras",
    "keras.src.callbacks": "attach_keras",
    "keras.src.callbacks.callback_list": "attach_keras",
    "tf_keras.src.callbacks": "attach_keras",
}
HERE = os.path.dirname(os.path.abspath(__file__))
# Files have numbers from here on: a script that closes all small ones and opens its own does not come upon ours.
HIGH = 700
MODE = os.environ.get("HVTUI_PYTHON_HOOKS", "").strip().lower()


def debug(text):
    if MODE == "debug":
        try:
            os.write(2, ("hvtui hooks: %s\n" % text).encode("utf-8", "replace"))
        except OSError:
            pass


def path_finder():
    # what `importlib.machinery` hands out, without the milliseconds of importing it
    import _frozen_importlib_external

    return _frozen_importlib_external.PathFinder


def load(name, folders):
    """Runs the module `name` found in `folders` under that name; None where there is none."""
    spec = path_finder().find_spec(name, folders)
    if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
        return None
    module = type(sys)(name)
    module.__spec__, module.__loader__ = spec, spec.loader
    module.__file__, module.__cached__ = spec.origin, spec.cached
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise
    return module


def attach(name, module):
    """Attaches to a framework that has just been imported."""
    try:
        report = sys.modules.get("hvtui_report") or load("hvtui_report", [HERE])
        getattr(report, WANTED[name])(module)
    except Exception as error:  # a fault of ours is never the script's
        debug("%s: %s: %s" % (name, type(error).__name__, error))


class Finder:
    """Sees each import; for a wanted module it lets the loader say when the module is complete."""

    busy = False

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in WANTED or cls.busy:
            return None
        try:
            cls.busy = True
            spec = cls.others(name, path, target)
            if spec is not None and hasattr(spec.loader, "exec_module"):
                cls.watch(name, spec.loader)
            return spec
        except Exception as error:
            debug("%s: %s: %s" % (name, type(error).__name__, error))
            return None
        finally:
            cls.busy = False

    @classmethod
    def others(cls, name, path, target):
        for finder in list(sys.meta_path):
            if finder is not cls and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None

    @staticmethod
    def watch(name, loader):
        # The loader itself stays on __spec__ and __loader__ (inspect, importlib.resources): only this object's method
        # is replaced, and given back before it runs.
        original = loader.exec_module

        def exec_module(module):
            try:
                del loader.exec_module
            except AttributeError:
                pass
            original(module)
            if module.__name__ == name:
                attach(name, module)

        loader.exec_module = exec_module


def script_name():
    """The script's file name (never its path), or the module's name, as Python's command line has it."""
    words = getattr(sys, "orig_argv", None)
    if words is None:  # before Python 3.10
        with open("/proc/self/cmdline", "rb") as file:
            words = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    words = iter(words[1:])
    for word in words:
        if word == "--check-hash-based-pycs":
            next(words, None)
        elif word.startswith("--"):
            continue
        elif not word.startswith("-"):
            return os.path.basename(word)
        for at, flag in enumerate(word[1:], 2):  # flags may stand together, as in `-um module`
            if flag == "c":
                return "python"
            if flag in "mWX":
                value = word[at:] or next(words, "")
                if flag == "m":
                    return value or "python"
                break
    return "python"


def quoted(text):
    """`text` as a JSON string: `json` costs milliseconds to import."""
    def one(c):
        code = ord(c)
        if 32 <= code < 127 and c not in '"\\':
            return c
        return "\\u%04x" % (0xFFFD if code > 0xFFFF or 0xD800 <= code < 0xE000 else code)

    return '"%s"' % "".join(map(one, text))


def rank():
    """Which rank this process is, as its launcher says."""
    for name in ("RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "HVTUI_RANK"):
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return 0


def say_hello(report):
    """One line from the first Python of a rank; its children find it said. Whether this process is that one."""
    own, said = str(os.getpid()), os.environ.get("HVTUI_PYTHON_SEEN")
    if said:
        return said == own  # it has executed another Python in its place
    os.environ["HVTUI_PYTHON_SEEN"] = own
    line = '{"kind":"hello","by":"hooks","rank":%d,"job":%s,"pid":%d,"versions":{"python":"%s"}}\n' % (
        rank(), quoted(script_name()), os.getpid(), "%d.%d.%d" % sys.version_info[:3])
    file = os.open(report, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, line.encode("ascii"))
    finally:
        os.close(file)
    return True


def pid_outside(report):
    """This process's number as hvtui knows it; 0 in a container with numbers of its own."""
    try:
        with open(os.path.join(os.path.dirname(report), "pid-ns.json")) as file:
            outside = file.read().strip('"')
        return os.getpid() if os.readlink("/proc/self/ns/pid") == outside else 0
    except OSError:
        return os.getpid()


def high(file):
    """The same file under a high number."""
    import fcntl

    try:
        copy = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, HIGH)
    except (OSError, ValueError):
        return file  # fewer are allowed
    os.close(file)
    return copy


def signal_is_free(number):
    """Whether the signal has its default action and is not blocked, by Python's knowledge and by the kernel's."""
    import _signal

    if _signal.getsignal(number) != _signal.SIG_DFL:
        return False
    try:
        with open("/proc/self/status", "rb") as file:
            masks = [int(line.split()[1], 16) for line in file if line.startswith((b"SigBlk", b"SigIgn", b"SigCgt"))]
    except (OSError, ValueError):
        return True
    return not any(mask >> (number - 1) & 1 for mask in masks)


def inode(file):
    """Which file a number stands for."""
    about = os.fstat(file)
    return about.st_dev, about.st_ino


class Stacks:
    """The signal upon which this process writes the stack of its main thread. Where the script has it, or takes it, it is
    the script's."""

    number = None  # while it is answered
    file = None
    inode = None  # of the file: its number is the script's to close and to take
    taken = []  # what is called when the script takes the signal

    @classmethod
    def listen(cls, path, early=False):
        """Answers in the file `path` from now on; the signal, or None where it is not ours. `early`: the script has not
        begun, and finds no small number of a file taken."""
        # the builtin one: to import `signal` costs milliseconds
        import _signal
        import faulthandler

        if cls.number is None:
            number = _signal.SIGRTMAX - 4 if hasattr(_signal, "SIGRTMAX") else None
            if cls.file is not None or number is None or not signal_is_free(number):
                return None
        else:
            number = cls.number
        file = high(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if early and file < HIGH:
            os.close(file)
            return None
        # of the thread that gets it, the main one: to walk the frames of another that runs ends the process now and then
        faulthandler.register(number, file=file, all_threads=False, chain=False)
        if cls.file is not None:
            cls.close()
        elif not hasattr(_signal.signal, "hvtui"):
            _signal.signal = cls.heeding(_signal.signal)
        cls.number, cls.file, cls.inode = number, file, inode(file)
        return number

    @classmethod
    def close(cls):
        """Closes the file, unless the script has closed it and something else has its number."""
        try:
            if inode(cls.file) == cls.inode:
                os.close(cls.file)
        except OSError:
            pass

    @classmethod
    def heeding(cls, takes):
        """What `signal.signal` calls; it sees when the script takes the signal for itself."""

        def signal(*arguments):
            before = takes(*arguments)
            cls.look()
            return before

        signal.__doc__, signal.__module__, signal.__qualname__ = takes.__doc__, takes.__module__, takes.__name__
        signal.hvtui = True
        return signal

    @classmethod
    def look(cls):
        """Gives the signal up for good where the script has taken it."""
        import _signal

        if cls.number is not None and _signal.getsignal(cls.number) != _signal.SIG_DFL:
            cls.number = None
            for tell in cls.taken:
                try:
                    tell()
                except Exception as error:
                    debug("%s: %s" % (type(error).__name__, error))

    @classmethod
    def forked(cls):
        """A child of a process that listens does not: its file is the parent's."""
        import faulthandler

        if cls.file is not None:
            cls.close()
        if cls.number is not None:
            faulthandler.unregister(cls.number)
        cls.number = cls.file = None
        cls.taken = []


def listen_first(report):
    """The first Python of a rank answers before a framework is imported, and without one. A file tells who it is."""
    own, pid = os.getpid(), pid_outside(report)

    def tell(number):
        file = os.open(report + ".first", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, b"%d %d\n" % (pid, number))
        finally:
            os.close(file)

    def is_taken():
        if os.getpid() == own:  # not in a child
            tell(0)

    number = Stacks.listen(report + ".stack", early=True) if pid else None
    if number is not None:
        Stacks.taken.append(is_taken)
        tell(number)


def start():
    report = os.environ.get("HVTUI_REPORT")
    if not report or MODE == "off":
        return
    try:
        first = say_hello(report)
        sys.meta_path.insert(0, Finder)
        if first:
            listen_first(report)
    except Exception as error:  # a folder that is gone, read-only or full: no reports
        debug("%s: %s" % (type(error).__name__, error))


def run_hidden():
    """Runs the sitecustomize that this one hides. Our folder leaves sys.path, and stays in PYTHONPATH: the workers of
    an inner launcher need it."""
    sys.path[:] = [folder for folder in sys.path if folder.rstrip("/") != HERE]
    load("sitecustomize", sys.path)


sys.modules["hvtui_start"] = sys.modules[__name__]  # hvtui_report imports it; the hidden one takes the name
start()
run_hidden()
