/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank's calls leave in its flight recorder, and how that gets into a file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "wire/dump.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX ((size_t)1 << 20)

struct scene {
    weft_comm_t comm;
    char folder[64], path[128];
    uint8_t *bytes;
    struct weft_dump dump;
};

static void open_scene(struct scene *scene)
{
    weft_config_t config = WEFT_CONFIG_INIT;
    weft_id_t id;
    *scene = (struct scene){.folder = "/tmp/weft-test-record-XXXXXX"};
    assert_non_null(mkdtemp(scene->folder));
    snprintf(scene->path, sizeof(scene->path), "%s/mine.dump", scene->folder);
    setenv("WEFT_DUMP", scene->folder, 1);
    config.interface = "lo";
    assert_int_equal(weft_id_create(&config, &id), WEFT_OK);
    assert_int_equal(weft_comm_create(&id, 0, 1, &config, &scene->comm), WEFT_OK);
}

static unsigned count_files(const struct scene *scene)
{
    const struct dirent *entry;
    unsigned count = 0;
    DIR *folder = opendir(scene->folder);
    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        count += entry->d_name[0] != '.';
    }
    closedir(folder);
    return count;
}

static void close_scene(struct scene *scene)
{
    const struct dirent *entry;
    DIR *folder = opendir(scene->folder);
    assert_non_null(folder);
    assert_int_equal(weft_comm_close(scene->comm), WEFT_OK);
    while ((entry = readdir(folder)) != NULL) {
        unlinkat(dirfd(folder), entry->d_name, 0);
    }
    closedir(folder);
    assert_int_equal(rmdir(scene->folder), 0);
    unsetenv("WEFT_DUMP");
    free(scene->bytes);
}

static void read_dump(struct scene *scene, const char *path)
{
    FILE *file = fopen(path, "rbe");
    size_t len;
    assert_non_null(file);
    scene->bytes = scene->bytes != NULL ? scene->bytes : malloc(FILE_MAX);
    assert_non_null(scene->bytes);
    len = fread(scene->bytes, 1, FILE_MAX, file);
    fclose(file);
    assert_int_equal(weft_wire_dump_open(scene->bytes, len, NULL, &scene->dump), WEFT_OK);
}

/* In a directory: the only file there that ends so. */
static void read_named_dump(struct scene *scene)
{
    const struct dirent *entry;
    char path[512] = "";
    DIR *folder = opendir(scene->folder);
    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        if (strstr(entry->d_name, "-rank-0.dump") != NULL) {
            assert_int_equal(strncmp(entry->d_name, "weft-", 5), 0);
            snprintf(path, sizeof(path), "%s/%s", scene->folder, entry->d_name);
        }
    }
    closedir(folder);
    read_dump(scene, path);
}

static struct weft_dump_entry entry_at(const struct scene *scene, uint32_t slot)
{
    struct weft_dump_entry entry;
    assert_true(weft_wire_dump_entry(&scene->dump, slot, &entry));
    return entry;
}

