# SPDX-License-Identifier: Apache-2.0
"""How bench/compare.py runs one cell with each program. A peer's job (bench/peers) is started once
and asked cell by cell; between orders all its ranks sleep. Weft is `weft bench`, started for each
cell. Every answer has a deadline; nothing outlives this process."""
import collections
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

import compare_peers
from compare_peers import Failed, clean_env, die_with_us

HERE = os.path.dirname(os.path.abspath(__file__))
START_S = 30
CELL_S = 60
OPEN_MPI = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
            "--mca", "pml", "ob1"]
OVER_SHM = {"btl": "vader,self"}
OVER_TCP = {"btl": "tcp,self", "btl_tcp_if_include": "lo", "oob_tcp_if_include": "lo"}
# Ways of one library to do the same: the best one counts.
MPI_WAYS = {"reduce_scatter": ["reduce_scatter", "reduce_scatter_v"]}
GLOO_WAYS = {"allreduce": ["allreduce", "allreduce_bcube", "allreduce_hd"]}

# what a program says of one cell; µs
Answer = collections.namedtuple("Answer", "us p99 bytes more")


class Job:
    """One running job of a peer, which waits for orders."""

    def __init__(self, argv_of, env):
        self.folder = tempfile.mkdtemp(prefix="weft-compare-")
        self.errors = open(os.path.join(self.folder, "stderr"), "w+", encoding="utf-8",
                           errors="replace")
        shared = os.path.join(self.folder, "shared")
        open(shared, "w", encoding="ascii").close()
        self.child = subprocess.Popen(
            argv_of(shared, self.folder), env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.errors, start_new_session=True, preexec_fn=die_with_us)
        self.said = b""
        self.is_sick = False

    def wait_line(self, deadline_s):
        end = time.monotonic() + deadline_s
        out = self.child.stdout.fileno()
        while b"\n" not in self.said:
            left = end - time.monotonic()
            if left <= 0 or not select.select([out], [], [], left)[0]:
                self.is_sick = True
                raise Failed("no answer within %d s" % deadline_s)
            part = os.read(out, 4096)
            if not part:
                raise Failed("ended: %s" % self.last_error())
            self.said += part
        line, self.said = self.said.split(b"\n", 1)
        return line.decode()

    def ask(self, way, count, time_ms, mode, deadline_s=CELL_S):
        try:
            self.child.stdin.write(("%s %d %g %s\n" % (way, count, time_ms, mode)).encode())
            self.child.stdin.flush()
        except BrokenPipeError:
            raise Failed("ended: %s" % self.last_error()) from None
        words = self.wait_line(deadline_s).split()
        if len(words) < 9 or words[0] != way:
            raise Failed("said \"%s\"" % " ".join(words))
        if int(words[8]):
            raise Failed("%s elements are wrong" % words[8])
        return Answer(float(words[3]), float(words[4]), int(words[2]), {})

    def last_error(self):
        self.errors.flush()
        self.errors.seek(0)
        lines = [line.strip() for line in self.errors if line.strip(" -\n")]
        return lines[-1] if lines else "without words"

    def close(self):
        """The ranks end with their stdin; who does not, or has not answered, is ended by its launcher,
        then killed."""
        try:
            self.child.stdin.close()
        except BrokenPipeError:
            pass
        for send in (signal.SIGTERM if self.is_sick else None, signal.SIGTERM, signal.SIGKILL):
            if send and self.child.poll() is None:
                os.killpg(self.child.pid, send)
            try:
                self.child.wait(5)
                break
            except subprocess.TimeoutExpired:
                pass
        self.child.stdout.close()
        self.errors.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Peer:
    """One library over one path. argv_of(ranks, shared file, folder) is its command line."""

    def __init__(self, name, path, control, ways, argv_of, env=None):
        self.name, self.path, self.control, self.ways = name, path, control, ways
        self.argv_of, self.env = argv_of, clean_env(**(env or {}))
        self.job = None

    def ways_of(self, op):
        return self.ways.get(op, [op])

    def can(self, cell):
        return cell.path == self.path

    def open(self, ranks):
        self.job = Job(lambda shared, folder: self.argv_of(ranks, shared, folder), self.env)

    def await_open(self):
        """It answers: from now on it sleeps until asked."""
        try:
            self.job.ask("hello", 0, 0, "batch", START_S)
        except Failed as error:
            if "hello no" not in str(error):
                self.close()
                raise

    def run(self, cell, way, time_ms, mode="batch"):
        if self.job is None:
            raise Failed("is not running")
        try:
            return self.job.ask(way, cell.bytes, time_ms, mode)
        except Failed:
            self.close()  # whatever it does now, it must not disturb the others
            raise

    def close(self):
        if self.job:
            self.job.close()
        self.job = None


class Weft:
    """With the user's own buffers ("private") or with those of weft_alloc() ("shared")."""

    def __init__(self, command, path, alloc):
        self.command, self.path, self.alloc = command, path, alloc
        self.name = "weft alloc" if alloc == "shared" else "weft"
        self.control = None

    def ways_of(self, op):
        return [op]

    def can(self, cell):
        return cell.path == self.path and not (cell.op == "barrier" and self.alloc == "shared")

    def run(self, cell, way, time_ms, mode="batch"):
        argv = [self.command, "bench", way, "-n", str(cell.ranks), "--path", self.path, "--alloc",
                self.alloc, "--time", "%gms" % time_ms, "--json"]
        if way != "barrier":
            # MPI_Bcast and Gloo's have one buffer per rank
            argv += ["-b", str(cell.bytes), "-e", str(cell.bytes),
                     "--inplace" if way == "broadcast" else "--outplace"]
        argv += ["--single"] if mode == "single" else []
        found = json.loads(compare_peers.finish(compare_peers.start(argv), CELL_S))
        row = found["results"][0]
        more = {key: row.get(key) for key in ("limit_us", "limit_pct", "floor_gbs", "algo",
                                              "cpu_s_per_gb", "copies_per_byte", "probe_ns")}
        return Answer(row["time_us"]["p50"], row["time_us"]["p99"], row["bytes"], more)


