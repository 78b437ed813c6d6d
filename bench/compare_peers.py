# SPDX-License-Identifier: Apache-2.0
"""How bench/compare_p2p.py starts each program for one cell and reads its figure. Every start has a
deadline; nothing outlives this process; what is missing on this machine is said and left out."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests", "net"))
from ranks import clean_env, die_with_us  # noqa: E402

WEFTS = ["weft", "weft alloc"]  # user memory, weft_alloc()
DEADLINE_S = 120
MIB_GB = (1 << 20) / 1e9  # ucx_perftest's megabytes are binary


class Failed(Exception):
    """A start that gave no figure; the text says why."""


def is_latency(cell):
    return cell.op.endswith(("lat", "flush"))


def finish(child, deadline_s=DEADLINE_S):
    """The child's stdout. It and what it started are killed at the deadline."""
    try:
        out, err = child.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        raise Failed("%s: not done within %d s" % (child.args[0], deadline_s)) from None
    if child.returncode != 0:
        last = (err.strip() or out.strip() or "no words").splitlines()[-1]
        raise Failed("exit status %d: %s" % (child.returncode, last))
    return out


def start(argv, env=None):
    return subprocess.Popen(argv, env=env or clean_env(), stdin=subprocess.DEVNULL, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, errors="replace",
                            start_new_session=True, preexec_fn=die_with_us)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def await_listener(where, server, port):
    """Looks, and does not connect: some servers take one client only."""
    end = time.monotonic() + 10
    while time.monotonic() < end and server.poll() is None:
        seen = subprocess.run(where + ["ss", "-tlnH", "sport", "=", ":%d" % port], check=False,
                              capture_output=True, text=True).stdout
        if seen.strip():
            return
        time.sleep(0.01)
    raise Failed("%s does not listen" % server.args[len(where)])


def serve_and_ask(where, server_argv, client_argv, port, env):
    """stdout of the client."""
    server = start(where + server_argv, env)
    try:
        await_listener(where, server, port)
        return finish(start(where + client_argv, env))
    finally:
        try:
            server.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.communicate()


# ---- programs ----

class Weft:
    OPS = {"lat": "lat", "bw": "bw", "put_lat": "put_quiet", "put_bw": "put_nbi",
           "put_flush": "put_quiet"}

    def __init__(self, command, alloc):
        self.command, self.alloc = command, alloc
        self.name = WEFTS[alloc == "shared"]

    def can(self, cell):
        return self.alloc == "private" or (cell.path == "shm" and cell.bytes > 4096)

    def run(self, cell):
        found = json.loads(finish(start([
            self.command, "bench", "p2p", "--json", "--mode", self.OPS[cell.op],
            "-b", str(cell.bytes), "-e", str(cell.bytes), "--iters", str(cell.iters),
            "--warmup", str(cell.warmup), "--inflight", str(cell.window), "--path", cell.path,
            "--alloc", self.alloc])))
        us = found["results"][0]["time_us"]
        return us["p50"] if is_latency(cell) else cell.bytes / us["avg"] / 1e3


class OpenMpi:
    """BTLs are named, so that nothing else (UCX) takes over."""

    def __init__(self, program, name, path, settings, where):
        self.program, self.path, self.settings, self.where = program, path, settings, where
        self.name = name

    def can(self, cell):
        return cell.path == self.path and cell.op in ("lat", "bw")

    def run(self, cell):
        argv = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                "--mca", "pml", "ob1", "--mca", "mpi_yield_when_idle", "0"]
        for key, value in self.settings.items():
            argv += ["--mca", key, value]
        argv += ["-n", "2", self.program, cell.op, str(cell.bytes), str(cell.iters),
                 str(cell.warmup), str(cell.window)]
        words = finish(start(self.where + argv)).split()
        if len(words) != 2:
            raise Failed("said \"%s\"" % " ".join(words))
        return float(words[0]) if cell.op == "lat" else cell.bytes / float(words[1]) / 1e3


def ucx_env(path, **more):
    env = clean_env(UCX_TLS="shm,self" if path == "shm" else "tcp,self",
                    UCX_WARN_UNUSED_ENV_VARS="n", **more)
    if path == "tcp":
        env["UCX_NET_DEVICES"] = "lo"
    return env


