# SPDX-License-Identifier: Apache-2.0
"""Ranks for the tests of this folder. A test file holds both sides: TestCases, and functions that a rank runs with its
communicator. `launch(3, function)` starts three ranks of the same file under `weft run`; every file ends in main()."""
import os
import re
import subprocess
import sys
import threading
import time
import unittest

SKIPPED = 77  # ctest's SKIP_RETURN_CODE
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
CLI = os.environ.get("WEFT_CLI", os.path.join(ROOT, "build", "release", "bin", "weft"))
DEADLINE_S = 100  # of one job, on a machine that is busy with others too
LAUNCHERS = re.compile(r"^(WEFT_(?!LIBRARY|CLI)|OMPI_|PMIX_|PMI_|SLURM_|TORCHELASTIC_|MASTER_|RANK$|WORLD_SIZE$|"
                       r"LOCAL_)")

try:
    import numpy
except ImportError:
    numpy = None


def clean_env(**more):
    """This process's environment without what a launcher may have said."""
    env = {name: value for name, value in os.environ.items() if not LAUNCHERS.match(name)}
    env.update(WEFT_TIMEOUT="60s", WEFT_START_TIMEOUT="60s", XDG_CONFIG_HOME="/nonexistent", OMP_NUM_THREADS="1")
    env.update({name: str(value) for name, value in more.items()})
    return env


def command(function, *arguments):
    """What a rank runs."""
    file = os.path.abspath(sys.modules[function.__module__].__file__)
    return [sys.executable, "-B", "-W", "error", file, "--rank", function.__name__, *map(str, arguments)]


def launch(ranks, function, *arguments, **variables):
    """The finished `weft run` of that many ranks of a function; stdout has everything that was said."""
    return subprocess.run([CLI, "run", "-n", str(ranks), "--", *command(function, *arguments)],
                          env=clean_env(**variables), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True, timeout=DEADLINE_S)


class RankCase(unittest.TestCase):
    """A test whose ranks say "fine" when they are."""

    def run_ranks(self, ranks, function, *arguments, **variables):
        job = launch(ranks, function, *arguments, **variables)
        self.assertEqual((job.returncode, job.stdout.count("fine\n")), (0, ranks), job.stdout)
        return job.stdout


def assert_raises(kind, action, *texts, **attributes):
    """action() raises exactly this kind of error, which has these attributes, and every text is in its words."""
    try:
        action()
    except kind as error:
        for text in texts:
            assert text in str(error), "%r is not in: %s" % (text, error)
        for name, value in attributes.items():
            assert getattr(error, name) == value, "%s is %r: %s" % (name, getattr(error, name), error)
        return error
    raise AssertionError("%s was not raised" % kind.__name__)


def in_thread(action):
    """What action() gave or raised in a thread of its own."""
    outcome = []

    def work():
        try:
            outcome.append(action())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(DEADLINE_S)
    assert outcome, "the thread did not come back"
    return outcome[0]


def wait_until(is_so):
    end = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.001)


def say_fine():
    os.write(1, b"fine\n")  # one write: lines of several ranks do not mix


def main(names):
    """A rank runs the function it was told, everybody else the tests."""
    if numpy is None:
        print("numpy is missing: skipped")
        sys.exit(SKIPPED)
    if sys.argv[1:2] != ["--rank"]:
        unittest.main()
    function, arguments = names[sys.argv[2]], sys.argv[3:]
    if function.__name__.startswith("alone"):  # makes its communicator itself
        function(*arguments)
        return
    import weft

    with weft.init() as comm:
        function(comm, *arguments)
        say_fine()
