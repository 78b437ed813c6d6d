# SPDX-License-Identifier: Apache-2.0
"""Rows, tables and JSON of python -m weft.bench; the keys are those of `weft bench --json`."""
import json
import statistics
import sys

BUS_FACTORS = {"allreduce": lambda n: 2 * (n - 1) / n, "broadcast": lambda n: 1, "overhead": lambda n: 0,
               "barrier": lambda n: 0}
UNITS = ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K"))


def row(op, ranks, size, who, times, wrong, everybody):
    """One contender's figures; ratio: how many times longer it takes than Weft, round by round, the median."""
    us = sorted(each * 1e6 for each in times)
    middle = statistics.median(us)
    bus = BUS_FACTORS.get(op, lambda n: (n - 1) / n)(ranks)
    found = {"op": op, "ranks": ranks, "bytes": size, "count": size // 4, "dtype": "f32", "redop": "sum", "who": who,
             "time_us": {"min": us[0], "p50": middle, "avg": statistics.fmean(us), "max": us[-1],
                         "stddev": statistics.pstdev(us)},
             "algbw_gbs": size / middle / 1e3, "busbw_gbs": size / middle / 1e3 * bus, "wrong": wrong}
    if who != "weft" and "weft" in everybody:
        found["ratio"] = statistics.median(theirs / ours for theirs, ours in zip(everybody[who], everybody["weft"]))
    return found


def write(path, report):
    with open(path, "w") as file:
        json.dump(report, file)


def read(path):
    with open(path) as file:
        return json.load(file)


def progress(text):
    """On a terminal only."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K" + text)
        sys.stderr.flush()


def size_text(size):
    for unit, name in UNITS:
        if size >= unit and size % unit == 0:
            return "%d%s" % (size // unit, name)
    return str(size)


def table(head, lines):
    """Aligned columns: the first to the left, numbers to the right."""
    widths = [max(len(line[i]) for line in [head] + lines) for i in range(len(head))]
    return ["  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                      for i, (cell, width) in enumerate(zip(line, widths))).rstrip() for line in [head] + lines]


def time_text(us):
    return "%.2f" % us if us < 1000 else "%.0f" % us


def cells_of(results):
    """{(op, ranks, bytes): {who: row}} in the order of the results."""
    found = {}
    for each in results:
        found.setdefault((each["op"], each["ranks"], each["bytes"]), {})[each["who"]] = each
    return found


def collective_lines(results):
    lines = []
    for (op, ranks, size), cell in cells_of(results).items():
        ours, theirs = cell["weft"], cell.get("gloo")
        wrong = sum(each["wrong"] for each in cell.values())
        lines.append([op, str(ranks), size_text(size), time_text(ours["time_us"]["p50"]), "%.2f" % ours["busbw_gbs"],
                      time_text(theirs["time_us"]["p50"]) if theirs else "-",
                      "%.1f" % theirs["ratio"] if theirs else "-", str(wrong)])
    return lines


def print_report(reports):
    results = [each for report in reports for each in report["results"]]
    overheads = [each for each in results if each["op"] == "overhead"]
    others = [each for each in results if each["op"] != "overhead"]
    peers = reports[0]["peers"]
    print("# Weft %s from Python, %d cores; %s; slowest rank, median of the rounds"
          % (reports[0]["weft"], reports[0]["host"]["cores"], peers or "no peer"))
    if others:
        head = ["op", "ranks", "bytes", "weft us", "busbw GB/s", "gloo us", "gloo/weft", "wrong"]
        print("\n".join(table(head, collective_lines(others))))
    if overheads:
        bare = overheads[0]["time_us"]["p50"]
        lines = [[each["who"], time_text(each["time_us"]["p50"]), time_text(each["time_us"]["p50"] - bare)]
                 for each in overheads]
        print("\n".join(table(["allreduce of 8 bytes, one rank", "us", "over ctypes"], lines)))


def finish(options, reports):
    """Prints; the exit status: 1 when anything was computed wrongly."""
    results = [each for report in reports for each in report["results"]]
    if options.json:
        print(json.dumps(dict(reports[0], results=results)))
    else:
        print_report(reports)
    return int(any(each["wrong"] for each in results))
