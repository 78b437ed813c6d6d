# SPDX-License-Identifier: Apache-2.0
"""The front of python -m weft.bench: options, and ranks of this host when no launcher has started any."""
import argparse
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time

from . import measure, show

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
LAUNCHED = ("WEFT_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "RANK")  # any of them: we are a rank
FOREIGN = re.compile(r"^(OMPI_|PMIX_|PMI_|SLURM_|TORCHELASTIC_|MASTER_|RANK$|WORLD_SIZE$|LOCAL_RANK$)")
GRACE_S = 5  # for the other ranks to say why, once one has failed

EXAMPLES = """examples:
  python -m weft.bench                                  allreduce of two ranks, 8 bytes to 64 MB
  python -m weft.bench allreduce alltoall -n 2,4 -b 1K -e 16M -f 16
  python -m weft.bench overhead                         what Python adds to one call
  srun -N 4 python -m weft.bench --json                 as the ranks of a job"""


def size_of(text):
    """4, 4K, 4M, 4G: binary."""
    found = re.fullmatch(r"(\d+)([KMG]?)B?", text.strip().upper())
    if not found:
        raise argparse.ArgumentTypeError("%r is no size; as 8, 64K or 16M" % text)
    return int(found.group(1)) * UNITS[found.group(2)]


def ranks_of(text):
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = [0]
    if min(counts) < 1:
        raise argparse.ArgumentTypeError("%r is no number of ranks, or list of such" % text)
    return counts


def parse(arguments):
    parser = argparse.ArgumentParser(prog="python -m weft.bench", epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     description="Times Weft's collectives as Python programs call them, and Gloo's "
                                     "(through torch, if installed) alternately in the same processes. Results are "
                                     "checked. The slowest rank counts.")
    parser.add_argument("ops", nargs="*", default=["allreduce"], metavar="OP",
                        help="%s; or overhead (allreduce)" % ", ".join(measure.OPS))
    parser.add_argument("-n", "--ranks", type=ranks_of, help="how many ranks; a list runs each (2, or the job's)")
    parser.add_argument("-b", "--minbytes", type=size_of, default=8, help="smallest buffer (8)")
    parser.add_argument("-e", "--maxbytes", type=size_of, default=64 << 20, help="largest buffer (64M)")
    parser.add_argument("-f", "--stepfactor", type=int, default=8, help="from one size to the next (8)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each size is timed, all in turn (5)")
    parser.add_argument("--time", type=float, default=0.05, help="seconds of one timing, about (0.05)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args(arguments)
    wrong = [op for op in options.ops if op not in measure.OPS and op != "overhead"]
    if wrong:
        parser.error("there is no %s; there are %s, overhead" % (wrong[0], ", ".join(measure.OPS)))
    if options.stepfactor < 2 or options.rounds < 1 or options.minbytes > options.maxbytes:
        parser.error("sizes must grow (-f 2 or more, -b not above -e), and there is at least one round")
    return options


def start(ranks, arguments, secret, output):
    """That many ranks of this program, with a secret that only this user can read."""
    env = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
    env.update(WEFT_RANKS=str(ranks), WEFT_LOCAL_RANKS=str(ranks), WEFT_SECRET_FILE=secret,
               WEFT_JOB="bench-%d-%d" % (os.getpid(), ranks))
    return [subprocess.Popen([sys.executable, "-m", "weft.bench", "--as-rank", output] + arguments,
                             env=dict(env, WEFT_RANK=str(rank))) for rank in range(ranks)]


def await_all(children):
    """0 when all ended well. When one fails the others have a moment to say why, then they are ended."""
    end = None
    try:
        while any(child.poll() is None for child in children):
            if end is None and any(child.returncode for child in children):
                end = time.monotonic() + GRACE_S
            if end is not None and time.monotonic() > end:
                break
            time.sleep(0.01)
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
            child.wait()
    return int(any(child.returncode for child in children))


def run_here(options, arguments):
    """Starts the ranks of each number asked for, one after the other; their results are read from files."""
    reports = []
    with tempfile.TemporaryDirectory() as folder:
        secret = os.path.join(folder, "secret")
        with open(os.open(secret, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(secrets.token_hex(32) + "\n")
        for ranks in options.ranks or [2]:
            output = os.path.join(folder, "%d.json" % ranks)
            if await_all(start(ranks, arguments, secret, output)) != 0:
                return 1
            reports.append(show.read(output))
    return show.finish(options, reports)


def be_rank(options, output):
    """A rank of a job: the launcher's, or of run_here(), which wants the results in a file."""
    report = measure.run(options)
    if report is None:  # rank 0 has them
        return 0
    if output:
        show.write(output, report)
        return 0
    return show.finish(options, [report])


def main(arguments):
    output = None
    if arguments[:1] == ["--as-rank"]:
        output, arguments = arguments[1], arguments[2:]
    options = parse(arguments)
    if output or (options.ranks is None and any(name in os.environ for name in LAUNCHED)):
        return be_rank(options, output)
    return run_here(options, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
