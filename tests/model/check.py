#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks a model with spin: it must be sound in every size, and spin must find every mistake that can
be planted in it.

check.py MODEL              lanes or verdicts; exit status 1: something is wrong; 77: spin or a C compiler is missing
check.py MODEL --deep       larger sizes too: minutes, 4 GB
check.py MODEL --trail BUG  the shortest way to where that mistake shows
"""
import collections
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CC = shutil.which("cc") or shutil.which("gcc")
RUN_S = 280  # the longest search; ctest's own limit is for all of them
MEMORY_MB = 4000

LANES_SOUND = {  # name: what it looks at closely
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
LANES_DEEP = {
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
STUCK = "invalid end state"
TWICE = r"applied\[reading_id"
NOT_LANDED = "landed_bits"
LANES_PLANTED = {  # name: (size, what spin must complain about)
    "BUG_FORGETS_LANDED": ("-DDEATHS=1 -DCHUNKS=2", TWICE),
    "BUG_NEW_NUMBER": ("-DDEATHS=1 -DCHUNKS=2", TWICE),
    "BUG_OLD_GENERATION": ("-DDEATHS=1 -DCHUNKS=2", NOT_LANDED),
    "BUG_FORMER_OWNER": ("-DDEATHS=1 -DCHUNKS=2", TWICE),
    "BUG_FLUSH_EARLY": ("-DDEATHS=1 -DCHUNKS=2", r"applied\[2\]"),
    "BUG_NO_REPLAY": ("-DDEATHS=1 -DCHUNKS=1", STUCK),
    "BUG_STALE_OWNER": ("-DDEATHS=1 -DCHUNKS=1", NOT_LANDED),
    "BUG_STALE_LEAD": ("-DDEATHS=1 -DCHUNKS=1 -DENVELOPES=2", STUCK),
    "BUG_GAP_IS_ERROR": ("-DDEATHS=1 -DCHUNKS=1 -DENVELOPES=2", r"n<=\(envelopes"),
    "BUG_TOLD_ONCE": ("-DDEATHS=1 -DCHUNKS=1", STUCK),
    "BUG_SINK_NOT_COUNTED": ("-DDEATHS=1 -DCHUNKS=2", STUCK),
    "BUG_NO_WINDOW": ("-DDEATHS=1 -DCHUNKS=3", r"n<=\(landed_all"),
    "BUG_TAKEN_BACK": ("-DDEATHS=1 -DCHUNKS=2", r"taken\["),
    "BUG_HELD_BLOCKS": ("-DDEATHS=1 -DCHUNKS=1", STUCK),
    "BUG_WITHDRAWN_GAP": ("-DDEATHS=1 -DCHUNKS=2 -DWITHDRAWS", STUCK),
    "BUG_ASKED_TWICE": ("-DDEATHS=1 -DCHUNKS=1 -DUSER_LAGS", "matched"),
    "BUG_UNPLACES_NEXT": ("-DDEATHS=1 -DCHUNKS=2 -DUSER_LAGS", STUCK),
    "BUG_GHOST_COUNTS": ("-DDEATHS=1 -DCHUNKS=2 -DOVERTAKES=1", NOT_LANDED),
    "BUG_SAME_EPOCH": ("-DDEATHS=1 -DCHUNKS=2 -DOVERTAKES=1", NOT_LANDED),
}

VERDICTS_SOUND = {
    "two crashes": "-DCRASHES=2",
    "two crashes, a chain": "-DCRASHES=2 -DFAN=1",
    "two crashes, a star": "-DCRASHES=2 -DFAN=3",
    "three crashes": "-DCRASHES=3",
    "two crashes, told backwards": "-DCRASHES=2 -DBACKWARDS",
    "a star, told backwards": "-DCRASHES=2 -DFAN=3 -DBACKWARDS",
    "three crashes, told backwards": "-DCRASHES=3 -DBACKWARDS",
    "two crashes, one is slow": "-DCRASHES=2 -DSLOW=1",
    "one crash, two are slow": "-DCRASHES=1 -DSLOW=2",
    "one crash, one closes": "-DCRASHES=1 -DCLOSES=1",
    "two close": "-DCRASHES=0 -DCLOSES=2",
}
VERDICTS_DEEP = {
    "five ranks, a crash": "-DRANKS=5 -DCRASHES=1",
    "two crashes, one closes": "-DCRASHES=2 -DCLOSES=1",
}
UNHEARD_OF = r"==ended"
ALIVE = r"assertion violated  !\( !"
VERDICTS_PLANTED = {
    "BUG_NUMBERS_ANEW": ("-DCRASHES=2", r"given\["),
    "BUG_SAID_ONCE": ("-DCRASHES=2", UNHEARD_OF),
    "BUG_FORGETS_KEPT": ("-DCRASHES=2", UNHEARD_OF),
    "BUG_NOT_TOLD_BELOW": ("-DCRASHES=2", UNHEARD_OF),
    "BUG_JUDGES_UNHEARD": ("-DCRASHES=2", r"number_of\["),
    "BUG_SPOKEN_IS_TOLD": ("-DCRASHES=2 -DBACKWARDS", r"number_of\["),
    "BUG_NEWS_KEPT": ("-DCRASHES=1 -DCLOSES=1", UNHEARD_OF),
    "BUG_UNHEARD_IS_DEAD": ("-DCRASHES=1 -DSLOW=2", ALIVE),
    "BUG_ADOPTS_TWICE": ("-DCRASHES=1 -DSLOW=1", ALIVE + r"|kept\["),
}

# circles: the size in which it is shown that nothing goes in a circle, and spin's options for it
Model = collections.namedtuple("Model", "path sound deep planted circles flags optimise")
MODELS = {
    "lanes": Model(HERE / "lanes.pml", LANES_SOUND, LANES_DEEP, LANES_PLANTED,
                   ("-DDEATHS=1 -DCHUNKS=2", "-DNOFAIR", "-l"), (), "-O2"),
    "verdicts": Model(HERE / "verdicts.pml", VERDICTS_SOUND, VERDICTS_DEEP, VERDICTS_PLANTED,
                      # who waits for another's move does not wait while it moves: hence fair
                      ("-DCRASHES=2", "-DNFAIR=6", "-l", "-f"), ("-DCOLLAPSE", "-DVECTORSZ=4096"), "-O0"),
}


def call(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=RUN_S)
    return done.returncode, done.stdout + done.stderr


def build(folder, model, defines, *flags):
    for command in (["spin", *defines.split(), "-a", model.path],
                    [CC, "-w", "-DMEMLIM=%d" % MEMORY_MB, *model.flags, *flags, "-o", "pan", "pan.c"]):
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


def search(model, defines, flags, *options):
    with tempfile.TemporaryDirectory() as folder:
        build(folder, model, defines, *flags)
        return call(["./pan", "-m50000", *options], folder)[1]


def check_sound(model, name, defines, flags=("-DSAFETY", "-DNOFAIR"), options=("-w24",)):
    text = search(model, defines, (model.optimise, *flags), *options)
    found = complaint(text)
    print("%-8s%-32s%10s states %7s s  %s" % (
        "WRONG" if found else "sound", name, number(r"(\S+) states, stored", text),
        number(r"elapsed time (\S+)", text), found or ""), flush=True)
    return found is None


def options_for(expected):
    # Many mistakes also stop everything somewhere: not to be taken for what they must show.
    return [] if expected == STUCK else ["-E"]


def check_planted(model, name, size, expected):
    text = search(model, "-D%s %s" % (name, size), ("-O0", "-DSAFETY", "-DNOFAIR"), "-w20",
                  *options_for(expected))
    found = complaint(text)
    is_found = found is not None and re.search(expected, found) is not None
    print("%-8s%-32s%s" % ("found" if is_found else "MISSED", name, found or ""), flush=True)
    return is_found


def show_trail(model, name):
    size, expected = model.planted[name]
    defines = "-D%s %s" % (name, size)
    with tempfile.TemporaryDirectory() as folder:
        build(folder, model, defines, "-O2", "-DSAFETY", "-DNOFAIR", "-DREACH")
        call(["./pan", "-w22", "-m150", "-i", *options_for(expected)], folder)
        trail = next(pathlib.Path(folder).glob("*.trail"))
        print(call(["spin", *defines.split(), "-B", "-k", trail, model.path], folder)[1])


def check_all(model, is_deep):
    in_model = set(re.findall(r"BUG_[A-Z_]*[A-Z]", model.path.read_text()))
    if in_model != set(model.planted):
        sys.exit("in %s or here, not in both: %s" % (
            model.path.name, ", ".join(in_model ^ set(model.planted))))
    sizes = {**model.sound, **model.deep} if is_deep else model.sound
    results = [check_sound(model, name, defines) for name, defines in sizes.items()]
    size, fair, *options = model.circles
    results.append(check_sound(model, "nothing goes in a circle", size, ("-DNP", fair), options))
    results += [check_planted(model, name, *planted) for name, planted in model.planted.items()]
    return all(results)


def main(arguments):
    for tool, is_there in (("spin", shutil.which("spin")), ("a C compiler", CC)):
        if not is_there:
            print("skipped: %s is not installed" % tool)
            return 77
    model = MODELS.get(arguments[0]) if arguments else None
    options = arguments[1:]
    if model and len(options) == 2 and options[0] == "--trail" and options[1] in model.planted:
        show_trail(model, options[1])
        return 0
    if not model or options not in ([], ["--deep"]):
        sys.exit(__doc__)
    return 0 if check_all(model, options == ["--deep"]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