class Ucx:
    """ucx_perftest never writes what it sends: without the library in front its pages would all be
    the kernel's page of zeros, and its bandwidth that of a cache."""
    OPS = {"lat": "tag_lat", "bw": "tag_bw", "put_lat": "ucp_put_lat", "put_bw": "ucp_put_bw"}

    def __init__(self, name, path, where, real_memory):
        self.name, self.path, self.where, self.real_memory = name, path, where, real_memory

    def can(self, cell):
        return cell.path == self.path and cell.op in self.OPS

    def run(self, cell):
        port = free_port()
        env = ucx_env(self.path, LD_PRELOAD=self.real_memory)
        messages = cell.iters * cell.window  # ucx_perftest counts messages, not windows
        argv = ["ucx_perftest", "127.0.0.1", "-p", str(port), "-t", self.OPS[cell.op], "-s",
                str(cell.bytes), "-n", str(messages), "-w", str(cell.warmup * cell.window), "-f",
                "-v"]
        if cell.op.endswith("bw"):
            argv += ["-O", str(cell.window)]
        out = serve_and_ask(self.where, ["ucx_perftest", "-p", str(port)], argv, port, env)
        lines = out.strip().splitlines()
        if len(lines) < 2:
            raise Failed("said \"%s\"" % out.strip())
        found = dict(zip(lines[-2].split(","), lines[-1].split(",")))
        if is_latency(cell):
            return float(found["50.0_percentile_lat"])
        return float(found["overall_bw"]) * MIB_GB


class UcxPut:
    """A put with its flush, which ucx_perftest does not measure."""

    def __init__(self, program, name, where):
        self.program, self.name, self.where = program, name, where

    def can(self, cell):
        return cell.path == "tcp" and cell.op == "put_flush"

    def run(self, cell):
        out = finish(start(self.where + [self.program, str(cell.bytes), str(cell.iters),
                                         str(cell.warmup)], ucx_env("tcp")))
        try:
            return float(out)
        except ValueError:
            raise Failed("said \"%s\"" % out.strip()) from None


class FiPingpong:
    def __init__(self, provider, name, where):
        self.provider, self.name, self.where = provider, name, where

    def can(self, cell):
        return cell.path == "tcp" and cell.op == "lat"

    def run(self, cell):
        port = free_port()
        argv = ["fi_pingpong", "-p", self.provider, "-e", "msg", "-I", str(cell.iters), "-S",
                str(cell.bytes)]
        out = serve_and_ask(self.where, argv + ["-B", str(port)],
                            argv + ["-P", str(port), "127.0.0.1"], port, clean_env())
        lines = [line.split() for line in out.strip().splitlines()]
        if len(lines) < 2 or "usec/xfer" not in lines[-2]:
            raise Failed("said \"%s\"" % out.strip())
        return float(lines[-1][lines[-2].index("usec/xfer")])


class Iperf:
    """One stream of 1 MiB writes; it knows no messages, so it stands for the longest ones."""

    def __init__(self, name, where):
        self.name, self.where = name, where

    def can(self, cell):
        return cell.path == "tcp" and cell.op == "bw" and cell.bytes >= 64 << 20

    def run(self, cell):
        port = free_port()
        total = cell.bytes * cell.window * cell.iters
        out = serve_and_ask(
            self.where, ["iperf3", "-s", "-1", "-p", str(port)],
            ["iperf3", "-c", "127.0.0.1", "-p", str(port), "-n", str(total), "-l", "1M", "-J"],
            port, clean_env())
        return json.loads(out)["end"]["sum_received"]["bits_per_second"] / 8e9


# ---- under another congestion control ----

