/* SPDX-License-Identifier: Apache-2.0 */
/* The job's secret: where it is read from, who may have been able to read it, what follows from it.
 */
#include "comm/launch.h"

#include "wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX_LEN 4096
#define TEXT_MIN_LEN 16

/* The secret of WEFT_SECRET_FD, kept because the descriptor is closed after the first reading. A
 * forked child finds its pages wiped, which the generation tells. */
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t *kept; /* vault memory; under kept_lock */
static int kept_fd = -1;
static pthread_once_t forks_watched = PTHREAD_ONCE_INIT;
static uint32_t kept_generation;

weft_status_t weft_comm_job_key(const uint8_t *secret, const char *job_name, uint8_t job[16],
                                uint8_t key[WEFT_SECRET_LEN])
{
    static const uint8_t zeros[WEFT_SECRET_LEN];
    uint8_t hash[32];
    weft_status_t status = weft_wire_crypto_open();

    if (status != WEFT_OK) {
        return status;
    }
    /* From the name alone: a rank with a wrong secret must find its job, and be refused there. */
    weft_wire_derive(zeros, "weft job", job_name, strlen(job_name), hash);
    memcpy(job, hash, 16);
    if (secret != NULL) {
        memcpy(key, secret, WEFT_SECRET_LEN);
    } else {
        weft_wire_open_key(job, key);
    }
    return WEFT_OK;
}

/* pread in full; a file that another rank reads too is no matter, the offset is not shared */
static ssize_t read_all(int fd, uint8_t *bytes, size_t room)
{
    size_t len = 0;

    while (len < room) {
        ssize_t got = pread(fd, bytes + len, room - len, (off_t)len);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return -1;
        }
        if (got == 0) {
            break;
        }
        len += (size_t)got;
    }
    return (ssize_t)len;
}

/* Under kept_lock. */
static weft_status_t keep_from_fd(int fd)
{
    uint8_t bytes[WEFT_SECRET_LEN + 1]; /* one more, to see a longer one */
    uint8_t *vault = kept != NULL ? kept : weft_secret_take();

    if (vault == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for the job's secret");
    }
    kept = vault;
    ssize_t len = read_all(fd, bytes, sizeof(bytes));
    if (len < 0) {
        return weft_fail_errno("reading the secret from WEFT_SECRET_FD=%d", fd);
    }
    if (len != WEFT_SECRET_LEN) {
        weft_secret_wipe(bytes, sizeof(bytes));
        return weft_fail(WEFT_ERR_INVALID, "WEFT_SECRET_FD=%d holds %s than %d bytes", fd,
                         len < WEFT_SECRET_LEN ? "less" : "more", WEFT_SECRET_LEN);
    }
    memcpy(kept, bytes, WEFT_SECRET_LEN);
    weft_secret_wipe(bytes, sizeof(bytes));
    kept_fd = fd;
    kept_generation = weft_process_generation();
    close(fd);
    return WEFT_OK;
}

/* Another thread of the parent may have held it. */
static void renew_lock_in_child(void)
{
    pthread_mutex_init(&kept_lock, NULL);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, renew_lock_in_child);
}

static weft_status_t secret_of_fd(int fd, uint8_t *secret)
{
    weft_status_t status = WEFT_OK;

    pthread_once(&forks_watched, watch_forks);
    pthread_mutex_lock(&kept_lock);
    if (kept_fd != fd) {
        status = keep_from_fd(fd);
    } else if (kept_generation != weft_process_generation()) {
        status = weft_fail(WEFT_ERR_FORKED, "the job's secret belongs to the parent process");
    }
    if (status == WEFT_OK) {
        memcpy(secret, kept, WEFT_SECRET_LEN);
    }
    pthread_mutex_unlock(&kept_lock);
    return status;
}

/* Whoever else could read the file could join the job; whoever else could write it could let us in.
 */