static void calls_are_recorded_with_what_they_were_given(void **state)
{
    struct scene scene;
    float in[3] = {1, 2, 3}, out[3];
    weft_request_t request;
    weft_comm_t smaller;
    struct weft_dump_entry entry;
    char name[WEFT_RECORD_NAME_LEN];
    (void)state;
    open_scene(&scene);
    assert_int_equal(weft_allreduce(scene.comm, in, out, 3, WEFT_F32, WEFT_MAX, NULL), WEFT_OK);
    assert_int_equal(weft_broadcast(scene.comm, in, out, 2, WEFT_I32, 0, &request), WEFT_OK);
    assert_int_equal(weft_wait(&request, WEFT_NO_LIMIT), WEFT_OK);
    assert_int_equal(weft_control_barrier(scene.comm), WEFT_OK);
    assert_int_equal(weft_control_allgather(scene.comm, in, 4, out), WEFT_OK);
    assert_int_equal(weft_recv(scene.comm, out, 4, 0, 7, NULL, &request), WEFT_OK);
    assert_int_equal(weft_comm_shrink(scene.comm, &smaller), WEFT_OK);
    assert_int_equal(weft_comm_close(smaller), WEFT_OK);
    assert_int_equal(weft_dump(scene.comm, scene.path), WEFT_OK);
    read_dump(&scene, scene.path);
    assert_int_equal(scene.dump.reason, WEFT_RECORD_ASKED);
    assert_int_equal(scene.dump.pid, getpid());
    entry = entry_at(&scene, 0); /* the ranks meet */
    assert_true(entry.kind == WEFT_ALLREDUCE && entry.number == 0 && entry.signature == 0);
    entry = entry_at(&scene, 1);
    assert_true(entry.kind == WEFT_ALLREDUCE && entry.dtype == WEFT_F32 && entry.op == WEFT_MAX);
    assert_true(entry.number == 0 && entry.count == 3 && entry.signature != 0);
    assert_int_equal(entry.state, WEFT_DUMP_ENDED);
    assert_true(weft_wire_dump_name(&scene.dump, entry.name, name)[0] != '\0');
    entry = entry_at(&scene, 2);
    assert_true(entry.kind == WEFT_BROADCAST && entry.number == 1 && entry.count == 2);
    assert_int_equal(entry.state, WEFT_DUMP_ENDED);
    entry = entry_at(&scene, 3);
    assert_true(entry.kind == WEFT_RECORD_CONTROL_BARRIER && entry.number == 0);
    entry = entry_at(&scene, 4);
    assert_true(entry.kind == WEFT_RECORD_CONTROL_ALLGATHER && entry.number == 1);
    entry = entry_at(&scene, 5);
    assert_true(entry.kind == WEFT_RECORD_RECV && entry.peer == 0 && entry.tag == 7);
    assert_int_equal(entry.state, WEFT_DUMP_GOING);
    entry = entry_at(&scene, 6);
    assert_true(entry.kind == WEFT_RECORD_SHRINK && entry.state == WEFT_DUMP_ENDED);
    assert_int_equal(weft_cancel(&request), WEFT_OK);
    close_scene(&scene);
}

static void a_directory_gets_a_file_named_by_job_and_rank(void **state)
{
    struct scene scene;
    struct stat facts;
    (void)state;
    open_scene(&scene);
    assert_int_equal(weft_dump(scene.comm, NULL), WEFT_OK); /* WEFT_DUMP */
    read_named_dump(&scene);
    assert_int_equal(weft_dump(scene.comm, scene.folder), WEFT_OK);
    assert_int_equal(count_files(&scene), 1);
    assert_int_equal(weft_dump(scene.comm, scene.path), WEFT_OK);
    assert_int_equal(stat(scene.path, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0600);
    close_scene(&scene);
}

#define WRITERS 4

static void *write_often(void *arg)
{
    const struct scene *scene = arg;
    bool is_good = true;
    for (int i = 0; i < 200; i++) {
        is_good &= weft_dump(scene->comm, scene->path) == WEFT_OK;
    }
    return is_good ? arg : NULL;
}

/* Also one of them and a failure's. */
static void threads_that_write_the_same_file_do_not_disturb_each_other(void **state)
{
    struct scene scene;
    pthread_t threads[WRITERS];
    void *result;
    (void)state;
    open_scene(&scene);
    for (int i = 0; i < WRITERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, write_often, &scene), 0);
    }
    for (int i = 0; i < WRITERS; i++) {
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_non_null(result);
    }
    read_dump(&scene, scene.path);
    assert_int_equal(count_files(&scene), 1);
    close_scene(&scene);
}

static void what_is_no_file_is_not_replaced(void **state)
{
    struct scene scene;
    char pipe[256];
    struct stat facts;
    (void)state;
    open_scene(&scene);
    snprintf(pipe, sizeof(pipe), "%s/pipe", scene.folder);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(weft_dump(scene.comm, pipe), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), pipe));
    assert_int_equal(lstat(pipe, &facts), 0);
    assert_true(S_ISFIFO(facts.st_mode));
    assert_int_equal(unlink(pipe), 0);
    close_scene(&scene);
}

