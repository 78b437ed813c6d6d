#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy on the project's C files, two at a time, and remembers which were clean.

tidy.py BUILD_DIR [--deep]   BUILD_DIR holds compile_commands.json; stamps go to build/lint/

The analyzer, which takes ten times as long as all the rest, walks the tests only with --deep.

A file is clean until it, a header it includes, its compile command, .clang-tidy or clang-tidy itself
changes: the stamp is a hash over all of them.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
STAMPS = ROOT / "build" / "lint"


def options_for(name, is_deep):
    is_walked = is_deep or not name.startswith("tests/")
    return [] if is_walked else ["--checks=-clang-analyzer-*"]


def stamp_of(entry, version, options):
    """A hash over everything that clang-tidy's answer depends on."""
    command = shlex.split(entry["command"])
    preprocess = [word for word in command if word != "-c"]
    at = preprocess.index("-o")
    del preprocess[at : at + 2]
    rule = subprocess.run(
        preprocess + ["-MM"], cwd=entry["directory"], capture_output=True, text=True, check=True
    ).stdout
    files = rule.split(":", 1)[1].replace("\\\n", " ").split()
    digest = hashlib.sha256(" ".join([version, entry["command"]] + options).encode())
    for name in [ROOT / ".clang-tidy"] + files:
        digest.update((pathlib.Path(entry["directory"]) / name).read_bytes())
    return digest.hexdigest()


def tidy(entry, build, version, is_deep):
    """(file, complaints), complaints being None for a clean file."""
    name = pathlib.Path(entry["file"]).relative_to(ROOT).as_posix()
    options = options_for(name, is_deep)
    try:
        stamp = STAMPS / stamp_of(entry, version, options)
    except subprocess.CalledProcessError as error:
        return name, error.stderr
    if stamp.exists():
        return name, None
    done = subprocess.run(
        ["clang-tidy", "--quiet", "-p", build] + options + [entry["file"]],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        return name, done.stdout + done.stderr
    stamp.touch()
    return name, None


def main():
    build = sys.argv[1]
    is_deep = "--deep" in sys.argv[2:]
    entries = json.loads((pathlib.Path(build) / "compile_commands.json").read_text())
    version = subprocess.run(
        ["clang-tidy", "--version"], capture_output=True, text=True, check=True
    ).stdout
    STAMPS.mkdir(parents=True, exist_ok=True)
    workers = int(os.environ.get("JOBS", "2"))
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for name, complaints in pool.map(
            lambda entry: tidy(entry, build, version, is_deep), entries
        ):
            if complaints is not None:
                bad += 1
                print(f"== {name}\n{complaints}")
    print(f"tidy: {bad} of {len(entries)} files have complaints" if bad else "tidy: fine")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
