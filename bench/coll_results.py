# SPDX-License-Identifier: Apache-2.0
"""What the rounds of bench/compare.py say: ratios, means, tables, and the page that `weft bench
report` draws."""
import collections
import datetime
import json
import math
import os
import platform
import statistics
import subprocess

from compare_p2p import size

SECTIONS = collections.OrderedDict([
    ("shm", "shared memory, private buffers"), ("alloc", "shared memory, weft_alloc buffers"),
    ("tcp", "tcp, peers under the system's congestion control"),
    ("cubic", "tcp, peers under cubic")])
BUS = {"allreduce": lambda n: 2 * (n - 1) / n, "broadcast": lambda n: 1}

Cell = collections.namedtuple("Cell", "path op bytes ranks")


def path_of(section):
    return "shm" if section in ("shm", "alloc") else "tcp"


def cell_name(cell, section=None):
    return " ".join([section or cell.path, cell.op] + ([size(cell.bytes)] if cell.bytes else []) +
                    ["n%d" % cell.ranks])


# ---- ratios ----

def of_section(row, section, controls):
    """Is this row one of the section's? Weft's tcp rows belong to both sections of tcp."""
    if row["cell"].path != path_of(section):
        return False
    if row["who"].startswith("weft"):
        return row["cell"].path == "tcp" or row["cell"].op == "barrier" or \
            (row["who"] == "weft alloc") == (section == "alloc")
    is_cubic = row["control"] == "cubic" and controls[0][0] != "cubic"
    return row["cell"].path == "shm" or is_cubic == (section == "cubic")


def compare_cell(rows, cell, section, controls):
    """{"ratio", "best", "weft_us", "peer_us", "rounds"} of a cell; None: nothing to compare."""
    ratios, bests, wefts, peers = [], collections.Counter(), [], []
    mine = [row for row in rows if row["cell"] == cell and row["us"] and row["state"] != "changed"
            and of_section(row, section, controls)]
    for number in sorted({row["round"] for row in mine}):
        here = [row for row in mine if row["round"] == number]
        weft = [row for row in here if row["who"].startswith("weft")]
        others = [row for row in here if not row["who"].startswith("weft")]
        if others:
            best = min(others, key=lambda row: row["us"])
            bests[best["who"]] += 1
            peers.append(best["us"])
        if weft and others:
            ratios.append(best["us"] / weft[0]["us"])
        if weft:
            wefts.append(weft[0]["us"])
    if not peers:
        return None
    middle = statistics.median
    return {"section": section, "cell": cell, "ratio": middle(ratios) if ratios else None,
            "best": bests.most_common(1)[0][0], "rounds": len(ratios), "peer_us": middle(peers),
            "weft_us": middle(wefts) if wefts else None}


def compare(rows, choice, controls):
    found = []
    for section in choice.sections:
        if section == "cubic" and len(controls) < 2:
            continue
        for ranks in choice.ranks:
            for cell in choice.cells(path_of(section), ranks):
                one = compare_cell(rows, cell, section, controls)
                if one and not (section == "alloc" and cell.op == "barrier"):
                    found.append(one)
    return found


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


def three_digits(value):
    if value is None:
        return "-"
    return "%.0f" % value if value >= 100 else "%.1f" % value if value >= 10 else "%.2f" % value


def ratio_table(found, section, choice, key):
    """Rows of text: operation, n, then a figure per size."""
    cells = {one["cell"]: one for one in found if one["section"] == section}
    table = []
    for op in choice.ops:
        for ranks in choice.ranks:
            sizes = [0] if op == "barrier" else choice.sizes
            figures = [cells.get(Cell(path_of(section), op, count, ranks)) for count in sizes]
            if any(figures):
                table.append([op, str(ranks)] + [three_digits(one[key]) if one else "-"
                                                 for one in figures])
    return table


def print_table(head, rows):
    widths = [16, 3] + [8] * (len(head) - 2)
    for row in [head] + rows:
        print("".join(word.ljust(width) if i == 0 else word.rjust(width)
                      for i, (word, width) in enumerate(zip(row, widths))).rstrip())


def means_of(found):
    """[(section, geometric mean, lowest cell)]"""
    means = []
    for section in SECTIONS:
        mine = [one for one in found if one["section"] == section and one["ratio"]]
        if mine:
            means.append((section, geometric_mean([one["ratio"] for one in mine]), len(mine),
                          min(mine, key=lambda one: one["ratio"])))
    return means


def print_results(found, choice, is_with_times):
    head = ["op", "n"] + [size(count) for count in choice.sizes]
    has_weft = any(one["ratio"] for one in found)
    for section, title in SECTIONS.items():
        kinds = [("ratio", "best peer / Weft")] if has_weft else []
        if is_with_times or not has_weft:
            kinds += [("peer_us", "best peer, us")] + ([("weft_us", "Weft, us")] if has_weft else [])
        for key, words in kinds:
            table = ratio_table(found, section, choice, key)
            if table:
                print("\n%s: %s" % (title, words))
                print_table(head, table)
    means = means_of(found)
    if means:
        print()
    for section, mean, count, lowest in means:
        print("%-6s geometric mean %.2fx of %d cells, lowest %.2fx (%s, %s)" % (
            section, mean, count, lowest["ratio"], cell_name(lowest["cell"], section),
            lowest["best"]))
    ranked = sorted((one for one in found if one["ratio"]), key=lambda one: one["ratio"])[:10]
    if len(found) > 10 and ranked:
        print("\nlowest cells:")
    for one in ranked if len(found) > 10 else []:
        print("  %-32s %5.2fx  Weft %s us, %s %s us, %d rounds" % (
            cell_name(one["cell"], one["section"]), one["ratio"], three_digits(one["weft_us"]),
            one["best"], three_digits(one["peer_us"]), one["rounds"]))


