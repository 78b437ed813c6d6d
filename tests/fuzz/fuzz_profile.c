/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A profile, as weft_params_load() finds it in a file. Whatever it says, only what changes speed is taken over, all of
 * it or nothing, and what is wrong with it fits into a warning.
 */
#include "fuzz.h"

#include <sys/mman.h>
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

static int open_file(char *path, size_t room)
{
    int fd = memfd_create("profile", MFD_CLOEXEC);

    FUZZ_CHECK(fd >= 0 && fchmod(fd, 0600) == 0);
    snprintf(path, room, "/proc/self/fd/%d", fd);
    setenv("WEFT_PROFILE", "off", 1); /* of the first loading */
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct weft_params clean, params;
    static char path[64];
    static int fd = -1;
    char text[WEFT_PROFILE_TEXT_LEN];

    if (fd < 0) {
        fd = open_file(path, sizeof(path));
        FUZZ_CHECK(weft_params_load(&clean) == WEFT_OK);
        setenv("WEFT_PROFILE", path, 1);
    }
    FUZZ_CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    params = clean;
    memset(text, 'x', sizeof(text));
    weft_profile_load(&params, text);
    FUZZ_CHECK(strnlen(text, sizeof(text)) < sizeof(text));
    FUZZ_CHECK(text[0] == '\0' || memcmp(&params, &clean, sizeof(clean)) == 0);
    FUZZ_CHECK(params.number[WEFT_PARAM_TIMEOUT] == clean.number[WEFT_PARAM_TIMEOUT]);
    return 0;
}