# ---- what is here ----

class Programs:
    """runners: Weft (unless has_weft is false) and the peers of this machine; skipped: {peer: why}."""

    def __init__(self, weft, build, paths, cubic_too, say):
        self.weft, self.build, self.paths, self.say = weft, build, paths, say
        self.cubic_too = cubic_too
        self.skipped = {}
        self.runners = []
        self.cubic = compare_peers.Cubic()

    def __enter__(self):
        try:
            os.makedirs(self.build, exist_ok=True)
            self.prober = self.compile("flag_probe", "flag_probe.c", ["cc", "-std=gnu11", "-D_GNU_SOURCE="])
            for path in self.paths:
                if self.weft:
                    self.runners.append(Weft(self.weft, path, "private"))
                if self.weft and path == "shm":
                    self.runners.append(Weft(self.weft, path, "shared"))
            self.controls = self.find_controls()
            self.add_open_mpi()
            self.add_mpich()
            self.add_gloo()
        except BaseException:
            self.cubic.close()
            raise
        return self

    def __exit__(self, *unused):
        self.close_all()
        self.cubic.close()

    def close_all(self):
        for runner in self.runners:
            if isinstance(runner, Peer):
                runner.close()

    def skip(self, who, why):
        self.skipped[who] = why
        self.say("skipped: %s: %s" % (who, why))

    def find_controls(self):
        """[(congestion control, what goes in front of a command)]"""
        system = compare_peers.system_congestion_control()
        found = [(system, [])]
        if "tcp" in self.paths and self.cubic_too and system != "cubic":
            why = self.cubic.open()
            if why:
                self.skip("peers under cubic", why)
            else:
                found.append(("cubic", self.cubic.where))
        return found

    def compile(self, program, source, compiler, more=()):
        """The program's path; made again only when a source is newer."""
        target = os.path.join(self.build, program)
        sources = [os.path.join(HERE, source), os.path.join(HERE, "peers", "peer.h")]
        if not os.path.exists(target) or \
           any(os.path.getmtime(name) > os.path.getmtime(target) for name in sources):
            self.say("compiling %s" % program)
            subprocess.run(compiler + ["-O3", "-march=native", "-Wall", "-Wextra", sources[0], "-o",
                                       target, *more], check=True)
        return target

    def has(self, who, program, package):
        if shutil.which(program):
            return True
        self.skip(who, "no %s here; package %s" % (program, package))
        return False

    def add_open_mpi(self):
        if not self.has("openmpi", "mpirun.openmpi", "openmpi-bin") or \
           not self.has("openmpi", "mpicc.openmpi", "libopenmpi-dev"):
            return
        program = self.compile("mpi_coll.openmpi", "peers/mpi_coll.c", ["mpicc.openmpi", "-std=gnu11"])

        def add(name, path, control, where, settings, yields):
            argv = where + OPEN_MPI + ["--mca", "mpi_yield_when_idle", "1" if yields else "0"]
            for key, value in settings.items():
                argv += ["--mca", key, value]
            self.runners.append(Peer(name, path, control, MPI_WAYS,
                                     lambda ranks, shared, _: argv + ["-np", str(ranks), program,
                                                                      shared]))
        for path in self.paths:
            if path == "shm":
                add("openmpi", path, None, [], OVER_SHM, True)
                add("openmpi spin", path, None, [], OVER_SHM, False)
            else:
                for control, where in self.controls:
                    add("openmpi " + control, path, control, where, OVER_TCP, True)

    def add_mpich(self):
        if not self.has("mpich", "mpirun.mpich", "mpich") or \
           not self.has("mpich", "mpicc.mpich", "libmpich-dev"):
            return
        program = self.compile("mpi_coll.mpich", "peers/mpi_coll.c", ["mpicc.mpich", "-std=gnu11"])

        def add(name, path, control, where, env):
            self.runners.append(Peer(
                name, path, control, MPI_WAYS, lambda ranks, shared, _: where + [
                    "mpirun.mpich", "-np", str(ranks), program, shared], env))
        for path in self.paths:
            if path == "shm":
                add("mpich", path, None, [], {})
            else:
                for control, where in self.controls:
                    add("mpich " + control, path, control, where,
                        {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"})

    def add_gloo(self):
        if "tcp" not in self.paths or not self.has("gloo", "g++", "g++"):
            return
        try:
            program = self.compile("gloo_coll", "peers/gloo_coll.cc", ["g++", "-std=c++17"],
                                   ["-lgloo", "-lpthread"])
        except subprocess.CalledProcessError:
            self.skip("gloo", "gloo_coll.cc does not compile; package libgloo-dev")
            return
        for control, where in self.controls:
            self.add_one_gloo(program, control, where)

    def add_one_gloo(self, program, control, where):
        def argv_of(ranks, shared, folder):
            store = os.path.join(folder, "store")
            os.mkdir(store)
            return where + [program, str(ranks), shared, store]
        self.runners.append(Peer("gloo " + control, "tcp", control, GLOO_WAYS, argv_of))

    def probe(self):
        """ns of a flag between two cores; None: a core was not to be had."""
        try:
            return float(compare_peers.finish(compare_peers.start([self.prober]), 10))
        except (Failed, ValueError):
            return None
