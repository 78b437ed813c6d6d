# SPDX-License-Identifier: Apache-2.0
"""Who is refused under a launcher, who may refuse, and that the others start all the same."""
import socket
import threading
import time

import ranks
from ranks import START_S, NetCase, free_ports, wait_until

AT_ONCE_S = 2  # far below the start's deadline
PORTS = 17     # MASTER_PORT and the 16 behind it
HELLO_LEN = 72
CHALLENGE_LEN = 64
REFUSE = 4
ERR_DUPLICATE = 11


def own(rank, count, port):
    return {"WEFT_RANK": rank, "WEFT_RANKS": count, "WEFT_ROOT": "127.0.0.1:%d" % port}


def torch(rank, count, port):
    return {"RANK": rank, "WORLD_SIZE": count, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": count,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "run"}


def slurm(rank, count, port):
    return {"SLURM_PROCID": rank, "SLURM_STEP_NUM_TASKS": count, "SLURM_NTASKS": count,
            "SLURM_STEP_ID": 0, "SLURM_JOB_ID": port, "SLURM_STEP_NODELIST": "localhost",
            "SLURM_STEP_NUM_NODES": 1, "SLURM_LOCALID": rank,
            "WEFT_PORT_RANGE": "%d-%d" % (port + 1, port + 16)}


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def refusal(version, status, reason):
    """As a listener without the secret can make it."""
    head = b"WEFT" + version + bytes([REFUSE, 0]) + status.to_bytes(4, "little") + \
        len(reason).to_bytes(4, "little")
    return head + crc32c(head + reason).to_bytes(4, "little") + reason


def read_exactly(connection, count):
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise OSError("closed")
        data += more
    return data


class FalseListener:
    """Shows the challenge of another listener, hears the hello and refuses. Before it knows a
    challenge it takes nobody."""

    def __init__(self, port):
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen(64)
        self.refused = 0
        self.challenge = b""

    def learn(self, port):
        with socket.create_connection(("127.0.0.1", port), START_S) as root:
            root.settimeout(START_S)
            self.challenge = read_exactly(root, CHALLENGE_LEN)
        threading.Thread(target=self.serve, daemon=True).start()

    def refuse(self, guest):
        guest.settimeout(START_S)
        guest.sendall(self.challenge)
        read_exactly(guest, HELLO_LEN)
        guest.sendall(refusal(self.challenge[4:6], ERR_DUPLICATE, b"the rank is taken"))
        self.refused += 1
        while guest.recv(4096):  # closing with bytes unread would reset, and eat the refusal
            pass

    def serve(self):
        while True:
            try:
                guest, _ = self.listener.accept()
            except OSError:
                return
            with guest:
                try:
                    self.refuse(guest)
                except OSError:
                    pass

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()


class Refusals(NetCase):
    # ---- settings and sizes ----

    def check_told_at_once(self, variables, wrong, *words, join):
        """Rank 1 of 3 has another idea than the root. It hears so long before the deadline; the
        right one comes after it, and the job starts."""
        port = free_ports(PORTS)
        job = [self.rank(**variables(0, 3, port), WEFT_JOIN=join)]
        stray = self.rank(**{**variables(1, 3, port), **wrong}, WEFT_JOIN=join)
        began = time.monotonic()
        event = self.check_refused(stray, "ERR_MISMATCH", *words)
        self.assertLess(event["at"] - began, AT_ONCE_S)
        job += [self.rank(**variables(rank, 3, port), WEFT_JOIN=join) for rank in (1, 2)]
        self.check_job(job)
        self.check_ends(job)

    def check_launchers(self, wrong_of, *words):
        for variables in (own, torch, slurm):
            for join in ("auto", "direct"):
                with self.subTest(launcher=variables.__name__, join=join):
                    self.check_told_at_once(variables, wrong_of[variables], *words, join=join)

    def test_another_setting_is_told_at_once_with_both_values(self):
        wrong = {"WEFT_HEARTBEAT": "100ms"}
        self.check_launchers({own: wrong, torch: wrong, slurm: wrong}, "WEFT_HEARTBEAT",
                             "100ms on rank 1", "on rank 0")

    def test_another_number_of_ranks_is_told_at_once_with_both(self):
        self.check_launchers({own: {"WEFT_RANKS": 4}, torch: {"WORLD_SIZE": 4},
                              slurm: {"SLURM_STEP_NUM_TASKS": 4, "SLURM_NTASKS": 4}},
                             "4 ranks", "says 3")

    def test_another_setting_under_weft_run_is_told_at_once_with_both_values(self):
        """The launcher ends the job with the first rank that fails: that is the wrong one."""
        script = "[ $WEFT_RANK != 1 ] || export WEFT_HEARTBEAT=100ms; exec %s" % ranks.PROGRAM
        began = time.monotonic()
        run = self.start([ranks.CLI, "run", "-n", "3", "--", "sh", "-c", script],
                         ranks.clean_env())
        event = self.check_refused(run, "ERR_MISMATCH", "WEFT_HEARTBEAT", "100ms on rank 1",
                                   "on rank 0")
        self.assertLess(event["at"] - began, AT_ONCE_S)
        self.assertNotEqual(run.wait(time.monotonic() + START_S), 0)

    # ---- false listeners ----

    def check_false_listener(self, variables):
        """It has the first of the possible ports, shows the job's own challenge and says to
        whoever comes that the rank is taken."""
        port = free_ports(PORTS)
        liar = FalseListener(port + 1)
        self.addCleanup(liar.close)
        job = [self.rank(**variables(0, 3, port), WEFT_JOIN="direct")]
        root = wait_until(lambda: [end[2] for end in ranks.connections(job[0].pid)
                                   if end[0] == "listening"], START_S, "the root listens")[0]
        self.assertGreater(root, port + 1)
        liar.learn(root)
        job.append(self.rank(**variables(1, 3, port), WEFT_JOIN="direct"))
        wait_until(lambda: liar.refused > 0 or job[1].child.poll() is not None, START_S,
                   "rank 1 met the false listener")
        self.assertGreater(liar.refused, 0)
        job.append(self.rank(**variables(2, 3, port), WEFT_JOIN="direct"))
        self.check_job(job)
        self.check_ends(job)

    def test_an_unproved_refusal_on_another_torchrun_port_stops_nobody(self):
        self.check_false_listener(torch)

    def test_an_unproved_refusal_on_another_slurm_port_stops_nobody(self):
        self.check_false_listener(slurm)


if __name__ == "__main__":
    ranks.main()