def print_extras(rows, singles):
    """Figures that are not ratios: against the floor, the flag, and the spread of single calls."""
    big = [row for row in rows if row["who"] == "weft alloc" and row["us"] and
           row["cell"].op == "allreduce" and row["more"].get("limit_us")
           and row["cell"].bytes >= 64 << 20]
    for cell in sorted({row["cell"] for row in big}, key=lambda cell: (cell.bytes, cell.ranks)):
        mine = [row for row in big if row["cell"] == cell]
        print("%s: %.2fx of the floor (two processes' c = a + b: %.1f GB/s)" % (
            cell_name(cell, "alloc"),
            statistics.median(row["us"] / row["more"]["limit_us"] for row in mine),
            statistics.median(row["more"]["floor_gbs"] for row in mine)))
    small = [row for row in rows if row["who"] == "weft" and row["us"] and
             row["more"].get("probe_ns") and row["state"] != "changed" and
             row["cell"] == Cell("shm", "allreduce", 8, 2)]
    if small:
        print("shm allreduce 8 n2: %.0f ns, of which a flag takes %.0f" % (
            1e3 * statistics.median(row["us"] for row in small),
            statistics.median(sum(row["more"]["probe_ns"]) / 2 for row in small)))
    for who in sorted({row["who"] for row in singles}):
        mine = [row for row in singles if row["who"] == who]
        print("%s, one by one, %s: p50 %s us, p99 %s us, p99 / p50 %.1f" % (
            cell_name(mine[0]["cell"]), who,
            three_digits(statistics.median(row["us"] for row in mine)),
            three_digits(statistics.median(row["p99"] for row in mine)),
            statistics.median(row["p99"] / row["us"] for row in mine)))


def print_states(rows):
    """In which states the machine was, per cell and round: what was measured while busy means little."""
    states = collections.Counter()
    for key in {(row["cell"], row["round"], row["state"]) for row in rows}:
        states[key[2]] += 1
    print("cells x rounds: %s" % ", ".join("%d %s" % (count, state)
                                           for state, count in states.most_common()))


# ---- the page ----

def medians(rows):
    """One result per cell and program, as `weft bench --json` writes them: the best way of each round,
    the median over the rounds."""
    found = collections.OrderedDict()
    for row in rows:
        if row["us"] and row["state"] != "changed" and row["cell"].bytes:
            rounds = found.setdefault((row["cell"], row["who"]), {})
            rounds[row["round"]] = min(row["us"], rounds.get(row["round"], math.inf))
    out = []
    for (cell, who), rounds in found.items():
        us = statistics.median(rounds.values())
        algbw = cell.bytes / us / 1e3
        factor = BUS.get(cell.op, lambda n: (n - 1) / n)(cell.ranks)
        out.append({"op": cell.op, "ranks": cell.ranks, "bytes": cell.bytes, "path": cell.path,
                    "dtype": "f32", "who": who, "time_us": {
                        "min": min(rounds.values()), "p50": us, "max": max(rounds.values())},
                    "algbw_gbs": algbw, "busbw_gbs": algbw * factor, "rounds": len(rounds)})
    return out


def page_tables(found, choice):
    tables = [{"title": "Geometric means of best peer / Weft", "columns": [
        "section", "mean", "cells", "lowest", "where"], "rows": [
            [SECTIONS[section], "%.2f" % mean, str(count), "%.2f" % lowest["ratio"],
             "%s (%s)" % (cell_name(lowest["cell"], section), lowest["best"])]
            for section, mean, count, lowest in means_of(found)]}]
    for section, title in SECTIONS.items():
        rows = ratio_table(found, section, choice, "ratio")
        if rows:
            tables.append({"title": "Best peer / Weft: " + title, "shade": True, "columns":
                           ["op", "n"] + [size(count) for count in choice.sizes], "rows": rows})
    return [table for table in tables if table["rows"]]


def version_of(argv, word):
    try:
        text = subprocess.run(argv, check=False, capture_output=True, text=True).stdout
    except OSError:
        return None
    found = [part for part in text.split() if part[:1].isdigit() and "." in part]
    return "%s %s" % (word, found[0]) if found else None


def peers_facts():
    found = [version_of(["mpirun.openmpi", "--version"], "Open MPI"),
             version_of(["mpirun.mpich", "--version"], "MPICH"),
             version_of(["dpkg-query", "-W", "-f", "${Version}", "libgloo0"], "Gloo")]
    return ", ".join(one for one in found if one)


def machine_facts():
    facts = {"cores": os.cpu_count(), "kernel": platform.release()}
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            facts["cpu"] = next((line.split(":")[1].strip() for line in file
                                 if line.startswith("model name")), None)
        with open("/proc/sys/net/ipv4/tcp_congestion_control", encoding="ascii") as file:
            facts["congestion control"] = file.read().strip()
    except OSError:
        pass
    return facts


def page(rows, found, choice, options, skipped):
    notes = ["Ratios are medians over %d round%s, each of the best peer and Weft in that round; above 1 "
             "Weft is faster. Curves are medians over the same rounds." % (
                 options.rounds, "s" if options.rounds > 1 else "")]
    notes += ["Not compared: %s: %s." % item for item in sorted(skipped.items())]
    return {"bench": "compare", "title": "Weft beside its peers", "host": machine_facts(),
            "date": datetime.datetime.now().strftime("%Y-%m-%d %H:%M"), "peers": peers_facts(),
            "args": {"rounds": options.rounds, "only": options.only, "time_ms": options.time},
            "notes": notes, "tables": page_tables(found, choice), "results": medians(rows)}


def write_json(path, whole):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(whole, file, indent=1)
        file.write("\n")
