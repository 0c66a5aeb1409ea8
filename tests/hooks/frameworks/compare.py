"""compare.py REPORT OUTPUT RANKS: the steps of each rank against those that the script tells, and its mean losses."""
import json
import re
import statistics
import sys

report, output, ranks = sys.argv[1:]
with open(report, encoding="utf-8") as file:
    lines = [json.loads(line) for line in file]
with open(output, encoding="utf-8") as file:
    out = file.read()
wanted = int(re.findall(r"steps (\d+)", out)[-1])
for line in lines:
    if "off" in line:
        sys.exit("a hook failed: %s" % line)
waits = []
for rank in range(int(ranks)):
    steps = [line for line in lines if line["kind"] == "step" and line["rank"] == rank]
    if [line["step"] for line in steps] != list(range(1, wanted + 1)):
        sys.exit("rank %d: %d steps of %d" % (rank, len(steps), wanted))
    for line in steps:
        if "loss" not in line:
            sys.exit("no loss: %s" % line)
        if "spans" in line and sum(span["dur_us"] for span in line["spans"]) < 0.9 * line["dur_us"]:
            sys.exit("spans cover less than 90 %%: %s" % line)
    spans = [{span["phase"]: span["dur_us"] for span in line["spans"]} for line in steps if "spans" in line]
    waits.append(statistics.median([one.get("wait", 0) for one in spans] or [0]))
    means = [float(word) for found in re.findall(r"means (.*)", out) for word in found.split()]
    for epoch, mean in enumerate(means):
        size = wanted // len(means)
        own = statistics.fmean(line["loss"] for line in steps[epoch * size:epoch * size + size])
        if abs(own - mean) > 1e-4 * abs(mean):
            sys.exit("epoch %d: the losses' mean is %s, not %s" % (epoch, own, mean))
if len(waits) > 1 and not waits[1] + 1500 < waits[0]:
    sys.exit("rank 1 is late by 4 ms, and the waits are %s us" % waits)
said = [line for line in lines if line["kind"] == "hello"][-1]
print("%d steps, %s%s" % (wanted, " ".join("%s %s" % pair for pair in said["versions"].items()),
                          ", total %d" % said["total_steps"] if "total_steps" in said else ""))
