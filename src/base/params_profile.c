/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The profile: settings that `weft tune` found for this machine, read before the environment.
 *
 *     # machine: AMD EPYC 9R14; 96 CPUs; eth0 25G, eth1 25G
 *     WEFT_CHUNK = 512K
 *
 * Most machines have none: then it is one open() that fails. A profile is a help, never a reason not to
 * start: whatever is wrong with it is one warning, and nothing of it is used. It may set only what
 * changes speed, so that whoever can write it cannot redirect a job; and only its owner, or root, may
 * be able to write it. A program that runs with somebody else's rights (setuid) reads none.
 */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX_LEN 8192
#define SHOWN_LEN 48 /* of a word that is not understood */

static const enum weft_param allowed[] = {
    WEFT_PARAM_CHUNK, WEFT_PARAM_WINDOW, WEFT_PARAM_LANES,    WEFT_PARAM_STRATEGY,
    WEFT_PARAM_EAGER, WEFT_PARAM_TCP_CC, WEFT_PARAM_SHM_POOL, WEFT_PARAM_COSTS,
};

struct profile {
    const char *path;             /* lent */
    char bytes[FILE_MAX_LEN + 1]; /* cut into lines by zeros while it is read */
    size_t len;
    const char *machine;                 /* into bytes; NULL: it fits everywhere */
    const char *value[WEFT_PARAM_COUNT]; /* into bytes; NULL: not said */
    char *text;                          /* lent: what is wrong */
};

static bool complain(struct profile *profile, const char *fmt, ...) WEFT_PRINTF(2, 3);
static bool complain(struct profile *profile, const char *fmt, ...)
{
    int used = snprintf(profile->text, WEFT_PROFILE_TEXT_LEN, "profile %.255s", profile->path);
    va_list args;

    va_start(args, fmt);
    vsnprintf(profile->text + used, WEFT_PROFILE_TEXT_LEN - (size_t)used, fmt, args);
    va_end(args);
    return false;
}

/* ---- the file ---- */

bool weft_profile_path(char path[WEFT_PROFILE_PATH_LEN])
{
    const char *base = secure_getenv("XDG_CONFIG_HOME"), *below = "";
    int len;

    if (base == NULL || base[0] != '/') {
        base = secure_getenv("HOME");
        below = "/.config";
    }
    if (base == NULL || base[0] != '/') {
        return false;
    }
    len = snprintf(path, WEFT_PROFILE_PATH_LEN, "%s%s/weft/profile", base, below);
    return len < WEFT_PROFILE_PATH_LEN;
}

/* Whoever else could write it could slow down our jobs, or fill our log. */
static bool check_file(struct profile *profile, int fd)
{
    struct stat facts;

    if (fstat(fd, &facts) != 0) {
        return complain(profile, " is not used: %s", strerror(errno));
    }
    if (!S_ISREG(facts.st_mode)) {
        return complain(profile, " is not used: it is not a regular file");
    }
    if (facts.st_uid != geteuid() && facts.st_uid != 0) {
        return complain(profile, " is not used: it belongs to user %u, not to us (user %u) or root",
                        (unsigned)facts.st_uid, (unsigned)geteuid());
    }
    if ((facts.st_mode & 022) != 0) {
        return complain(profile, " is not used: it has mode %04o, others may write it: chmod go-w",
                        (unsigned)facts.st_mode & 07777);
    }
    return true;
}

static bool read_bytes(struct profile *profile, int fd)
{
    while (profile->len < sizeof(profile->bytes)) {
        ssize_t got =
            read(fd, profile->bytes + profile->len, sizeof(profile->bytes) - profile->len);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return complain(profile, " is not used: %s", strerror(errno));
        }
        if (got == 0) {
            profile->bytes[profile->len] = '\0';
            return true;
        }
        profile->len += (size_t)got;
    }
    return complain(profile, " is not used: it is longer than %d bytes", FILE_MAX_LEN);
}

/* ---- what it says ---- */

static char *trim(char *text)
{
    size_t len;

    text += strspn(text, " \t");
    len = strlen(text);
    while (len > 0 && strchr(" \t\r", text[len - 1]) != NULL) {
        text[--len] = '\0';
    }
    return text;
}

static bool is_allowed(unsigned param)
{
    for (size_t i = 0; i < WEFT_COUNT_OF(allowed); i++) {
        if (allowed[i] == param) {
            return true;
        }
    }
    return false;
}

