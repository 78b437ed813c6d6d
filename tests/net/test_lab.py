# SPDX-License-Identifier: Apache-2.0
"""weft lab: a job on its hosts, and that nothing is left of it, however it ends. What its network
does is in test_lab_links.py."""
import ctypes
import glob
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest

import ranks
from lab import Lab, NoLab
from ranks import CLI, PROGRAM, START_S, NetCase, clean_env, wait_until

PR_CAPBSET_DROP = 24
CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21
libc = ctypes.CDLL(None, use_errno=True)


def need_lab():
    Lab(hosts=1, nics=1).close()


def namespaces_of(pids):
    return {os.stat("/proc/%d/ns/net" % pid).st_ino for pid in pids}


def processes_in(namespaces):
    """Everybody on these networks."""
    found = []
    for path in glob.glob("/proc/[0-9]*/ns/net"):
        try:
            if os.stat(path).st_ino in namespaces:
                found.append(int(path.split("/")[2]))
        except OSError:
            pass
    return found


def drop_capability(number):
    return lambda: libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)


def lab_run(*args, **options):
    return subprocess.run([CLI, "lab"] + list(args), env=clean_env(), capture_output=True,
                          text=True, timeout=60, stdin=subprocess.DEVNULL, check=False, **options)


class Words(NetCase):
    """What it says when it is asked wrongly; needs no root, because nothing is begun."""

    def check(self, args, *words):
        done = lab_run(*args)
        self.assertEqual(done.returncode, 2, (args, done))
        self.assertEqual(done.stdout, "")
        for word in words:
            self.assertIn(word, done.stderr)

    def test_bad_arguments_are_two_and_named(self):
        self.check([], "the program is missing")
        self.check(["--keep", "true"], "--keep takes no program")
        self.check(["--hosts", "0", "true"], "--hosts 0", "from 1 to 64")
        self.check(["--nics", "17", "true"], "--nics 17", "from 1 to 16")
        self.check(["--mtu", "100", "true"], "--mtu 100", "from 576 to 65535")
        self.check(["--rate", "fast", "true"], "--rate fast", "2.5G")
        self.check(["--rate", "1G,", "true"], "--rate 1G,")
        self.check(["--rate", "1", "true"], "--rate 1:")
        self.check(["--nics", "4", "--rate", "1G,250M", "true"], "2 rates for 4 NICs")
        self.check(["--loss", "101", "true"], "--loss 101")
        self.check(["--loss", "-1", "true"], "--loss -1")
        self.check(["--reorder", "x", "true"], "--reorder x")
        self.check(["--delay", "11s", "true"], "--delay 11s", "up to 10s")
        self.check(["--hosts", "8", "-r", "1000", "true"], "8000 ranks")
        self.check(["--host", "2", "--ratee", "true"], "--rate")

    def test_help_has_examples(self):
        done = lab_run("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.count("  weft lab "), 2)

    def test_without_the_capability_it_says_which_and_how_to_get_it(self):
        is_root = os.geteuid() == 0
        for number, name in ((CAP_NET_ADMIN, "CAP_NET_ADMIN"), (CAP_SYS_ADMIN, "CAP_SYS_ADMIN")):
            done = lab_run("true", preexec_fn=drop_capability(number) if is_root else None)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done)
            self.assertIn("root", done.stderr)
            self.assertIn("sudo weft lab", done.stderr)
            if is_root:
                self.assertIn(name, done.stderr)


