/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statuses and the calling thread's error text. The text is formatted aside first, so that a caller
 * may wrap the previous one: weft_fail(status, "while joining: %s", weft_error_text()).
 */
#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define NUMBER_TEXT_OF(number) #number
#define NUMBER_TEXT(number) NUMBER_TEXT_OF(number)

static _Thread_local char error_text[WEFT_ERROR_TEXT_LEN];

const char *weft_status_name(weft_status_t status)
{
    switch (status) {
#define STATUS_NAME(name, number, sentence)                                                        \
    case WEFT_##name:                                                                              \
        return #name;
        WEFT_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
    }
    return "ERR_UNKNOWN";
}

const char *weft_status_text(weft_status_t status)
{
    switch (status) {
#define STATUS_TEXT(name, number, sentence)                                                        \
    case WEFT_##name:                                                                              \
        return sentence;
        WEFT_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "a status that this version does not know";
}

const char *weft_error_text(void)
{
    return error_text;
}

const char *weft_version(void)
{
    return NUMBER_TEXT(WEFT_VERSION_MAJOR) "." NUMBER_TEXT(WEFT_VERSION_MINOR) "." NUMBER_TEXT(
        WEFT_VERSION_PATCH);
}

/* Makes `text` the thread's error text; errno survives, because callers look at it afterwards. */
static weft_status_t keep(weft_status_t status, char text[WEFT_ERROR_TEXT_LEN], int saved_errno)
{
    weft_text_clean(text);
    memcpy(error_text, text, strlen(text) + 1);
    weft_log(base, INFO, "%s: %s", weft_status_name(status), text);
    errno = saved_errno;
    return status;
}

void weft_fail_record(weft_status_t status, const char *fmt, ...)
{
    int saved_errno = errno;
    char text[WEFT_ERROR_TEXT_LEN];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    keep(status, text, saved_errno);
}

/* What an operator needs when descriptors run out: whose they are and where the limit is. */
static void explain_descriptors(int error, char *text, size_t room)
{
    struct rlimit limit = {0, 0};

    if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        snprintf(text, room, " (limit %llu, of which %u are Weft's; raise it with ulimit -n)",
                 (unsigned long long)limit.rlim_cur, weft_fd_count());
    } else if (error == ENFILE) {
        snprintf(text, room,
                 " (the host's limit, of which %u are Weft's; raise it with sysctl fs.file-max)",
                 weft_fd_count());
    }
}

weft_status_t weft_fail_errno(const char *fmt, ...)
{
    int saved_errno = errno;
    char reason_room[64];
    char hint[128] = "";
    char tail[256];
    char text[WEFT_ERROR_TEXT_LEN];
    size_t tail_len, len;
    va_list args;

    explain_descriptors(saved_errno, hint, sizeof(hint));
    snprintf(tail, sizeof(tail), ": %.100s%s",
             strerror_r(saved_errno, reason_room, sizeof(reason_room)), hint);
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);

    /* a long subject must not push the reason out */
    tail_len = strlen(tail);
    len = strlen(text);
    if (len + tail_len >= sizeof(text)) {
        len = sizeof(text) - 1 - tail_len;
    }
    memcpy(text + len, tail, tail_len + 1);
    return keep(saved_errno == ENOMEM ? WEFT_ERR_MEMORY : WEFT_ERR_SYSTEM, text, saved_errno);
}
