/* SPDX-License-Identifier: Apache-2.0 */
/* Every status that creating a communicator promises, provoked; and ends that come from elsewhere. */
#include "unit/comm/comm_support.h"

#include "wire/wire.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>

/* ---- creating ---- */

static void a_root_whose_ranks_never_come_times_out_and_names_them(void **state)
{
    weft_config_t config = job_config();
    weft_comm_t comm = NULL;
    weft_id_t id;
    uint64_t begin_ns = harness_now_ns();
    (void)state;
    config.start_timeout_ms = 100;
    assert_int_equal(weft_id_create(&config, &id), WEFT_OK);
    assert_int_equal(weft_comm_create(&id, 1, 5, &config, &comm), WEFT_ERR_TIMEOUT);
    assert_non_null(strstr(weft_error_text(), "4 of 5"));
    assert_non_null(strstr(weft_error_text(), "0, 2-4"));
    assert_true(harness_now_ns() - begin_ns < UINT64_C(2000000000));
    assert_null(comm);
}

static void an_id_whose_root_is_gone_is_a_network_error(void **state)
{
    weft_config_t config = job_config();
    weft_comm_t comm = NULL;
    weft_id_t id;
    (void)state;
    assert_int_equal(weft_id_create(&config, &id), WEFT_OK);
    weft_id_destroy(&id);
    assert_int_equal(weft_comm_create(&id, 1, 2, &config, &comm), WEFT_ERR_NETWORK);
    assert_non_null(strstr(weft_error_text(), "127.0.0.1:"));
}

static void a_process_without_descriptors_gets_a_system_error_with_the_limit(void **state)
{
    weft_config_t config = job_config();
    struct rlimit before, none;
    weft_status_t status;
    char words[WEFT_ID_TEXT_LEN];
    weft_id_t id;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    status = weft_id_create(&config, &id);
    snprintf(words, sizeof(words), "%s", weft_error_text());
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, WEFT_ERR_SYSTEM);
    assert_non_null(strstr(words, "3"));
    assert_int_equal(weft_id_create(&config, &id), WEFT_OK);
    weft_id_destroy(&id);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static int ask_for_too_much(int rank, struct harness_shared *shared, void *arg)
{
    weft_config_t config = job_config();
    struct rlimit little = {0, 0};
    char line[128] = "";
    FILE *statm = fopen("/proc/self/statm", "r");
    weft_comm_t comm = NULL;
    weft_id_t id;
    (void)arg;
    EXPECT(statm != NULL && fgets(line, sizeof(line), statm) != NULL);
    fclose(statm);
    EXPECT_OK(weft_id_create(&config, &id));
    EXPECT(weft_comm_create(&id, 0, 1 << 30, &config, &comm) == WEFT_ERR_INVALID);
    little.rlim_cur = strtoul(line, NULL, 10) * (rlim_t)sysconf(_SC_PAGESIZE) + (6u << 20);
    little.rlim_max = little.rlim_cur;
    EXPECT(setrlimit(RLIMIT_AS, &little) == 0);
    EXPECT(weft_comm_create(&id, 0, WEFT_RANKS_MAX, &config, &comm) == WEFT_ERR_MEMORY);
    EXPECT(comm == NULL);
    return 0;
}

static void a_job_that_does_not_fit_into_memory_is_a_memory_error(void **state)
{
    (void)state;
    run_processes(1, ask_for_too_much, NULL);
}
#endif

/* Joins by an id that leads to a listener that is no root of ours. */
static int join_falsely(int rank, struct harness_shared *shared, void *arg)
{
    weft_config_t config = job_config();
    weft_comm_t comm = NULL;
    (void)arg;
    EXPECT(harness_wait_for(&shared->word[ID_WORD], 1, DEADLINE_MS));
    EXPECT(weft_comm_create(job_ids(shared), 1, 2, &config, &comm) ==
           (weft_status_t)atomic_load(&shared->word[0]));
    return 0;
}

static void join_a_false_root(const void *says, size_t len, weft_status_t want)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct weft_wire_id id = {.root = {.family = 4, .bytes = {127, 0, 0, 1}},
                              .flags = WEFT_WIRE_ID_AUTHENTICATED,
                              .job = "a job of lies"};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;
    struct pollfd wait = {.fd = listener, .events = POLLIN};
    socklen_t addr_len = sizeof(addr);
    struct harness *harness;
    weft_id_t encoded;
    assert_int_equal(bind(listener, (struct sockaddr *)&addr, addr_len), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &addr_len), 0);
    id.root.port = ntohs(addr.sin_port);
    /* its own in every run: names of local sockets come from it */
    assert_int_equal(weft_random(id.secret, sizeof(id.secret)), WEFT_OK);
    weft_wire_id_encode(&id, &encoded);
    harness = harness_start(1, join_falsely, NULL);
    *job_ids(harness_shared(harness)) = encoded;
    atomic_store(&harness_shared(harness)->word[0], want);
    atomic_store(&harness_shared(harness)->word[ID_WORD], 1);
    assert_int_equal(poll(&wait, 1, DEADLINE_MS), 1);
    fd = accept(listener, NULL, NULL);
    assert_true(stranger_send(fd, says, len, DEADLINE_MS));
    finish(harness);
    close(fd);
    close(listener);
}

static void a_root_that_speaks_another_language_is_a_protocol_error(void **state)
{
    (void)state;
    join_a_false_root("SSH-2.0-OpenSSH_9.2\r\n", 21, WEFT_ERR_PROTOCOL);
}

static void a_root_of_another_version_is_a_version_error(void **state)
{
    uint8_t challenge[WEFT_WIRE_CHALLENGE_LEN] = "WEFT\x2a\x00\x01";
    (void)state;
    join_a_false_root(challenge, sizeof(challenge), WEFT_ERR_VERSION);
}