static bool read_setting(struct profile *profile, unsigned number, char *name, char *value)
{
    unsigned param = weft_params_find(name, strlen(name));
    char why[WEFT_REFUSAL_LEN];

    if (param == WEFT_PARAM_COUNT) {
        const char *nearest = weft_params_nearest(name);

        return complain(profile, ", line %u, is not used: there is no setting %.*s%s%s%s", number,
                        SHOWN_LEN, name, nearest ? "; did you mean " : "", nearest ? nearest : "",
                        nearest ? "?" : "");
    }
    if (!is_allowed(param)) {
        return complain(profile, ", line %u, is not used: %s cannot come from a profile", number,
                        name);
    }
    if (weft_params_refuse(param, value, why)) {
        return complain(profile, ", line %u, is not used: %s", number, why);
    }
    profile->value[param] = value; /* of two of a name the later counts */
    return true;
}

static bool read_line(struct profile *profile, unsigned number, char *line)
{
    char *equals;

    line = trim(line);
    if (strncmp(line, WEFT_PROFILE_MACHINE, strlen(WEFT_PROFILE_MACHINE)) == 0) {
        profile->machine = line + strlen(WEFT_PROFILE_MACHINE);
    }
    if (line[0] == '\0' || line[0] == '#') {
        return true;
    }
    equals = strchr(line, '=');
    if (equals == NULL || equals == line) {
        return complain(profile, ", line %u, is not used: expected NAME = VALUE, not \"%.*s\"",
                        number, SHOWN_LEN, line);
    }
    *equals = '\0';
    return read_setting(profile, number, trim(line), trim(equals + 1));
}

static bool read_lines(struct profile *profile)
{
    char *line = profile->bytes, *end = profile->bytes + profile->len;

    for (unsigned number = 1; line < end; number++) {
        size_t len = strcspn(line, "\n");

        if (line[len] == '\0' && line + len < end) {
            return complain(profile, ", line %u, is not used: this is not text", number);
        }
        line[len] = '\0';
        if (!read_line(profile, number, line)) {
            return false;
        }
        line += len + 1;
    }
    return true;
}

/* Asked once per process and line: the answer costs more than all other steps. */
static bool fits_here(struct profile *profile)
{
    static _Atomic uint64_t known; /* hash of a line that fits */
    uint64_t hash;
    char what[256];

    if (profile->machine == NULL) {
        return true;
    }
    hash = weft_params_hash(profile->machine);
    if (atomic_load_explicit(&known, memory_order_relaxed) == hash) {
        return true;
    }
    if (weft_machine_differs("", profile->machine, what, sizeof(what))) {
        return complain(profile, " is stale and not used: %s; `weft tune` makes a new one", what);
    }
    atomic_store_explicit(&known, hash, memory_order_relaxed);
    return true;
}

static void read_profile(struct weft_params *params, const char *path, int fd, char *text)
{
    struct profile profile;

    memset(profile.value, 0, sizeof(profile.value));
    profile.path = path;
    profile.len = 0;
    profile.machine = NULL;
    profile.text = text;
    if (!check_file(&profile, fd) || !read_bytes(&profile, fd) || !read_lines(&profile) ||
        !fits_here(&profile)) {
        return;
    }
    for (size_t i = 0; i < WEFT_COUNT_OF(allowed); i++) {
        if (profile.value[allowed[i]] != NULL) {
            weft_params_keep(params, allowed[i], profile.value[allowed[i]], WEFT_ORIGIN_PROFILE);
        }
    }
}

/* is_named: by WEFT_PROFILE, so that it is missed when it is not there. */
static void load_from(struct weft_params *params, const char *path, bool is_named, char *text)
{
    /* non-blocking: opening a pipe must not wait for a writer */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd >= 0) {
        weft_fd_own(fd);
        read_profile(params, path, fd, text);
        weft_fd_close(fd);
    } else if (is_named || (errno != ENOENT && errno != ENOTDIR && errno != EACCES)) {
        snprintf(text, WEFT_PROFILE_TEXT_LEN, "profile %.255s is not used: %s", path,
                 strerror(errno));
    }
}

void weft_profile_load(struct weft_params *params, char text[WEFT_PROFILE_TEXT_LEN])
{
    const char *named = secure_getenv("WEFT_PROFILE");
    char path[WEFT_PROFILE_PATH_LEN];

    text[0] = '\0';
    if (named != NULL && named[0] != '\0') {
        if (strcmp(named, "off") != 0) {
            load_from(params, named, true, text);
        }
    } else if (weft_profile_path(path)) {
        load_from(params, path, false, text);
    }
}