class Jobs(NetCase):
    """Jobs on two hosts."""

    @classmethod
    def setUpClass(cls):
        need_lab()

    def lab(self, *args):
        return self.start([CLI, "lab"] + list(args), clean_env())

    def pids_of(self, process, count):
        """The keepers' PIDs, as it says them on stderr."""
        return wait_until(lambda: self.said_pids(process, count), START_S, "the keepers")

    @staticmethod
    def said_pids(process, count):
        pids = [int(word) for word in re.findall(r"nsenter -t (\d+) ", process.stderr)]
        return pids if len(pids) == count else None

    def check_nothing_is_left(self, namespaces):
        wait_until(lambda: not processes_in(namespaces), START_S, "an end of all processes there")

    def test_ranks_of_two_hosts_are_one_job_and_neighbours_only_at_home(self):
        done = lab_run("--hosts", "2", "--nics", "2", "-r", "2", "--timeout", "30s", PROGRAM)
        self.assertEqual(done.returncode, 0, done)
        events = sorted((json.loads(line) for line in done.stdout.splitlines()),
                        key=lambda event: event["rank"])
        self.assertEqual([event["host"] for event in events], ["h0", "h0", "h1", "h1"])
        self.assertEqual([event["local_ranks"] for event in events], [2] * 4)
        self.assertTrue(all(event["is_right"] for event in events), events)

    def test_a_rank_sees_its_own_host_only(self):
        """Interfaces, also in /sys; processes by its own numbers; where and in which lab it is."""
        self.addCleanup(lambda: [os.unlink(path) for path in glob.glob("/dev/shm/weft-lab-[01]")])
        script = ("echo $WEFT_LAB $WEFT_RANK $WEFT_RANKS $WEFT_LOCAL_RANK $WEFT_LOCAL_RANKS "
                  "$(hostname) $(ls /sys/class/net | tr '\\n' ,) $(readlink /proc/self/exe | "
                  "grep -c .) $(cat /proc/$$/comm) $PWD; "
                  "test -e /sys/fs/cgroup/cgroup.procs -o -d /sys/fs/cgroup/cpu || exit 3; "
                  "test ! -e /dev/shm/weft-lab-$WEFT_RANK && touch /dev/shm/weft-lab-$((1 - "
                  "WEFT_RANK))")
        done = lab_run("--nics", "2", "--json", "--tag-output", "sh", "-c", script,
                       cwd=self.folder)
        self.assertEqual(done.returncode, 0, done)
        facts = json.loads(done.stdout)
        for rank in range(2):
            self.assertIn("[%d] %s %d 2 0 1 h%d eth0,eth1,lo, 1 sh %s\n" % (
                rank, facts["name"], rank, rank, self.folder), done.stderr)
        self.assertEqual(glob.glob("/dev/shm/weft-lab-*"), [])

    def test_the_summary_has_hosts_links_and_exit_statuses(self):
        done = lab_run("--nics", "2", "--rate", "1G,250M", "--json", "sh", "-c",
                       "exit $((WEFT_RANK * 7))")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("rank 1 (pid ", done.stderr)
        self.assertIn("exited with status 7", done.stderr)
        facts = json.loads(done.stdout)
        self.assertEqual((facts["command"], facts["status"], facts["failed"]["rank"]),
                         ("lab", 1, 1))
        self.assertEqual([rank["exit"] for rank in facts["ranks_result"]], [0, 7])
        self.assertEqual(facts["hosts"][1]["nics"][1], {
            "name": "eth1", "address": "10.2.0.2", "port": "p1-1", "rate_bps": 250000000})
        self.assertEqual(facts["links"]["mtu"], 1500)

    def test_a_program_that_is_not_there_is_two(self):
        done = lab_run("--nics", "1", "no-such-program-anywhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("cannot start no-such-program-anywhere: No such file", done.stderr)

    def test_a_missing_tool_is_named_with_its_package(self):
        done = subprocess.run(["unshare", "--mount", "sh", "-c", "for at in $(which -a tc); do "
                               "mount --bind /dev/null $(realpath $at); done; exec \"$@\"", "sh",
                               CLI, "lab", "true"], capture_output=True, text=True, timeout=30,
                              check=False)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done)
        self.assertIn("no tc", done.stderr)
        self.assertIn("iproute2", done.stderr)

    def test_killed_nothing_is_left_not_even_what_ranks_had_started(self):
        process = self.lab("--nics", "2", "--rate", "1G", "--loss", "1", "--delay", "1", "sh", "-c",
                           "setsid sleep 1000 & echo up; exec sleep 1000")
        namespaces = namespaces_of(self.pids_of(process, 3))
        wait_until(lambda: len(processes_in(namespaces)) >= 7, START_S, "keepers and sleeps")
        process.child.send_signal(signal.SIGKILL)
        self.check_nothing_is_left(namespaces)

    def test_killed_while_it_is_made_nothing_is_left(self):
        mark = "NET_LAB_MARK=%d" % os.getpid()
        process = self.start([CLI, "lab", "--hosts", "16", "true"],
                             clean_env(NET_LAB_MARK=os.getpid()))
        keepers = wait_until(lambda: self.labs_with(mark), START_S, "a first keeper")
        self.assertTrue(set(keepers) & set(self.children(process.pid)))
        process.child.send_signal(signal.SIGKILL)
        wait_until(lambda: not self.labs_with(mark), START_S, "an end of all keepers")

    @staticmethod
    def children(pid):
        with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as file:
            return [int(word) for word in file.read().split()]

    @staticmethod
    def labs_with(mark):
        """Keepers whose environment has it: others may run labs on this machine, too."""
        found = []
        for path in glob.glob("/proc/[0-9]*"):
            try:
                with open(path + "/comm", encoding="ascii") as file:
                    name = file.read()
                with open(path + "/environ", encoding="utf-8", errors="replace") as file:
                    words = file.read().split("\0")
                if name.startswith("weft-lab-") and mark in words:
                    found.append(int(path.split("/")[2]))
            except OSError:
                pass
        return found

    def test_a_signal_reaches_the_ranks_and_nothing_is_left(self):
        process = self.lab("--nics", "1", "sh", "-c", "trap 'echo heard; exit 0' TERM; echo up; "
                           "while :; do sleep 0.01; done")
        namespaces = namespaces_of(self.pids_of(process, 3))
        wait_until(lambda: len(process.lines) == 2, START_S, "both ranks")
        process.child.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(time.monotonic() + START_S), 0, process.describe())
        self.assertEqual(process.lines.count("heard\n"), 2)
        self.assertEqual(processes_in(namespaces), [])  # at once: it has waited for them

    def test_what_a_rank_left_running_ends_with_the_lab(self):
        process = self.lab("--nics", "1", "sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & "
                           "test $WEFT_RANK = 1 || read line || :")
        namespaces = namespaces_of(self.pids_of(process, 3))
        self.assertEqual(process.finish(time.monotonic() + START_S), 0, process.describe())
        self.assertEqual(processes_in(namespaces), [])


class Skips(unittest.TestCase):
    def test_a_test_on_a_machine_without_means_is_skipped_with_the_reason(self):
        with tempfile.TemporaryDirectory() as folder:
            poor = os.path.join(folder, "weft")
            with open(poor, "w", encoding="ascii") as file:
                file.write("#!/bin/sh\nexec setpriv --bounding-set -net_admin %s \"$@\"\n" % CLI)
            os.chmod(poor, 0o700)
            with self.assertRaises(unittest.SkipTest) as caught:
                Lab(cli=poor if os.geteuid() == 0 else CLI)
        self.assertIsInstance(caught.exception, NoLab)
        self.assertIn("CAP_NET_ADMIN", str(caught.exception))

    def test_a_test_that_asks_wrongly_is_not(self):
        with self.assertRaises(AssertionError) as caught:
            Lab(hosts=1000)
        self.assertIn("from 1 to 64", str(caught.exception))


if __name__ == "__main__":
    ranks.main()
