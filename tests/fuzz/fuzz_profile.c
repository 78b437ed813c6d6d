/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A profile, as weft_params_load() finds it in a file. Whatever it says, only what changes speed is taken over, all of
 * it or nothing, and what is wrong with it fits into a warning.
 */
#include "fuzz.h"

#include <sys/stat.h>
#include <unistd.h>

bool __wrap_weft_machine_differs(const char *root, const char *line, char *what, size_t room);

/* In place of a look at this machine, which costs a hundred times as much as all the rest. */
bool __wrap_weft_machine_differs(const char *root, const char *line, char *what, size_t room)
{
    (void)root;
    snprintf(what, room, "it has %s", line);
    return strlen(line) % 2 == 0;
}

const char *__wrap_weft_params_nearest(const char *env);

/* The same. */
const char *__wrap_weft_params_nearest(const char *env)
{
    return strlen(env) % 2 == 0 ? "WEFT_CHUNK" : NULL;
}

/* ---- its file, which is the input where it lies ---- */

#define PATH "/a/fuzzed/profile"
#define FD 4321

static struct {
    const uint8_t *at;
    size_t len;
    bool is_open;
} file;

int __real_open(const char *path, int flags, mode_t mode);
int __real_fstat(int fd, struct stat *facts);
ssize_t __real_read(int fd, void *bytes, size_t room);
int __real_close(int fd);
int __wrap_open(const char *path, int flags, mode_t mode);
int __wrap_fstat(int fd, struct stat *facts);
ssize_t __wrap_read(int fd, void *bytes, size_t room);
int __wrap_close(int fd);

int __wrap_open(const char *path, int flags, mode_t mode)
{
    if (strcmp(path, PATH) != 0) {
        return __real_open(path, flags, mode);
    }
    FUZZ_CHECK(!file.is_open);
    file.is_open = true;
    return FD;
}

int __wrap_fstat(int fd, struct stat *facts)
{
    if (fd != FD) {
        return __real_fstat(fd, facts);
    }
    *facts = (struct stat){.st_mode = S_IFREG | 0600, .st_uid = geteuid()};
    return 0;
}

ssize_t __wrap_read(int fd, void *bytes, size_t room)
{
    size_t len = room < file.len ? room : file.len;

    if (fd != FD) {
        return __real_read(fd, bytes, room);
    }
    FUZZ_CHECK(file.is_open);
    memcpy(bytes, file.at, len);
    file.at += len;
    file.len -= len;
    return (ssize_t)len;
}

int __wrap_close(int fd)
{
    if (fd != FD) {
        return __real_close(fd);
    }
    FUZZ_CHECK(file.is_open);
    file.is_open = false;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct weft_params clean, params;
    static bool is_ready;
    char text[WEFT_PROFILE_TEXT_LEN];

    if (!is_ready) {
        setenv("WEFT_PROFILE", "off", 1); /* of the first loading */
        FUZZ_CHECK(weft_params_load(&clean) == WEFT_OK);
        setenv("WEFT_PROFILE", PATH, 1);
        is_ready = true;
    }
    file.at = data;
    file.len = size;
    params = clean;
    memset(text, 'x', sizeof(text));
    weft_profile_load(&params, text);
    FUZZ_CHECK(!file.is_open);
    FUZZ_CHECK(strnlen(text, sizeof(text)) < sizeof(text));
    FUZZ_CHECK(text[0] == '\0' || memcmp(&params, &clean, sizeof(clean)) == 0);
    FUZZ_CHECK(params.number[WEFT_PARAM_TIMEOUT] == clean.number[WEFT_PARAM_TIMEOUT]);
    return 0;
}
