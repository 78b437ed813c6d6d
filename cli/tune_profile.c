/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a profile, as src/base/params_profile.c reads it: settings a person can read and change, under
 * comments that say where, when and how they were found. */
#include "tune.h"

#include "topo/topo.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static bool refuse(char why[TUNE_TEXT_LEN], const char *what, const char *path)
{
    snprintf(why, TUNE_TEXT_LEN, "%s %.480s: %s", what, path, strerror(errno));
    return false;
}

void weft_tune_profile_body(const struct tune_values *values, const char *how, char *text,
                            size_t room)
{
    char chunk[24];
    snprintf(text, room,
             "# found:   %s\n"
             "WEFT_WINDOW = %u\nWEFT_CHUNK = %s\nWEFT_LANES = %u\nWEFT_STRATEGY = %s\n",
             how, values->value[TUNE_WINDOW], weft_cli_print_size(values->value[TUNE_CHUNK], chunk),
             values->value[TUNE_LANES], weft_tune_strategy_name(values->value[TUNE_STRATEGY]));
}

static void write_head(FILE *out)
{
    char machine[WEFT_MACHINE_LEN], host[64] = "", date[64] = "";
    time_t now = time(NULL);
    struct tm parts;
    struct utsname system;
    weft_machine_print("", machine);
    weft_topo_hostname(host);
    if (localtime_r(&now, &parts) != NULL) {
        strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S %z", &parts);
    }
    fprintf(out,
            "# A profile by `weft tune`. Every start reads it; the environment wins over it;\n"
            "# `weft params` shows what holds; WEFT_PROFILE=off ignores it. See docs/tuning.md.\n"
            "%s %s\n# host:    %s\n# weft:    %s\n# kernel:  %s\n# date:    %s\n",
            WEFT_PROFILE_MACHINE, machine, host, weft_version(),
            uname(&system) == 0 ? system.release : "unknown", date);
}

static bool is_own_place(const char *path)
{
    char own[WEFT_PROFILE_PATH_LEN];
    return weft_profile_path(own) && strcmp(own, path) == 0;
}

bool weft_tune_profile_has_folder(const char *path, char why[TUNE_TEXT_LEN])
{
    const char *slash = path != NULL ? strrchr(path, '/') : NULL;
    struct stat facts;
    if (slash == NULL || slash == path || is_own_place(path)) {
        return true;
    }
    char *folder = weft_cli_format("%.*s", (int)(slash - path), path);
    bool is_there = stat(folder, &facts) == 0;
    if (is_there && !S_ISDIR(facts.st_mode)) {
        errno = ENOTDIR;
        is_there = false;
    }
    is_there = is_there || refuse(why, "--output: the folder", folder);
    free(folder);
    return is_there;
}

/* The folders above path, ours alone: of our own place only. Elsewhere a missing one is a slip of the pen. */
static bool make_folders(const char *path, char why[TUNE_TEXT_LEN])
{
    if (!is_own_place(path)) {
        return true;
    }
    char *folder = weft_cli_format("%s", path);
    bool is_fine = true;
    for (char *at = strchr(folder + 1, '/'); at != NULL && is_fine; at = strchr(at + 1, '/')) {
        *at = '\0';
        if (mkdir(folder, 0700) != 0 && errno != EEXIST) {
            is_fine = refuse(why, "cannot make the folder", folder);
        }
        *at = '/';
    }
    free(folder);
    return is_fine;
}

/* path ends in XXXXXX, which a free name replaces */
static bool write_file(char *path, const char *body, char why[TUNE_TEXT_LEN])
{
    int fd = mkostemp(path, O_CLOEXEC);
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (out == NULL) {
        return refuse(why, "cannot write", path);
    }
    fchmod(fd, 0644); /* whatever the umask: readable, and ours to write */
    write_head(out);
    fputs(body, out);
    bool is_fine = fflush(out) == 0 && !ferror(out);
    is_fine = fclose(out) == 0 && is_fine;
    return is_fine || refuse(why, "cannot write", path);
}

bool weft_tune_profile_write(const char *path, const char *body, char why[TUNE_TEXT_LEN])
{
    struct stat facts;
    if (lstat(path, &facts) == 0 && !S_ISREG(facts.st_mode)) {
        /* a link, a pipe, /dev/stdout: write through it, do not replace it */
        FILE *out = fopen(path, "we");
        if (out == NULL) {
            return refuse(why, "cannot write", path);
        }
        write_head(out);
        fputs(body, out);
        return fclose(out) == 0 || refuse(why, "cannot write", path);
    }
    if (!make_folders(path, why)) {
        return false;
    }
    char *fresh = weft_cli_format("%s.XXXXXX", path);
    bool is_fine = write_file(fresh, body, why);
    if (is_fine && rename(fresh, path) != 0) {
        is_fine = refuse(why, "cannot write", path);
    }
    if (!is_fine) {
        unlink(fresh);
    }
    free(fresh);
    return is_fine;
}