static weft_status_t check_file(const char *path, const struct stat *facts)
{
    unsigned mode = (unsigned)facts->st_mode & 07777;

    if (!S_ISREG(facts->st_mode)) {
        return weft_fail(WEFT_ERR_INVALID, "WEFT_SECRET_FILE=%s is not a regular file", path);
    }
    if (facts->st_uid != geteuid() && facts->st_uid != 0) {
        return weft_fail(
            WEFT_ERR_INVALID,
            "WEFT_SECRET_FILE=%s belongs to user %u, not to us (user %u) or root: chown it", path,
            (unsigned)facts->st_uid, (unsigned)geteuid());
    }
    if ((mode & 077) != 0) {
        return weft_fail(WEFT_ERR_INVALID,
                         "WEFT_SECRET_FILE=%s has mode %04o, others may open it: chmod 600 %s",
                         path, mode, path);
    }
    return WEFT_OK;
}

static bool is_text(const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] < 0x20 || bytes[i] == 0x7f) {
            return false;
        }
    }
    return true;
}

/* Text first: a final newline, which editors add and scripts drop, must not change the secret. */
static weft_status_t secret_of_bytes(const char *path, const uint8_t *bytes, size_t len,
                                     uint8_t *secret)
{
    static const uint8_t zeros[WEFT_SECRET_LEN];
    size_t text_len = len;

    while (text_len > 0 && (bytes[text_len - 1] == '\n' || bytes[text_len - 1] == '\r')) {
        text_len--;
    }
    if (is_text(bytes, text_len) && text_len >= TEXT_MIN_LEN) {
        weft_wire_derive(zeros, "weft secret file", bytes, text_len, secret);
        return WEFT_OK;
    }
    if (is_text(bytes, text_len) || len != WEFT_SECRET_LEN) {
        return weft_fail(
            WEFT_ERR_INVALID,
            "WEFT_SECRET_FILE=%s: expected %d bytes or text of %d characters and more; "
            "`openssl rand -hex 32` makes one",
            path, WEFT_SECRET_LEN, TEXT_MIN_LEN);
    }
    memcpy(secret, bytes, WEFT_SECRET_LEN);
    return WEFT_OK;
}

static weft_status_t secret_of_file(const char *path, uint8_t *secret)
{
    uint8_t bytes[FILE_MAX_LEN + 1];
    struct stat facts;
    weft_status_t status = weft_wire_crypto_open();

    if (status != WEFT_OK) {
        return status;
    }
    /* non-blocking: opening a pipe must not wait for a writer */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return weft_fail_errno("opening WEFT_SECRET_FILE=%s", path);
    }
    if (fstat(fd, &facts) != 0) {
        status = weft_fail_errno("reading the mode of WEFT_SECRET_FILE=%s", path);
    } else {
        status = check_file(path, &facts);
    }
    if (status == WEFT_OK) {
        ssize_t len = read_all(fd, bytes, sizeof(bytes));
        if (len < 0) {
            status = weft_fail_errno("reading WEFT_SECRET_FILE=%s", path);
        } else if (len > FILE_MAX_LEN) {
            status = weft_fail(WEFT_ERR_INVALID, "WEFT_SECRET_FILE=%s is longer than %d bytes",
                               path, FILE_MAX_LEN);
        } else {
            status = secret_of_bytes(path, bytes, (size_t)len, secret);
        }
        weft_secret_wipe(bytes, sizeof(bytes));
    }
    close(fd);
    return status;
}

weft_status_t weft_launch_secret(const struct weft_params *params, uint8_t secret[WEFT_SECRET_LEN],
                                 bool *is_found_p)
{
    int fd = (int)params->number[WEFT_PARAM_SECRET_FD];
    const char *path = params->text[WEFT_PARAM_SECRET_FILE];
    weft_status_t status = WEFT_OK;

    if (fd >= 0 && path[0] != '\0') {
        return weft_fail(WEFT_ERR_INVALID,
                         "WEFT_SECRET_FD=%d and WEFT_SECRET_FILE=%s both name a secret: unset one",
                         fd, path);
    }
    if (fd >= 0) {
        status = secret_of_fd(fd, secret);
    } else if (path[0] != '\0') {
        status = secret_of_file(path, secret);
    }
    if (status == WEFT_OK) {
        *is_found_p = fd >= 0 || path[0] != '\0';
    }
    return status;
}
