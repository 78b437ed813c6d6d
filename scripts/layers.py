#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every file of src/, cli/ and plugins/ includes only what scripts/layers.txt allows.

layers.py [ROOT]       prints each forbidden include as file:line: reason; exit status 1 if any
layers.py --self-test  plants forbidden includes in a made-up tree; fails if one is not found
"""

import pathlib
import re
import sys
import tempfile

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
OPEN_TO_ALL = {"base": set(), "watch": {"base"}}  # and what these themselves may include


def read_table(path):
    table = {}
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            room, _, allowed = line.partition(":")
            table[room.strip()] = set(allowed.split())
    return table


def resolve(root, file, include):
    """The included file, relative to src/ (or to the root for cli/ and plugins/); None if there is none."""
    for base in (root / "src", root / "include", root, file.parent):
        path = (base / include).resolve()
        if path.is_file():
            for top in (root / "src", root / "include", root):
                if path.is_relative_to(top.resolve()):
                    return path.relative_to(top.resolve())
    return None


def complaint(table, room, target):
    """Why files of `room` may not include `target`, or None."""
    other = target.parts[0]
    if other in (room, "weft"):
        return None
    allowed = table[room] | (OPEN_TO_ALL[room] if room in OPEN_TO_ALL else set(OPEN_TO_ALL))
    if target.as_posix() in allowed:
        return None
    if other not in allowed:
        return f"{room} may not know {other}"
    if target.as_posix() == f"{other}/{other}.h":
        return None
    return f"{target} is private to {other}"


def check(root, table):
    found = []
    files = [file for top in ("src", "cli", "plugins") for file in sorted((root / top).rglob("*.[ch]"))]
    for file in files:
        parts = file.relative_to(root).parts
        room = parts[1] if parts[0] == "src" else parts[0]
        if room not in table:
            found.append(f"{file.relative_to(root)}:1: room {room} is not in scripts/layers.txt")
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            target = resolve(root, file, match.group(1))
            reason = complaint(table, room, target) if target else "there is no such file"
            if reason:
                found.append(f"{file.relative_to(root)}:{number}: {match.group(1)}: {reason}")
    return found


# file, text, what must be said about it (None: nothing)
PLANTED = [
    ("include/weft/weft.h", "", None),
    ("src/base/base.h", "", None),
    ("src/watch/watch.h", '#include "base/base.h"', None),
    ("src/wire/wire.h", '#include "base/base.h"', None),
    ("src/wire/bytes.h", "", None),
    ("src/engine/engine.h", "", None),
    ("src/comm/comm.h", '#include "weft/weft.h"', None),
    ("src/wire/good.c", '#include "wire/bytes.h"\n#include "watch/watch.h"', None),
    ("src/net/good.c", '#include "wire/wire.h"\n#include <net/if.h>', None),
    ("src/base/up.c", '#include "watch/watch.h"', "base may not know watch"),
    ("src/wire/up.c", '# include "engine/engine.h"', "wire may not know engine"),
    ("src/wire/dots.c", '#include "../engine/engine.h"', "wire may not know engine"),
    ("src/net/private.c", '#include "wire/bytes.h"', "wire/bytes.h is private to wire"),
    ("src/net/above.c", '\n#include "comm/comm.h"', "net may not know comm"),
    ("src/net/ghost.c", '#include "net/ghost.h"', "there is no such file"),
    ("src/attic/attic.c", "", "room attic is not in scripts/layers.txt"),
    ("cli/cli.h", '#include "comm/comm.h"', None),
    ("cli/deep.c", '#include "engine/engine.h"', "cli may not know engine"),
    ("plugins/nccl-net/good.c", '#include "engine/engine.h"', None),
    ("plugins/nccl-net/above.c", '#include "comm/comm.h"', "plugins may not know comm"),
]


def self_test(table):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text, _ in PLANTED:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text + "\n")
        said = check(root, table)
    wrong = []
    for name, _, reason in PLANTED:
        about = [line for line in said if line.startswith(name + ":")]
        expected = 0 if reason is None else 1
        if len(about) != expected or (reason and not about[0].endswith(reason)):
            wrong.append(f"{name}: expected {reason!r}, said {about}")
    return wrong


def main():
    here = pathlib.Path(__file__).resolve().parent
    table = read_table(here / "layers.txt")
    if sys.argv[1:] == ["--self-test"]:
        problems = self_test(table)
    else:
        problems = check(pathlib.Path(sys.argv[1]) if sys.argv[1:] else here.parent, table)
    print("\n".join(problems) if problems else "layers: fine")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
