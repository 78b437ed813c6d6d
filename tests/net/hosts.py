# SPDX-License-Identifier: Apache-2.0
"""Hosts as network namespaces. They have no names: each is held by a process that ends with its
stdin, so that whatever happens to the test, kernel and machine are as before. All hosts hang on the
bridges of one more namespace, the switch; nothing is added to the machine's own network.

Host i has on network k: interface eth<k>, 10.<77+k>.0.<i+1>/24 and fd77:<k>::<i+1>/64."""
import os
import signal
import subprocess
import unittest

from ranks import die_with_us, wait_until


def run(argv, **options):
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60, **options)
    if done.returncode != 0:
        raise AssertionError("%s: %s" % (" ".join(argv), done.stderr))
    return done.stdout


def need_namespaces():
    """Skips the test where the kernel does not let us make them."""
    if os.geteuid() != 0:
        raise unittest.SkipTest("network namespaces need root")
    try:
        run(["unshare", "--net", "--uts", "--mount", "ip", "link", "set", "lo", "up"])
    except (AssertionError, FileNotFoundError) as error:
        raise unittest.SkipTest("no network namespaces here: %s" % error) from None


class Namespace:
    def __init__(self, name):
        self.name = name
        # cat ends with its stdin, which is ours
        self.keeper = subprocess.Popen(["unshare", "--net", "--uts", "--mount", "cat"],
                                       stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                       preexec_fn=die_with_us)
        wait_until(self.is_apart, 10, "a namespace of its own")
        self.where = ["nsenter", "--target", str(self.keeper.pid), "--net", "--uts", "--mount",
                      "--wd=."]
        self.run("sh", "-c", "echo %s >/proc/sys/kernel/hostname && exec ip link set lo up" % name)

    def is_apart(self):
        """unshare has become cat; before that it may still be in our namespaces."""
        with open("/proc/%d/comm" % self.keeper.pid, encoding="ascii") as file:
            return file.read().strip() == "cat"

    def run(self, *argv):
        return run(self.where + list(argv))

    def batch(self, commands):
        """Lines for ip(8), in one go."""
        return run(self.where + ["ip", "-batch", "-"], input="\n".join(commands) + "\n")

    def close(self):
        self.keeper.stdin.close()
        self.keeper.send_signal(signal.SIGKILL)
        self.keeper.wait()


class Network:
    """`count` hosts on `networks` networks; self.host[i].where goes in front of a command."""

    def __init__(self, count, networks=1):
        self.made = []
        try:
            self.switch = self.make("switch")
            self.host = [self.make("host%d" % i) for i in range(count)]
            self.connect(networks)
        except BaseException:
            self.close()
            raise

    def make(self, name):
        self.made.append(Namespace(name))
        return self.made[-1]

    def connect(self, networks):
        lines = ["link add br%d type bridge forward_delay 0" % k for k in range(networks)]
        lines += ["link set br%d up" % k for k in range(networks)]
        for i, host in enumerate(self.host):
            for k in range(networks):
                port = "p%d-%d" % (i, k)
                lines += ["link add %s type veth peer name eth%d netns %d" %
                          (port, k, host.keeper.pid),
                          "link set %s master br%d up" % (port, k)]
        self.switch.batch(lines)
        for i, host in enumerate(self.host):
            lines = []
            for k in range(networks):
                lines += ["link set eth%d up" % k,
                          "address add %s/24 dev eth%d" % (self.v4(i, k), k),
                          "address add %s/64 dev eth%d nodad" % (self.v6(i, k), k)]
            host.batch(lines)

    @staticmethod
    def v4(host, network=0):
        return "10.%d.0.%d" % (77 + network, host + 1)

    @staticmethod
    def v6(host, network=0):
        return "fd77:%x::%x" % (network, host + 1)

    def cut(self, host, network=0):
        """Takes the cable out, at the switch: the host's own interface stays up."""
        self.switch.run("ip", "link", "set", "p%d-%d" % (host, network), "nomaster")

    def set_down(self, host, network=0):
        """Takes the interface down on the host itself."""
        self.host[host].run("ip", "link", "set", "eth%d" % network, "down")

    def close(self):
        for namespace in self.made:
            namespace.close()
