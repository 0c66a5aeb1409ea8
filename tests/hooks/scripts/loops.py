"""Runs several of the scripts in one interpreter, one after the other: loops.py NAME[:WORD]…"""
import runpy
import sys
from pathlib import Path

for name in sys.argv[1:]:
    name, _, word = name.partition(":")
    path = str(Path(__file__).with_name(name + ".py"))
    sys.argv = [path] + [word] * bool(word)
    runpy.run_path(path, run_name="__main__")
