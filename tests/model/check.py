#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the model of many lanes with spin: it must be sound in every size, and spin must find every
mistake that can be planted in it.

check.py              exit status 1: something is wrong; 77: spin or a C compiler is missing
check.py --deep       larger sizes too: minutes, 4 GB
check.py --trail BUG  the shortest way to where that mistake shows
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

MODEL = pathlib.Path(__file__).resolve().parent / "lanes.pml"
CC = shutil.which("cc") or shutil.which("gcc")
RUN_S = 280  # the longest search; ctest's own limit is for all of them
MEMORY_MB = 4000

SOUND = {  # name: what it looks at closely
    "three chunks, window of two": "-DDEATHS=1 -DCHUNKS=3",
    "two deaths": "-DDEATHS=2 -DCHUNKS=2",
    "two envelopes, two deaths": "-DDEATHS=2 -DCHUNKS=1 -DENVELOPES=2",
    "more frames on their way": "-DDEATHS=1 -DCHUNKS=2 -DROOM=2",
    "acks stay on their slot": "-DDEATHS=1 -DCHUNKS=2 -DACKS_STAY",
    "the sender withdraws": "-DDEATHS=1 -DCHUNKS=2 -DWITHDRAWS",
    "the receiver's user lags": "-DDEATHS=1 -DCHUNKS=2 -DUSER_LAGS",
    "a living slot is overtaken": "-DDEATHS=0 -DCHUNKS=2 -DOVERTAKES=1",
    "overtaken, and one dies": "-DDEATHS=1 -DCHUNKS=1 -DOVERTAKES=1",
}
DEEP = {
    "three chunks, two envelopes": "-DDEATHS=1 -DCHUNKS=3 -DENVELOPES=2",
    "three chunks, two deaths": "-DDEATHS=2 -DCHUNKS=3",
    "withdrawn, two deaths": "-DDEATHS=2 -DCHUNKS=2 -DWITHDRAWS",
    "acks stay, two deaths": "-DDEATHS=2 -DCHUNKS=2 -DACKS_STAY",
    "three deaths": "-DDEATHS=3 -DCHUNKS=1",
    "the user lags, three chunks": "-DDEATHS=1 -DCHUNKS=3 -DUSER_LAGS",
    "the user lags, two deaths": "-DDEATHS=2 -DCHUNKS=1 -DENVELOPES=2 -DUSER_LAGS",
    "overtaken, two chunks": "-DDEATHS=1 -DCHUNKS=2 -DOVERTAKES=1",
    "overtaken twice": "-DDEATHS=1 -DCHUNKS=2 -DOVERTAKES=2",
    "overtaken and withdrawn": "-DDEATHS=1 -DCHUNKS=2 -DOVERTAKES=1 -DWITHDRAWS",
}
CIRCLES = "-DDEATHS=1 -DCHUNKS=2"  # here it is shown that nothing goes in a circle

STUCK = "invalid end state"
TWICE = r"applied\[reading_id"
NOT_LANDED = "landed_bits"
PLANTED = {  # name: (size, what spin must complain about)
    "BUG_FORGETS_LANDED": ("-DCHUNKS=2", TWICE),
    "BUG_NEW_NUMBER": ("-DCHUNKS=2", TWICE),
    "BUG_OLD_GENERATION": ("-DCHUNKS=2", NOT_LANDED),
    "BUG_FORMER_OWNER": ("-DCHUNKS=2", TWICE),
    "BUG_FLUSH_EARLY": ("-DCHUNKS=2", r"applied\[2\]"),
    "BUG_NO_REPLAY": ("-DCHUNKS=1", STUCK),
    "BUG_STALE_OWNER": ("-DCHUNKS=1", NOT_LANDED),
    "BUG_STALE_LEAD": ("-DCHUNKS=1 -DENVELOPES=2", STUCK),
    "BUG_GAP_IS_ERROR": ("-DCHUNKS=1 -DENVELOPES=2", r"n<=\(envelopes"),
    "BUG_TOLD_ONCE": ("-DCHUNKS=1", STUCK),
    "BUG_SINK_NOT_COUNTED": ("-DCHUNKS=2", STUCK),
    "BUG_NO_WINDOW": ("-DCHUNKS=3", r"n<=\(landed_all"),
    "BUG_TAKEN_BACK": ("-DCHUNKS=2", r"taken\["),
    "BUG_HELD_BLOCKS": ("-DCHUNKS=1", STUCK),
    "BUG_WITHDRAWN_GAP": ("-DCHUNKS=2 -DWITHDRAWS", STUCK),
    "BUG_ASKED_TWICE": ("-DCHUNKS=1 -DUSER_LAGS", "matched"),
    "BUG_UNPLACES_NEXT": ("-DCHUNKS=2 -DUSER_LAGS", STUCK),
    "BUG_GHOST_COUNTS": ("-DCHUNKS=2 -DOVERTAKES=1", NOT_LANDED),
    "BUG_SAME_EPOCH": ("-DCHUNKS=2 -DOVERTAKES=1", NOT_LANDED),
}


