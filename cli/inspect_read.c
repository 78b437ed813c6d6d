/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings from files and from the memory of running processes, which need not help: it is read by way of
 * their descriptors, never mapped, so that nothing they do to it can hurt us. */
#include "inspect.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINK "/memfd:" WEFT_RECORD_MEMFD
#define DEPTH_MAX 8 /* of children */

/* ---- bytes ---- */

/* All of them from the beginning; NULL: errno. A regular file is as long as it says. */
static uint8_t *read_all(int fd, size_t *len_p)
{
    struct stat facts;
    size_t len, done = 0;
    if (fstat(fd, &facts) != 0) {
        return NULL;
    }
    if (!S_ISREG(facts.st_mode)) {
        errno = S_ISDIR(facts.st_mode) ? EISDIR : EINVAL;
        return NULL;
    }
    if ((uint64_t)facts.st_size > weft_recording_len(WEFT_RECORD_ENTRIES_MAX)) {
        errno = EFBIG;
        return NULL;
    }
    len = (size_t)facts.st_size;
    uint8_t *bytes = weft_cli_alloc(len + 1, 1);
    while (done < len) {
        ssize_t count = pread(fd, bytes + done, len - done, (off_t)done);
        if (count < 0 && errno != EINTR) {
            free(bytes);
            return NULL;
        }
        if (count == 0) {
            break;
        }
        done += count > 0 ? (size_t)count : 0;
    }
    *len_p = done;
    return bytes;
}

/* Names of files may hold what moves a terminal's cursor. */
static char *make_plain(char *text)
{
    for (char *at = text; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f) {
            *at = '?';
        }
    }
    return text;
}

static struct inspect_source *add(struct inspect_input *input, char *name, uint8_t *bytes,
                                  const struct weft_dump *dump)
{
    input->sources = weft_cli_grow(input->sources, input->count + 1, sizeof(*input->sources));
    input->sources[input->count] =
        (struct inspect_source){.name = make_plain(name), .bytes = bytes, .dump = *dump};
    return &input->sources[input->count++];
}

static void note(struct inspect_input *input, char *text)
{
    input->notes = weft_cli_grow(input->notes, input->note_count + 1, sizeof(*input->notes));
    input->notes[input->note_count++] = make_plain(text);
}

/* The others are read all the same: it may be the ones that matter. */
static void note_unreadable(struct inspect_input *input, char *text)
{
    note(input, text);
    input->unreadable++;
}

/* ---- files ---- */

#define WANTED                                                                                     \
    "give it *.dump files, which ranks write because of WEFT_DUMP=DIR or weft_dump(), or the "     \
    "folder they are in"