static void what_cannot_be_written_is_said(void **state)
{
    struct scene scene;
    (void)state;
    open_scene(&scene);
    assert_int_equal(weft_dump(scene.comm, "/nowhere/at/all"), WEFT_ERR_SYSTEM);
    assert_non_null(strstr(weft_error_text(), "/nowhere/at/all"));
    close_scene(&scene);
    open_scene(&scene);
    unsetenv("WEFT_DUMP");
    assert_int_equal(weft_comm_close(scene.comm), WEFT_OK);
    setenv("WEFT_RECORDER", "0", 1);
    rmdir(scene.folder);
    open_scene(&scene);
    assert_int_equal(weft_barrier(scene.comm, NULL), WEFT_OK);
    assert_int_equal(weft_dump(scene.comm, scene.path), WEFT_ERR_UNSUPPORTED);
    unsetenv("WEFT_RECORDER");
    close_scene(&scene);
}

/* The kernel would answer with a signal, which nobody here catches. */
static void a_file_longer_than_it_may_be_is_an_error_and_no_signal(void **state)
{
    struct scene scene;
    struct rlimit all, little;
    struct stat facts;
    weft_status_t status;
    (void)state;
    open_scene(&scene);
    assert_int_equal(weft_dump(scene.comm, scene.path), WEFT_OK);
    assert_int_equal(stat(scene.path, &facts), 0);
    assert_int_equal(unlink(scene.path), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    little = (struct rlimit){.rlim_cur = (rlim_t)facts.st_size - 1, .rlim_max = all.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    status = weft_dump(scene.comm, scene.path);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    assert_int_equal(status, WEFT_ERR_SYSTEM);
    assert_non_null(strstr(weft_error_text(), "ulimit -f"));
    assert_int_equal(count_files(&scene), 0);
    assert_int_equal(weft_dump(scene.comm, scene.path), WEFT_OK);
    close_scene(&scene);
}

static void a_failure_writes_the_file_before_calls_return(void **state)
{
    struct scene scene;
    (void)state;
    open_scene(&scene);
    assert_int_equal(weft_barrier(scene.comm, NULL), WEFT_OK);
    weft_abort(scene.comm, "enough");
    assert_int_equal(weft_barrier(scene.comm, NULL), WEFT_ERR_ABORTED);
    assert_int_equal(count_files(&scene), 1);
    read_named_dump(&scene);
    assert_int_equal(scene.dump.reason, WEFT_RECORD_FAILED);
    assert_int_equal(scene.dump.status, WEFT_ERR_ABORTED);
    assert_non_null(strstr(scene.dump.text, "enough"));
    close_scene(&scene);
}

/* Whoever can read the file learns nothing that lets them into the job. */
static void no_secret_is_in_the_file(void **state)
{
    weft_config_t config = WEFT_CONFIG_INIT;
    struct scene scene;
    struct weft_wire_id facts;
    weft_id_t id;
    weft_comm_t other;
    (void)state;
    open_scene(&scene);
    config.interface = "lo";
    assert_int_equal(weft_id_create(&config, &id), WEFT_OK);
    assert_int_equal(weft_comm_create(&id, 0, 1, &config, &other), WEFT_OK);
    assert_int_equal(weft_barrier(other, NULL), WEFT_OK);
    assert_int_equal(weft_dump(other, scene.path), WEFT_OK);
    read_dump(&scene, scene.path);
    assert_int_equal(weft_wire_id_decode(&id, &facts), WEFT_OK);
    for (size_t i = 0; i + 8 <= sizeof(facts.secret); i++) {
        assert_null(
            memmem(scene.bytes, weft_recording_len(scene.dump.entries), facts.secret + i, 8));
    }
    assert_null(memmem(scene.bytes, weft_recording_len(scene.dump.entries), facts.job, 8));
    assert_int_equal(weft_comm_close(other), WEFT_OK);
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_recorded_with_what_they_were_given),
        cmocka_unit_test(a_directory_gets_a_file_named_by_job_and_rank),
        cmocka_unit_test(threads_that_write_the_same_file_do_not_disturb_each_other),
        cmocka_unit_test(what_is_no_file_is_not_replaced),
        cmocka_unit_test(what_cannot_be_written_is_said),
        cmocka_unit_test(a_file_longer_than_it_may_be_is_an_error_and_no_signal),
        cmocka_unit_test(a_failure_writes_the_file_before_calls_return),
        cmocka_unit_test(no_secret_is_in_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