def call(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=RUN_S)
    return done.returncode, done.stdout + done.stderr


def build(folder, defines, *flags):
    for command in (["spin", *defines.split(), "-a", MODEL],
                    [CC, "-w", "-DNOFAIR", "-DMEMLIM=%d" % MEMORY_MB, *flags, "-o", "pan", "pan.c"]):
        status, text = call(command, folder)
        if status != 0:
            sys.exit("%s failed:\n%s" % (command[0], text))


def number(pattern, text):
    found = re.search(pattern, text)
    return found.group(1) if found else "?"


def complaint(text):
    """What spin found; None: nothing, and it looked everywhere."""
    found = re.search(r"^pan:1: (.*?) \(at depth (\d+)\)", text, re.MULTILINE)
    if found:
        return "%s, step %s" % found.groups()
    if "errors: 0" not in text or "Search not completed" in text or "depth too small" in text:
        return "the search did not end:\n" + text
    return None


def search(defines, flags, *options):
    with tempfile.TemporaryDirectory() as folder:
        build(folder, defines, *flags)
        return call(["./pan", "-m2000", *options], folder)[1]


def check_sound(name, defines, flags=("-O2", "-DSAFETY"), option="-w24"):
    text = search(defines, flags, option)
    found = complaint(text)
    print("%-8s%-30s%10s states %7s s  %s" % (
        "WRONG" if found else "sound", name, number(r"(\S+) states, stored", text),
        number(r"elapsed time (\S+)", text), found or ""), flush=True)
    return found is None


def options_for(expected):
    # Many mistakes also stop everything somewhere: not to be taken for what they must show.
    return [] if expected == STUCK else ["-E"]


def check_planted(name, size, expected):
    text = search("-DDEATHS=1 -D%s %s" % (name, size), ("-O0", "-DSAFETY"), "-w20",
                  *options_for(expected))
    found = complaint(text)
    is_found = found is not None and re.search(expected, found) is not None
    print("%-8s%-30s%s" % ("found" if is_found else "MISSED", name, found or ""), flush=True)
    return is_found


def show_trail(name):
    size, expected = PLANTED[name]
    defines = "-DDEATHS=1 -D%s %s" % (name, size)
    with tempfile.TemporaryDirectory() as folder:
        build(folder, defines, "-O2", "-DSAFETY", "-DREACH")
        call(["./pan", "-w22", "-m100", "-i", *options_for(expected)], folder)
        trail = next(pathlib.Path(folder).glob("*.trail"))
        print(call(["spin", *defines.split(), "-B", "-k", trail, MODEL], folder)[1])


def check_all(is_deep):
    in_model = set(re.findall(r"BUG_[A-Z_]*[A-Z]", MODEL.read_text()))
    if in_model != set(PLANTED):
        sys.exit("in lanes.pml or here, not in both: %s" % ", ".join(in_model ^ set(PLANTED)))
    sizes = {**SOUND, **DEEP} if is_deep else SOUND
    results = [check_sound(name, defines) for name, defines in sizes.items()]
    results.append(check_sound("nothing goes in a circle", CIRCLES, ("-O2", "-DNP"), "-l"))
    results += [check_planted(name, *planted) for name, planted in PLANTED.items()]
    return all(results)


def main(arguments):
    for tool, is_there in (("spin", shutil.which("spin")), ("a C compiler", CC)):
        if not is_there:
            print("skipped: %s is not installed" % tool)
            return 77
    if len(arguments) == 2 and arguments[0] == "--trail" and arguments[1] in PLANTED:
        show_trail(arguments[1])
        return 0
    if arguments not in ([], ["--deep"]):
        sys.exit(__doc__)
    return 0 if check_all(arguments == ["--deep"]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