/* Nothing but plain files is opened: a pipe would wait, a device may never end, or act by being opened. */
static const char *name_kind(mode_t mode)
{
    return S_ISFIFO(mode) ? "a pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

static const char *say_file_error(int error)
{
    return error == EACCES || error == EPERM
               ? "it may not be read: be its owner, or root, or let it be copied by them"
           : error == EFBIG ? "it is larger than any dump of a flight recorder: " WANTED
                            : strerror(error);
}

static void add_plain(struct inspect_input *input, const char *path)
{
    struct weft_dump dump;
    size_t len = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    uint8_t *bytes = fd >= 0 ? read_all(fd, &len) : NULL;
    int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    if (bytes == NULL) {
        note_unreadable(input, weft_cli_format("%s: %s", path, say_file_error(error)));
    } else if (weft_wire_dump_open(bytes, len, NULL, &dump) != WEFT_OK) {
        note_unreadable(input, weft_cli_format("%s: %s", path, weft_error_text()));
        free(bytes);
    } else {
        add(input, weft_cli_format("%s", path), bytes, &dump);
    }
}

/* Returns whether it is a folder, of which nothing is said here. */
static bool add_unless_folder(struct inspect_input *input, const char *path)
{
    struct stat facts;
    if (stat(path, &facts) != 0) {
        note_unreadable(input, weft_cli_format("%s: %s", path, say_file_error(errno)));
    } else if (S_ISDIR(facts.st_mode)) {
        return true;
    } else if (!S_ISREG(facts.st_mode)) {
        note_unreadable(input, weft_cli_format("%s: it is %s, not a file: " WANTED, path,
                                               name_kind(facts.st_mode)));
    } else if (facts.st_size == 0) {
        note_unreadable(input, weft_cli_format("%s: it is empty: " WANTED, path));
    } else {
        add_plain(input, path);
    }
    return false;
}

static bool is_dump(const struct dirent *entry)
{
    size_t len = strlen(entry->d_name);
    return len > 5 && strcmp(entry->d_name + len - 5, ".dump") == 0;
}

/* Not the folders in it: links among them could go around for ever. */
static void add_folder(struct inspect_input *input, const char *path)
{
    const struct dirent *entry;
    DIR *folder = opendir(path);
    unsigned found = 0;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (is_dump(entry)) {
            char *file = weft_cli_format("%s/%s", path, entry->d_name);
            if (add_unless_folder(input, file)) {
                note_unreadable(input, weft_cli_format("%s: it is a folder in a folder: name it "
                                                       "itself",
                                                       file));
            }
            free(file);
            found++;
        }
    }
    if (folder == NULL) {
        note_unreadable(input, weft_cli_format("%s: %s", path, say_file_error(errno)));
    } else {
        closedir(folder);
    }
    if (folder != NULL && found == 0) {
        note_unreadable(input, weft_cli_format("%s: no file in it ends with .dump: " WANTED, path));
    }
}

void weft_inspect_add_file(struct inspect_input *input, const char *path)
{
    if (add_unless_folder(input, path)) {
        add_folder(input, path);
    }
}

/* ---- processes ---- */

static bool is_stopped(int64_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
    const char *behind = weft_file_read(path, text, sizeof(text)) ? strrchr(text, ')') : NULL;
    return behind != NULL && behind[1] == ' ' && (behind[2] == 'T' || behind[2] == 't');
}

static void add_memory(struct inspect_input *input, int64_t pid, const char *link)
{
    int64_t seen_ns = (int64_t)weft_clock_real_ns();
    struct weft_dump dump;
    size_t len = 0;
    int fd = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    uint8_t *bytes = fd >= 0 ? read_all(fd, &len) : NULL;
    struct weft_recorder_time read_at = weft_recorder_now();
    int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    if (bytes == NULL) {
        note_unreadable(input, weft_cli_format("pid %lld: its flight recorder cannot be read: %s",
                                               (long long)pid, strerror(error)));
        return;
    }
    if (weft_wire_dump_open(bytes, len, &read_at, &dump) != WEFT_OK) {
        note_unreadable(input, weft_cli_format("pid %lld: its flight recorder: %s", (long long)pid,
                                               weft_error_text()));
        free(bytes);
        return;
    }
    struct inspect_source *source =
        add(input, weft_cli_format("pid %lld", (long long)pid), bytes, &dump);
    source->is_live = true;
    source->is_stopped = is_stopped(pid);
    source->seen_ns = seen_ns;
}

static bool add_children(struct inspect_input *input, int64_t pid, int depth);

/* true: it has recorders, readable or not. */
static bool add_fds(struct inspect_input *input, int64_t pid, const char *path, DIR *folder)
{
    char link[64 + 256], target[256];
    const struct dirent *entry;
    bool is_found = false;
    while ((entry = readdir(folder)) != NULL) {
        snprintf(link, sizeof(link), "%s/%s", path, entry->d_name);
        ssize_t len = readlink(link, target, sizeof(target) - 1);
        target[len > 0 ? len : 0] = '\0';
        if (strncmp(target, LINK, strlen(LINK)) == 0) {
            add_memory(input, pid, link);
            is_found = true;
        }
    }
    return is_found;
}

