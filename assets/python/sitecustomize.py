"""Python runs this file at its start, because hvtui put its folder first on PYTHONPATH.

It imports nothing that the script does not import. It says once that Python has started, waits on `sys.meta_path` for
the frameworks that hvtui can watch, and then runs the sitecustomize that it hides. `hvtui_report.py`, beside this file,
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
    """One line from the first Python of a rank; its children find it said."""
    if os.environ.get("HVTUI_PYTHON_SEEN"):
        return
    os.environ["HVTUI_PYTHON_SEEN"] = "1"
    line = '{"kind":"hello","by":"hooks","rank":%d,"job":%s,"pid":%d,"versions":{"python":"%s"}}\n' % (
        rank(), quoted(script_name()), os.getpid(), "%d.%d.%d" % sys.version_info[:3])
    file = os.open(report, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, line.encode("ascii"))
    finally:
        os.close(file)


def start():
    report = os.environ.get("HVTUI_REPORT")
    if not report or MODE == "off":
        return
    try:
        say_hello(report)
        sys.meta_path.insert(0, Finder)
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