/* One of two ranks brings something that cannot be taken; the root and rank 1 start without it. */
enum odd { ODD_SECRET, ODD_RANK, ODD_RANKS, ODD_SETTING };

static int one_is_odd(int rank, struct harness_shared *shared, void *arg)
{
    static const weft_status_t wants[] = {WEFT_ERR_AUTH, WEFT_ERR_DUPLICATE, WEFT_ERR_MISMATCH,
                                          WEFT_ERR_MISMATCH};
    enum odd odd = *(const enum odd *)arg;
    weft_config_t config = job_config();
    struct weft_wire_id decoded;
    weft_comm_t comm = NULL;
    weft_id_t id;
    weft_status_t status;
    if (rank == 0) {
        EXPECT_OK(weft_id_create(&config, job_ids(shared)));
        atomic_store(&shared->word[ID_WORD], 1);
    }
    EXPECT(harness_wait_for(&shared->word[ID_WORD], 1, DEADLINE_MS));
    id = *job_ids(shared);
    if (rank == 2) {
        EXPECT_OK(weft_wire_id_decode(&id, &decoded));
        if (odd == ODD_SECRET) {
            decoded.secret[5] ^= 1;
            weft_wire_id_encode(&decoded, &id);
        } else if (odd == ODD_SETTING) {
            setenv("WEFT_HEARTBEAT", "333ms", 1);
        }
        /* the root has joined itself: rank 0 is taken */
        status = weft_comm_create(&id, odd == ODD_RANK ? 0 : 1, odd == ODD_RANKS ? 3 : 2, &config,
                                  &comm);
        EXPECT(status == wants[odd]);
        EXPECT(odd != ODD_SETTING || (strstr(weft_error_text(), "WEFT_HEARTBEAT") != NULL &&
                                      strstr(weft_error_text(), "333ms") != NULL));
        atomic_store(&shared->word[0], 1);
        return 0;
    }
    if (rank == 1) { /* only after the odd one was told */
        EXPECT(harness_wait_for(&shared->word[0], 1, DEADLINE_MS));
    }
    EXPECT_OK(weft_comm_create(&id, rank, 2, &config, &comm));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void an_odd_rank_is_told_why_and_the_others_start_without_it(void **state)
{
    (void)state;
    for (enum odd odd = ODD_SECRET; odd <= ODD_SETTING; odd++) {
        run_processes(3, one_is_odd, &odd);
    }
}

/* ---- threads ---- */

struct aborter {
    weft_comm_t comm;
    struct harness_shared *shared;
};

static void *abort_when_told(void *arg)
{
    struct aborter *aborter = arg;
    harness_wait_for(&aborter->shared->word[0], 1, DEADLINE_MS);
    weft_abort(aborter->comm, "from another thread");
    return NULL;
}

static int abort_from_a_second_thread(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL;
    pthread_t thread;
    struct aborter aborter = {.shared = shared};
    uint64_t begin_ns;
    uint8_t byte;
    weft_status_t status;
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    EXPECT_OK(weft_control_barrier(comm));
    aborter.comm = comm;
    if (rank == 0) {
        EXPECT(pthread_create(&thread, NULL, abort_when_told, &aborter) == 0);
    }
    begin_ns = harness_now_ns();
    if (rank == 0) {
        atomic_store(&shared->word[0], 1);
    }
    status = weft_control_recv(comm, 1 - rank, 1, &byte, 1, NULL); /* nobody sends */
    if (rank == 0) {
        pthread_join(thread, NULL);
    }
    EXPECT(status == WEFT_ERR_ABORTED);
    EXPECT(strstr(weft_error_text(), "from another thread") != NULL);
    EXPECT(harness_now_ns() - begin_ns < UINT64_C(5000000000));
    EXPECT(weft_comm_status(comm) == WEFT_ERR_ABORTED);
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void an_abort_of_another_thread_ends_the_call_that_waits(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        run_processes(2, abort_from_a_second_thread, NULL);
    }
}

/* A rank that only asks how it goes hears of the end, too. */
static int only_ask(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL;
    uint64_t deadline_ns;
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    deadline_ns = harness_now_ns() + UINT64_C(5000000000);
    if (rank == 0) {
        EXPECT_OK(weft_abort(comm, "enough"));
    }
    while (weft_comm_status(comm) == WEFT_OK && harness_now_ns() < deadline_ns) {
    }
    EXPECT(weft_comm_status(comm) == WEFT_ERR_ABORTED);
    EXPECT(strstr(weft_error_text(), "enough") != NULL);
    atomic_fetch_add(&shared->word[0], 1);
    EXPECT(harness_wait_reach(&shared->word[0], (uint32_t)shared->ranks, DEADLINE_MS));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void a_rank_that_only_asks_for_the_status_hears_of_an_abort(void **state)
{
    (void)state;
    run_processes(3, only_ask, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_root_whose_ranks_never_come_times_out_and_names_them),
        cmocka_unit_test(an_id_whose_root_is_gone_is_a_network_error),
        cmocka_unit_test(a_process_without_descriptors_gets_a_system_error_with_the_limit),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(a_job_that_does_not_fit_into_memory_is_a_memory_error),
#endif
        cmocka_unit_test(a_root_that_speaks_another_language_is_a_protocol_error),
        cmocka_unit_test(a_root_of_another_version_is_a_version_error),
        cmocka_unit_test(an_odd_rank_is_told_why_and_the_others_start_without_it),
        cmocka_unit_test(an_abort_of_another_thread_ends_the_call_that_waits),
        cmocka_unit_test(a_rank_that_only_asks_for_the_status_hears_of_an_abort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
