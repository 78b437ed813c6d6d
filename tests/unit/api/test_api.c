/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions as their header describes them: bad arguments of each, what a forked child
 * finds, constants that programs are compiled with. */
#include "unit/comm/comm_support.h"

#include "wire/wire.h"

#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>

/* ---- constants ---- */

_Static_assert(sizeof(weft_id_t) == 128, "ids are passed around by their size");
_Static_assert(WEFT_ID_TEXT_LEN == 192, "programs have buffers of this size");
_Static_assert(WEFT_CONTROL_MAX == 65536, "longest control message");
_Static_assert(WEFT_OK == 0, "success is zero");
_Static_assert(WEFT_ERR_UNSUPPORTED == 16, "numbers of statuses never change");
_Static_assert(offsetof(weft_config_t, size) == 0, "configs begin with their size");

static void names_numbers_and_sentences_come_from_one_list(void **state)
{
    (void)state;
#define CHECK(name, number, sentence)                                                              \
    assert_int_equal(WEFT_##name, number);                                                         \
    assert_string_equal(weft_status_name(WEFT_##name), #name);                                     \
    assert_string_equal(weft_status_text(WEFT_##name), sentence);
    WEFT_STATUS_LIST(CHECK)
#undef CHECK
    assert_non_null(weft_status_name((weft_status_t)1234));
    assert_non_null(weft_status_text((weft_status_t)-1));
}

static void the_version_is_the_header_s(void **state)
{
    char want[32];
    (void)state;
    snprintf(want, sizeof(want), "%d.%d.%d", WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR,
             WEFT_VERSION_PATCH);
    assert_string_equal(weft_version(), want);
}

static void a_fresh_config_asks_for_the_defaults(void **state)
{
    weft_config_t config = WEFT_CONFIG_INIT;
    (void)state;
    assert_int_equal(config.size, sizeof(config));
    assert_int_equal(config.start_timeout_ms, 0);
    assert_int_equal(config.timeout_ms, 0);
    assert_null(config.interface);
}

/* ---- bad arguments ---- */

#define assert_invalid(call, words)                                                                \
    do {                                                                                           \
        assert_int_equal((call), WEFT_ERR_INVALID);                                                \
        if (strstr(weft_error_text(), (words)) == NULL) {                                          \
            fail_msg("%s: \"%s\" does not say \"%s\"", #call, weft_error_text(), (words));         \
        }                                                                                          \
    } while (0)

static void null_pointers_for_ids_and_outputs_are_invalid_and_named(void **state)
{
    weft_id_t id;
    weft_comm_t comm = NULL;
    weft_config_t config = job_config();
    char text[WEFT_ID_TEXT_LEN];
    (void)state;
    memset(&id, 0, sizeof(id));
    assert_invalid(weft_id_create(&config, NULL), "id_p");
    assert_invalid(weft_id_print(NULL, text), "id");
    assert_invalid(weft_id_print(&id, NULL), "text");
    assert_invalid(weft_id_print_public(NULL, text), "id");
    assert_invalid(weft_id_print_public(&id, NULL), "text");
    assert_invalid(weft_id_parse(NULL, &id), "text");
    assert_invalid(weft_id_parse("weft1:", NULL), "id_p");
    assert_invalid(weft_comm_create(NULL, 0, 1, &config, &comm), "id");
    assert_invalid(weft_comm_create(&id, 0, 1, &config, NULL), "comm_p");
    assert_invalid(weft_comm_create_scalable(NULL, 1, 0, 1, &config, &comm), "id");
    assert_invalid(weft_comm_create_scalable(&id, 1, 0, 1, &config, NULL), "comm_p");
    /* each by its own name */
    assert_invalid(weft_comm_create_scalable(NULL, 1, 0, 1, &config, &comm),
                   "weft_comm_create_scalable:");
    assert_invalid(weft_comm_create(&id, 1, 1, &config, &comm), "weft_comm_create:");
    assert_invalid(weft_comm_create_scalable(&id, 1, 1, 1, &config, &comm),
                   "weft_comm_create_scalable: rank 1");
    assert_invalid(weft_init(&config, NULL), "comm_p");
    weft_id_destroy(NULL);
    weft_id_destroy(&id);
    assert_null(comm);
}

static void a_null_communicator_is_invalid_everywhere(void **state)
{
    weft_comm_t comm = NULL;
    char text[4] = "";
    int number;
    (void)state;
    assert_invalid(weft_comm_rank(NULL, &number), "NULL");
    assert_invalid(weft_comm_ranks(NULL, &number), "NULL");
    assert_invalid(weft_comm_local(NULL, &number, &number), "NULL");
    assert_invalid(weft_comm_split(NULL, 0, 0, &comm), "NULL");
    assert_invalid(weft_comm_status(NULL), "NULL");
    assert_invalid(weft_abort(NULL, "why"), "NULL");
    assert_invalid(weft_control_barrier(NULL), "NULL");
    assert_invalid(weft_control_allgather(NULL, text, 1, text), "NULL");
    assert_invalid(weft_control_broadcast(NULL, text, 1, 0), "NULL");
    assert_invalid(weft_control_send(NULL, 0, 0, text, 1), "NULL");
    assert_invalid(weft_control_recv(NULL, 0, 0, text, 1, NULL), "NULL");
    assert_int_equal(weft_comm_close(NULL), WEFT_OK);
    assert_null(comm);
}

static void a_config_of_another_size_is_invalid(void **state)
{
    weft_config_t config = WEFT_CONFIG_INIT;
    weft_comm_t comm = NULL;
    weft_id_t id = {.bytes = {0}};
    (void)state;
    config.size = 3;
    assert_invalid(weft_id_create(&config, &id), "WEFT_CONFIG_INIT");
    assert_invalid(weft_comm_create(&id, 0, 1, &config, &comm), "WEFT_CONFIG_INIT");
    assert_invalid(weft_init(&config, &comm), "WEFT_CONFIG_INIT");
}

static void ranks_and_id_counts_out_of_range_are_invalid(void **state)
{
    static const struct {
        int ids, rank, ranks;
    } bad[] = {{1, -1, 2}, {1, 2, 2}, {1, 0, 0}, {1, 0, -5}, {0, 0, 2}, {-1, 0, 2}, {3, 0, 2}};
    weft_config_t config = job_config();
    weft_comm_t comm = NULL;
    weft_id_t ids[3];
    (void)state;
    assert_int_equal(weft_id_create(&config, &ids[0]), WEFT_OK);
    ids[1] = ids[2] = ids[0];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_invalid(
            weft_comm_create_scalable(ids, bad[i].ids, bad[i].rank, bad[i].ranks, &config, &comm),
            "expected");
    }
    assert_null(comm);
    weft_id_destroy(&ids[0]);
}

static void an_interface_or_port_range_that_is_none_is_invalid(void **state)
{
    weft_config_t config = job_config();
    weft_id_t id;
    (void)state;
    config.interface = "nosuchthing";
    assert_invalid(weft_id_create(&config, &id), "nosuchthing");
    config.interface = "lo";
    setenv("WEFT_PORT_RANGE", "9-1", 1);
    assert_invalid(weft_id_create(&config, &id), "9-1");
    unsetenv("WEFT_PORT_RANGE");
    setenv("WEFT_TREE_DEGREE", "1", 1);
    assert_invalid(weft_id_create(&config, &id), "WEFT_TREE_DEGREE=1");
    unsetenv("WEFT_TREE_DEGREE");
}

/* ---- ids ---- */

static void an_id_survives_printing_and_the_public_form_keeps_the_secret(void **state)
{
    weft_config_t config = job_config();
    weft_id_t id, back;
    char text[WEFT_ID_TEXT_LEN], shown[WEFT_ID_TEXT_LEN];
    (void)state;
    assert_int_equal(weft_id_create(&config, &id), WEFT_OK);
    assert_int_equal(weft_id_print(&id, text), WEFT_OK);
    assert_int_equal(strncmp(text, "weft1:", 6), 0);
    assert_int_equal(weft_id_parse(text, &back), WEFT_OK);
    assert_memory_equal(&back, &id, sizeof(id));
    assert_int_equal(weft_id_print_public(&id, shown), WEFT_OK);
    assert_non_null(strstr(shown, "127.0.0.1:"));
    for (size_t at = 6; at + 8 < strlen(text); at++) {
        char piece[9];
        snprintf(piece, sizeof(piece), "%.8s", text + at);
        assert_null(strstr(shown, piece));
    }
    weft_id_destroy(&id);
    weft_id_destroy(&id); /* harmless */
}

static void ids_that_nobody_made_are_invalid(void **state)
{
    weft_config_t config = job_config();
    weft_comm_t comm = NULL;
    weft_id_t id, untouched;
    char text[WEFT_ID_TEXT_LEN];
    (void)state;
    memset(&untouched, 0x5a, sizeof(untouched));
    assert_invalid(weft_id_parse("", &untouched), "");
    assert_invalid(weft_id_parse("weft1:AAAA", &untouched), "");
    assert_invalid(weft_id_parse("not an id", &untouched), "");
    assert_int_equal(untouched.bytes[0], 0x5a);
    assert_invalid(weft_id_print(&untouched, text), "weft_id_create");
    assert_invalid(weft_id_print_public(&untouched, text), "weft_id_create");
    assert_invalid(weft_comm_create(&untouched, 0, 1, &config, &comm), "weft_id_create");
    assert_int_equal(weft_id_create(&config, &id), WEFT_OK);
    weft_id_destroy(&id);
    id.bytes[60] ^= 1; /* in the secret */
    assert_invalid(weft_comm_create(&id, 0, 1, &config, &comm), "damaged");
    id.bytes[4]++; /* the version */
    assert_int_equal(weft_comm_create(&id, 0, 1, &config, &comm), WEFT_ERR_VERSION);
    assert_null(comm);
}

static void destroying_an_id_closes_its_listener(void **state)
{
    weft_config_t config = job_config();
    unsigned before = harness_count_fds();
    struct weft_wire_id decoded;
    weft_id_t id;
    (void)state;
    assert_int_equal(weft_id_create(&config, &id), WEFT_OK);
    assert_true(harness_count_fds() > before);
    assert_int_equal(weft_wire_id_decode(&id, &decoded), WEFT_OK);
    weft_id_destroy(&id);
    assert_int_equal(harness_count_fds(), before);
    assert_int_equal(stranger_connect("127.0.0.1", decoded.root.port, 100), -1);
}

/* ---- on a communicator of one ---- */

static weft_comm_t alone(void)
{
    weft_config_t config = job_config();
    weft_comm_t comm = NULL;
    weft_id_t id;
    config.timeout_ms = 300;
    assert_int_equal(weft_id_create(&config, &id), WEFT_OK);
    assert_int_equal(weft_comm_create(&id, 0, 1, &config, &comm), WEFT_OK);
    return comm;
}

static void bad_arguments_of_operations_are_invalid_and_leave_it_working(void **state)
{
    weft_comm_t comm = alone();
    uint8_t *data = calloc(1, WEFT_CONTROL_MAX + 1);
    size_t len;
    (void)state;
    assert_non_null(data);
    assert_invalid(weft_comm_rank(comm, NULL), "rank_p");
    assert_invalid(weft_comm_ranks(comm, NULL), "ranks_p");
    assert_invalid(weft_comm_local(comm, NULL, (int *)(void *)data), "local_rank_p");
    assert_invalid(weft_comm_local(comm, (int *)(void *)data, NULL), "local_ranks_p");
    assert_invalid(weft_comm_split(comm, 0, 0, NULL), "weft_comm_split: comm_p");
    assert_invalid(weft_comm_duplicate(comm, NULL), "weft_comm_duplicate: comm_p");
    assert_invalid(weft_control_allgather(comm, NULL, 1, data), "NULL");
    assert_invalid(weft_control_allgather(comm, data, 1, NULL), "NULL");
    assert_invalid(weft_control_allgather(comm, data, WEFT_CONTROL_MAX + 1, data), "65537");
    assert_invalid(weft_control_broadcast(comm, NULL, 1, 0), "NULL");
    assert_invalid(weft_control_broadcast(comm, data, WEFT_CONTROL_MAX + 1, 0), "65537");
    assert_invalid(weft_control_broadcast(comm, data, 1, 1), "rank 1");
    assert_invalid(weft_control_broadcast(comm, data, 1, -1), "rank -1");
    assert_invalid(weft_control_send(comm, 0, 0, NULL, 1), "NULL");
    assert_invalid(weft_control_send(comm, 1, 0, data, 1), "rank 1");
    assert_invalid(weft_control_send(comm, -1, 0, data, 1), "rank -1");
    assert_invalid(weft_control_send(comm, 0, 0, data, WEFT_CONTROL_MAX + 1), "65537");
    assert_invalid(weft_control_recv(comm, 0, 0, NULL, 1, NULL), "NULL");
    assert_invalid(weft_control_recv(comm, 1, 0, data, 1, &len), "rank 1");
    assert_invalid(weft_control_recv(comm, -1, 0, data, 1, &len), "rank -1");
    assert_int_equal(weft_control_allgather(comm, NULL, 0, NULL), WEFT_OK);
    assert_int_equal(weft_control_broadcast(comm, NULL, 0, 0), WEFT_OK);
    assert_int_equal(weft_comm_status(comm), WEFT_OK);
    assert_int_equal(weft_comm_close(comm), WEFT_OK);
    free(data);
}

static void an_aborted_communicator_says_why_and_closes(void **state)
{
    weft_comm_t comm = alone();
    char bytes[4] = {0};
    (void)state;
    assert_int_equal(weft_abort(comm, "the test\nsaid so"), WEFT_OK);
    assert_int_equal(weft_comm_status(comm), WEFT_ERR_ABORTED);
    assert_non_null(strstr(weft_error_text(), "the test"));
    assert_int_equal(weft_control_barrier(comm), WEFT_ERR_ABORTED);
    assert_int_equal(weft_control_allgather(comm, bytes, 1, bytes), WEFT_ERR_ABORTED);
    assert_int_equal(weft_control_broadcast(comm, bytes, 1, 0), WEFT_ERR_ABORTED);
    assert_int_equal(weft_control_send(comm, 0, 0, bytes, 1), WEFT_ERR_ABORTED);
    assert_int_equal(weft_control_recv(comm, 0, 0, bytes, 1, NULL), WEFT_ERR_ABORTED);
    assert_int_equal(weft_comm_split(comm, 0, 0, &comm), WEFT_ERR_ABORTED);
    assert_int_equal(weft_abort(comm, NULL), WEFT_OK); /* twice: the first word stays */
    assert_int_equal(weft_comm_status(comm), WEFT_ERR_ABORTED);
    assert_non_null(strstr(weft_error_text(), "the test"));
    assert_int_equal(weft_comm_close(comm), WEFT_OK);
}

static void a_parent_is_busy_until_its_parts_are_closed(void **state)
{
    weft_comm_t comm = alone(), part = NULL;
    (void)state;
    assert_int_equal(weft_comm_split(comm, 3, 0, &part), WEFT_OK);
    assert_int_equal(weft_comm_close(comm), WEFT_ERR_BUSY);
    assert_int_equal(weft_control_barrier(comm), WEFT_OK);
    assert_int_equal(weft_comm_close(part), WEFT_OK);
    assert_int_equal(weft_comm_close(comm), WEFT_OK);
}

static void a_forked_child_finds_its_handles_dead(void **state)
{
    weft_comm_t comm = alone();
    int wait_status;
    pid_t child = fork();
    (void)state;
    assert_true(child >= 0);
    if (child == 0) {
        char bytes[4] = {0};
        int number = 77;
        weft_comm_t part = NULL;
        bool is_dead = weft_comm_rank(comm, &number) == WEFT_ERR_FORKED &&
                       weft_comm_ranks(comm, &number) == WEFT_ERR_FORKED &&
                       weft_comm_local(comm, &number, &number) == WEFT_ERR_FORKED &&
                       weft_comm_split(comm, 0, 0, &part) == WEFT_ERR_FORKED &&
                       weft_comm_status(comm) == WEFT_ERR_FORKED &&
                       weft_abort(comm, "no") == WEFT_ERR_FORKED &&
                       weft_control_barrier(comm) == WEFT_ERR_FORKED &&
                       weft_control_allgather(comm, bytes, 1, bytes) == WEFT_ERR_FORKED &&
                       weft_control_broadcast(comm, bytes, 1, 0) == WEFT_ERR_FORKED &&
                       weft_control_send(comm, 0, 0, bytes, 1) == WEFT_ERR_FORKED &&
                       weft_control_recv(comm, 0, 0, bytes, 1, NULL) == WEFT_ERR_FORKED &&
                       weft_comm_close(comm) == WEFT_ERR_FORKED && number == 77;
        _exit(is_dead ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    assert_true(WIFEXITED(wait_status));
    assert_int_equal(WEXITSTATUS(wait_status), 0);
    assert_int_equal(weft_control_barrier(comm), WEFT_OK); /* the parent never noticed */
    assert_int_equal(weft_comm_close(comm), WEFT_OK);
}

struct waiter {
    weft_comm_t comm;
    weft_status_t status;
};

/* Until the barrier of the other thread has left. */
static void *wait_for_a_message(void *arg)
{
    struct waiter *waiter = arg;
    char byte;
    while ((waiter->status = weft_control_recv(waiter->comm, 0, 7, &byte, 1, NULL)) ==
           WEFT_ERR_BUSY) {
        sched_yield();
    }
    return NULL;
}

static void a_second_thread_in_a_call_is_told_busy(void **state)
{
    static struct waiter waiter; /* its thread may outlive a test that fails */
    uint64_t deadline_ns = weft_clock_after_ms(10000);
    weft_comm_t comm = alone();
    weft_status_t status = WEFT_OK;
    pthread_t thread;
    (void)state;
    waiter.comm = comm;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_a_message, &waiter), 0);
    while (status == WEFT_OK && weft_clock_ns() < deadline_ns) {
        sched_yield();                       /* two that spin by turns need not meet */
        status = weft_control_barrier(comm); /* fine until the other thread is in its call */
    }
    assert_int_equal(status, WEFT_ERR_BUSY);
    assert_non_null(strstr(weft_error_text(), "another thread"));
    assert_int_equal(weft_comm_close(comm), WEFT_ERR_BUSY);
    assert_int_equal(weft_abort(comm, "enough"), WEFT_OK);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(waiter.status, WEFT_ERR_ABORTED);
    assert_int_equal(weft_comm_close(comm), WEFT_OK);
}

static void the_environment_must_say_enough(void **state)
{
    weft_config_t config = job_config();
    weft_comm_t comm = NULL;
    (void)state;
    assert_int_equal(weft_init(&config, &comm), WEFT_ERR_INVALID);
    assert_null(comm);
    assert_true(strlen(weft_error_text()) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_numbers_and_sentences_come_from_one_list),
        cmocka_unit_test(the_version_is_the_header_s),
        cmocka_unit_test(a_fresh_config_asks_for_the_defaults),
        cmocka_unit_test(null_pointers_for_ids_and_outputs_are_invalid_and_named),
        cmocka_unit_test(a_null_communicator_is_invalid_everywhere),
        cmocka_unit_test(a_config_of_another_size_is_invalid),
        cmocka_unit_test(ranks_and_id_counts_out_of_range_are_invalid),
        cmocka_unit_test(an_interface_or_port_range_that_is_none_is_invalid),
        cmocka_unit_test(an_id_survives_printing_and_the_public_form_keeps_the_secret),
        cmocka_unit_test(ids_that_nobody_made_are_invalid),
        cmocka_unit_test(destroying_an_id_closes_its_listener),
        cmocka_unit_test(bad_arguments_of_operations_are_invalid_and_leave_it_working),
        cmocka_unit_test(an_aborted_communicator_says_why_and_closes),
        cmocka_unit_test(a_parent_is_busy_until_its_parts_are_closed),
        cmocka_unit_test(a_forked_child_finds_its_handles_dead),
        cmocka_unit_test(a_second_thread_in_a_call_is_told_busy),
        cmocka_unit_test(the_environment_must_say_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