static const char *say_why(int error)
{
    return error == ENOENT   ? "there is no such process"
           : error == EACCES ? "it belongs to somebody else; be its user, or root"
                             : strerror(error);
}

/* false: neither it nor who it started has any; of one that was asked for it is said why. */
static bool add_process(struct inspect_input *input, int64_t pid, int depth)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%lld/fd", (long long)pid);
    DIR *folder = opendir(path);
    if (folder == NULL) { /* a child may have ended meanwhile, or be nobody's business */
        if (depth == 0) {
            note_unreadable(input, weft_cli_format("pid %lld: %s", (long long)pid, say_why(errno)));
        }
        return depth == 0;
    }
    bool is_found = add_fds(input, pid, path, folder);
    closedir(folder);
    return is_found || add_children(input, pid, depth);
}

/* Whoever started the ranks has none itself. */
static bool add_children(struct inspect_input *input, int64_t pid, int depth)
{
    char path[64], text[16384];
    bool is_found = false;
    char *next = text;
    snprintf(path, sizeof(path), "/proc/%lld/task/%lld/children", (long long)pid, (long long)pid);
    if (depth >= DEPTH_MAX || !weft_file_read(path, text, sizeof(text))) {
        return false;
    }
    for (long child = strtol(next, &next, 10); child > 0; child = strtol(next, &next, 10)) {
        is_found |= add_process(input, child, depth + 1);
    }
    return is_found;
}

void weft_inspect_add_pid(struct inspect_input *input, int64_t pid)
{
    if (!add_process(input, pid, 0)) {
        note(input, weft_cli_format(
                        "pid %lld: it has no flight recorder: it is not a rank, or has made no "
                        "call yet but a few short ones of the control plane, or WEFT_RECORDER "
                        "is 0",
                        (long long)pid));
    }
}

/* ---- all of them ---- */

static int by_rank(const void *left, const void *right)
{
    const struct inspect_source *a = left, *b = right;
    int order = memcmp(a->dump.job, b->dump.job, sizeof(a->dump.job));
    if (order == 0 && a->dump.epoch != b->dump.epoch) {
        order = a->dump.epoch < b->dump.epoch ? -1 : 1;
    }
    if (order == 0 && a->dump.rank != b->dump.rank) {
        order = a->dump.rank < b->dump.rank ? -1 : 1;
    }
    if (order == 0 && a->dump.taken.real_ns != b->dump.taken.real_ns) {
        order = a->dump.taken.real_ns > b->dump.taken.real_ns ? -1 : 1;
    }
    return order;
}

static void drop(struct inspect_source *source)
{
    free(source->name);
    free(source->bytes);
}

static bool is_same_rank(const struct inspect_source *a, const struct inspect_source *b)
{
    return memcmp(a->dump.job, b->dump.job, sizeof(a->dump.job)) == 0 &&
           a->dump.epoch == b->dump.epoch && a->dump.rank == b->dump.rank;
}

void weft_inspect_settle(struct inspect_input *input)
{
    size_t kept = 0;
    if (input->count > 0) {
        qsort(input->sources, input->count, sizeof(*input->sources), by_rank);
    }
    for (size_t i = 0; i < input->count; i++) {
        struct inspect_source *source = &input->sources[i];
        if (kept > 0 && is_same_rank(&input->sources[kept - 1], source)) {
            note(input,
                 weft_cli_format("%s is an older recording of rank %u than %s: left out",
                                 source->name, source->dump.rank, input->sources[kept - 1].name));
            drop(source);
            continue;
        }
        input->sources[kept++] = *source;
    }
    input->count = kept;
}

void weft_inspect_close(struct inspect_input *input)
{
    for (size_t i = 0; i < input->count; i++) {
        drop(&input->sources[i]);
    }
    for (size_t i = 0; i < input->note_count; i++) {
        free(input->notes[i]);
    }
    free(input->sources);
    free(input->notes);
    *input = (struct inspect_input){0};
}
