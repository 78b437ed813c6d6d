/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every setting of Weft, once. `weft params` prints this table with value and origin.
 * X(ID, "WEFT_ENV", TYPE, "default", min, max, agreed, "choices", "one sentence")
 * Durations are in ms here; agreed settings must be equal on all ranks.
 */
#ifndef WEFT_PARAMS_TABLE_H
#define WEFT_PARAMS_TABLE_H

/* clang-format off */
#define WEFT_PARAMS(X) \
    X(LOG, "WEFT_LOG", TEXT, "warn", 0, 255, false, NULL, \
      "log level (off, error, warn, info, debug, trace), or per room: net:debug,info") \
    X(PROFILE, "WEFT_PROFILE", TEXT, "", 0, 255, false, NULL, \
      "file with the settings that weft tune found; off: none; empty: ~/.config/weft/profile") \
    X(RANK, "WEFT_RANK", INT, "-1", -1, INT32_MAX, false, NULL, \
      "this process's rank; -1: ask the launcher") \
    X(RANKS, "WEFT_RANKS", INT, "-1", -1, INT32_MAX, false, NULL, \
      "how many ranks the job has; -1: ask the launcher") \
    X(LOCAL_RANK, "WEFT_LOCAL_RANK", INT, "-1", -1, INT32_MAX, false, NULL, \
      "number among the ranks of this host, for programs that choose a device; set by weft run") \
    X(LOCAL_RANKS, "WEFT_LOCAL_RANKS", INT, "-1", -1, INT32_MAX, false, NULL, \
      "how many ranks run on this host; -1: ask the launcher") \
    X(ROOT, "WEFT_ROOT", TEXT, "", 0, 255, false, NULL, \
      "where rank 0 listens, host:port or [v6]:port") \
    X(ID, "WEFT_ID", TEXT, "", 0, 255, false, NULL, \
      "a printed id (weft1:...) made by rank 0's process; it holds the secret") \
    X(JOB, "WEFT_JOB", TEXT, "", 0, 255, false, NULL, \
      "name of the job, equal on all its ranks; keeps two jobs apart that share a host and port") \
    X(PORT, "WEFT_PORT", INT, "0", 0, 65535, false, NULL, \
      "port of the root when the launcher names only its host; 0: the launcher's rule") \
    X(PORT_RANGE, "WEFT_PORT_RANGE", TEXT, "", 0, 255, false, NULL, \
      "ports that may be listened on, first-last, for firewalls; empty: any") \
    X(SECRET_FILE, "WEFT_SECRET_FILE", TEXT, "", 0, 255, false, NULL, \
      "file with the job's secret, mode 0600, the same on all hosts") \
    X(SECRET_FD, "WEFT_SECRET_FD", INT, "-1", -1, INT32_MAX, false, NULL, \
      "descriptor to read the secret from; set by weft run") \
    X(LISTEN_FD, "WEFT_LISTEN_FD", INT, "-1", -1, INT32_MAX, false, NULL, \
      "listening socket handed to rank 0; set by weft run") \
    X(LAB, "WEFT_LAB", TEXT, "", 0, 255, false, NULL, \
      "name of the lab whose host this is, for programs that ask; set by weft lab") \
    X(SOCKET_IFNAME, "WEFT_SOCKET_IFNAME", TEXT, "", 0, 255, false, NULL, \
      "interfaces to use: eth0,ib (prefixes), =eth0 (exactly), ^lo,docker (all but); empty: by route") \
    X(SOCKET_FAMILY, "WEFT_SOCKET_FAMILY", CHOICE, "auto", 0, 0, false, "auto|ipv4|ipv6", \
      "address family to listen on") \
    X(TX_BINDINGS, "WEFT_TX_BINDINGS", TEXT, "", 0, 255, false, NULL, \
      "CPUs for sending over each NIC, eth1:8-21,112-125;eth2:60-73; one thread sends and receives over all: it gets all CPUs of both; empty: the NUMA node of the NICs, if they share one") \
    X(RX_BINDINGS, "WEFT_RX_BINDINGS", TEXT, "", 0, 255, false, NULL, \
      "CPUs for receiving over each NIC, as WEFT_TX_BINDINGS, for the same thread") \
    X(JOIN, "WEFT_JOIN", CHOICE, "auto", 0, 0, false, "auto|direct|local", \
      "how ranks join: direct (TCP to the root), local (through this host's leader), auto") \
    X(TREE_DEGREE, "WEFT_TREE_DEGREE", INT, "64", 2, 64, true, NULL, \
      "most children of one rank in the control tree") \
    X(START_TIMEOUT, "WEFT_START_TIMEOUT", DURATION, "30s", 10, 86400000, false, NULL, \
      "how long a start may take before it fails and names the missing ranks") \
    X(TIMEOUT, "WEFT_TIMEOUT", DURATION, "300s", 10, 86400000, false, NULL, \
      "how long one operation may take before it fails and names the absent ranks") \
    X(HANDSHAKE_TIMEOUT, "WEFT_HANDSHAKE_TIMEOUT", DURATION, "2s", 10, 60000, false, NULL, \
      "how long an accepted connection may take to prove that it belongs to the job") \
    X(HEARTBEAT, "WEFT_HEARTBEAT", DURATION, "250ms", 10, 60000, true, NULL, \
      "how often an idle control connection says that its rank is alive") \
    X(SILENT, "WEFT_SILENT", DURATION, "1s", 20, 600000, false, NULL, \
      "silence of a control connection after which one warning names the rank") \
    X(PATH_TIMEOUT, "WEFT_PATH_TIMEOUT", DURATION, "5s", 100, 600000, false, NULL, \
      "unacknowledged bytes for this long on a control connection mean that the path is dead") \
    X(PATH, "WEFT_PATH", CHOICE, "auto", 0, 0, true, "auto|shm|tcp", \
      "how messages travel: shm (ranks of one host only), tcp, auto: shm where it works, else tcp") \
    X(EAGER, "WEFT_EAGER", SIZE, "128K", 0, 131072, true, NULL, \
      "longest message that is sent before its receive is known") \
    X(CHUNK, "WEFT_CHUNK", SIZE, "0", 0, 16777216, false, NULL, \
      "longest piece of a long message over tcp; 0: 1M over one lane, 512K over several") \
    X(WINDOW, "WEFT_WINDOW", INT, "16", 1, 128, false, NULL, \
      "pieces on their way in one lane, sent and not acknowledged") \
    X(LANES, "WEFT_LANES", INT, "0", 0, 8, false, NULL, \
      "connections over each NIC to each peer on another host; 0: 1") \
    X(LANES_MAX, "WEFT_LANES_MAX", INT, "512", 0, 65536, false, NULL, \
      "connections to all peers on other hosts together: with more peers each gets fewer; 0: no limit") \
    X(LANE_IDLE, "WEFT_LANE_IDLE", DURATION, "10s", 0, 86400000, false, NULL, \
      "connections that carried no long message for this long are closed until needed; 0: never") \
    X(STRATEGY, "WEFT_STRATEGY", CHOICE, "auto", 0, 0, false, "auto|split|rr", \
      "long messages over several lanes: split (each over all), rr (whole ones in turn), auto") \
    X(LANE_TIMEOUT, "WEFT_LANE_TIMEOUT", DURATION, "500ms", 50, 60000, false, NULL, \
      "bytes of a lane that its peer's host has not acknowledged for this long: others take over") \
    X(TCP_CC, "WEFT_TCP_CC", TEXT, "auto", 0, 15, false, NULL, \
      "congestion control of data connections; auto: cubic, else reno, on loopback, elsewhere the kernel's") \
    X(TCP_ZEROCOPY, "WEFT_TCP_ZEROCOPY", SIZE, "0", 0, 1073741824, false, NULL, \
      "send chunks of at least this size with MSG_ZEROCOPY; 0: never (it is slower on loopback)") \
    X(CHECKSUM, "WEFT_CHECKSUM", CHOICE, "off", 0, 0, true, "off|on", \
      "crc32c of every payload over tcp; headers always have one") \
    X(SECURITY, "WEFT_SECURITY", CHOICE, "auth", 0, 0, true, "auth|integrity|encrypt", \
      "data over tcp: auth (who connects is proved), integrity (changed data is found, too), encrypt (nor can it be read)") \
    X(CMA, "WEFT_CMA", CHOICE, "auto", 0, 0, false, "auto|on|off", \
      "read long messages straight from the sender's memory; auto: when ranks outnumber the CPUs, and in collectives where it is faster") \
    X(SHM_POOL, "WEFT_SHM_POOL", SIZE, "4M", 1048576, 67108864, true, NULL, \
      "shared memory per rank for messages of more than 40 bytes") \
    X(ALGO, "WEFT_ALGO", TEXT, "", 0, 255, true, NULL, \
      "algorithm of collectives: ring, or per operation: allreduce:ring,broadcast:chain; empty: by the model") \
    X(COSTS, "WEFT_COSTS", TEXT, "", 0, 255, false, NULL, \
      "what messages, copies and flags cost here, for the model; rank 0's counts; weft tune collectives measures it") \
    X(DETERMINISTIC, "WEFT_DETERMINISTIC", INT, "0", 0, 1, true, NULL, \
      "1: reductions add in rank order at one owner per element: equal bits whatever the hosts and paths") \
    X(ACC, "WEFT_ACC", CHOICE, "native", 0, 0, true, "native|f32", \
      "f16, bf16 and f8 between the hops of a reduction: rounded to their type, or kept in f32") \
    X(RECORDER, "WEFT_RECORDER", INT, "1024", 0, 1048576, false, NULL, \
      "operations that the flight recorder remembers, 64 bytes each, a power of two; 0: it is off") \
    X(DUMP, "WEFT_DUMP", TEXT, "", 0, 255, false, NULL, \
      "directory that every rank writes its flight recorder to when a communicator fails; empty: none") \
    X(NCCL_MERGE, "WEFT_NCCL_MERGE", INT, "-1", -1, 1, false, NULL, \
      "NCCL plugin: 1: one device over all NICs, 0: one for each, -1: one when they are alike") \
    X(NCCL_HELPERS, "WEFT_NCCL_HELPERS", INT, "-1", -1, 16, false, NULL, \
      "NCCL plugin: threads that move bytes beside NCCL's own; -1: by how many CPUs there are") \
    X(NCCL_EAGER, "WEFT_NCCL_EAGER", SIZE, "32K", 0, 65536, false, NULL, \
      "NCCL plugin: longest message that is copied, so that its send is done at once") \
    X(NCCL_LATENCY, "WEFT_NCCL_LATENCY", INT, "0", 0, 100000, false, NULL, \
      "NCCL plugin: microseconds of latency that NCCL plans with; 0: NCCL's own figures") \
    X(NCCL_SPEED, "WEFT_NCCL_SPEED", INT, "0", 0, 10000000, false, NULL, \
      "NCCL plugin: Mbit/s of each NIC that NCCL plans with; 0: what the NIC says") \
    X(SPIN, "WEFT_SPIN", INT, "-1", -1, 1000000, false, NULL, \
      "microseconds to spin before yielding and sleeping; -1: by ranks against cores")
/* clang-format on */

#endif