class Cubic:
    """A network namespace whose loopback routes say cubic. It has no name: it is held by a process
    that ends with its stdin, so it goes when we do, whatever happens."""
    ASK = ("import socket; a = socket.create_server(('127.0.0.1', 0)); "
           "b = socket.create_connection(a.getsockname()); c = a.accept()[0]; "
           "print(*[s.getsockopt(6, socket.TCP_CONGESTION, 16).rstrip(b'\\0').decode() "
           "for s in (b, c)])")

    def __init__(self):
        self.keeper = None
        self.where = []

    def open(self):
        """None, or why there is none."""
        if os.geteuid() != 0:
            return "a namespace needs root"
        self.keeper = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       preexec_fn=die_with_us)
        end = time.monotonic() + 10
        while self.comm() != "cat":
            if self.keeper.poll() is not None or time.monotonic() > end:
                return "no network namespaces here"
            time.sleep(0.005)
        self.where = ["nsenter", "--target", str(self.keeper.pid), "--net"]
        route = ["ip", "route", "change", "local"]
        rest = ["dev", "lo", "table", "local", "proto", "kernel", "scope", "host", "src",
                "127.0.0.1", "congctl", "cubic"]
        for argv in (["ip", "link", "set", "lo", "up"], route + ["127.0.0.0/8"] + rest,
                     route + ["127.0.0.1"] + rest):
            done = subprocess.run(self.where + argv, check=False, capture_output=True, text=True)
            if done.returncode != 0:
                return "%s: %s" % (" ".join(argv), done.stderr.strip())
        got = subprocess.run(self.where + [sys.executable, "-c", self.ASK], check=False,
                             capture_output=True, text=True).stdout.split()
        return None if got == ["cubic", "cubic"] else "the route has no effect: %s" % got

    def comm(self):
        try:
            with open("/proc/%d/comm" % self.keeper.pid, encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""

    def close(self):
        if self.keeper:
            self.keeper.stdin.close()
            self.keeper.kill()
            self.keeper.wait()


def system_congestion_control():
    try:
        with open("/proc/sys/net/ipv4/tcp_congestion_control", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "system"


# ---- what is here ----

def pkg_config(*asked):
    return subprocess.run(["pkg-config", *asked], check=True, capture_output=True,
                          text=True).stdout.split()


class Peers:
    """runners: Weft and the peers of this machine; skipped: {peer: why}."""

    def __init__(self, weft, build, has_tcp, say):
        self.weft, self.build, self.has_tcp, self.say = weft, build, has_tcp, say
        self.skipped = {}
        self.runners = []
        self.cubic = Cubic()

    def __enter__(self):
        try:
            os.makedirs(self.build, exist_ok=True)
            self.prober = self.compile("cc", "flag_probe")
            self.runners = [Weft(self.weft, "private"), Weft(self.weft, "shared")]
            wheres = self.wheres() if self.has_tcp else []
            self.add_openmpi(wheres)
            self.add_ucx(wheres)
            self.add_others(wheres)
        except BaseException:
            self.cubic.close()
            raise
        return self

    def __exit__(self, *unused):
        self.cubic.close()

    def skip(self, who, why):
        self.skipped[who] = why
        self.say("skipped: %s: %s" % (who, why))

    def compile(self, compiler, name, *more):
        program = os.path.join(self.build, name)
        subprocess.run([compiler, "-std=gnu11", "-D_GNU_SOURCE=", "-O2", "-Wall", "-Wextra",
                        os.path.join(HERE, name + ".c"), "-o", program, *more], check=True)
        return program

    def wheres(self):
        """[(congestion control, what goes in front of a command)]"""
        found = [(system_congestion_control(), [])]
        if found[0][0] == "cubic":
            return found
        why = self.cubic.open()
        if why:
            self.skip("peers under cubic", why)
        else:
            found.append(("cubic", self.cubic.where))
        return found

    def has(self, program, package):
        if shutil.which(program):
            return True
        self.skip(program, "not here; package %s" % package)
        return False

    def add_openmpi(self, wheres):
        if not self.has("mpirun.openmpi", "openmpi-bin") or \
           not self.has("mpicc.openmpi", "libopenmpi-dev"):
            return
        program = self.compile("mpicc.openmpi", "mpi_p2p")
        for way in ("cma", "none"):
            self.runners.append(OpenMpi(
                program, "openmpi " + ("cma" if way == "cma" else "no cma"), "shm",
                {"btl": "self,vader", "btl_vader_single_copy_mechanism": way}, []))
        for control, where in wheres:
            self.runners.append(OpenMpi(
                program, "openmpi " + control, "tcp",
                {"btl": "self,tcp", "btl_tcp_if_include": "lo", "oob_tcp_if_include": "lo"}, where))

    def add_ucx(self, wheres):
        what = "pkg-config finds no ucx"
        try:
            cflags, libs = pkg_config("--cflags", "ucx"), pkg_config("--libs", "ucx")
            what = "real_memory.c or ucx_put.c does not compile"
            library = self.compile("cc", "real_memory", "-shared", "-fPIC", *cflags)
            put = self.compile("cc", "ucx_put", *cflags, *libs)
        except (OSError, subprocess.CalledProcessError):
            self.skip("ucx", what + "; package libucx-dev")
            return
        self.runners += [UcxPut(put, "ucx " + control, where) for control, where in wheres]
        if self.has("ucx_perftest", "ucx-utils"):
            self.runners.append(Ucx("ucx", "shm", [], library))
            self.runners += [Ucx("ucx " + control, "tcp", where, library)
                             for control, where in wheres]

    def add_others(self, wheres):
        if self.has_tcp and self.has("fi_pingpong", "libfabric-bin"):
            self.runners += [FiPingpong(provider, "libfabric %s %s" % (provider, control), where)
                             for control, where in wheres for provider in ("tcp", "net")]
        if self.has_tcp and self.has("iperf3", "iperf3"):
            self.runners += [Iperf("iperf3 " + control, where) for control, where in wheres]

    def probe(self):
        """ns of a flag between two cores; None: a core was not to be had."""
        try:
            return float(finish(start([self.prober]), 10))
        except (Failed, ValueError):
            return None
