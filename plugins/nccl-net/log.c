/* SPDX-License-Identifier: Apache-2.0 */
/* What the plugin and the rooms below it have to say goes to NCCL's logger. */
#include "nccl.h"

#include <stdio.h>

static _Atomic(nccl_logger_t) logger;

static void say(int level, const char *text)
{
    nccl_logger_t now = atomic_load(&logger);
    if (now != NULL) {
        now(level, NCCL_SUBSYSTEM_INIT | NCCL_SUBSYSTEM_NET, "weft", 0, "NET/Weft : %s", text);
    }
}

static void rooms_say(enum weft_log_level level, const char *line)
{
    say(level <= WEFT_LOG_WARN ? NCCL_LOG_WARN : NCCL_LOG_INFO, line);
}

void weft_nccl_log_open(nccl_logger_t given)
{
    atomic_store(&logger, given);
    weft_log_set_sink(given != NULL ? rooms_say : NULL);
}

void weft_nccl_say(int level, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    say(level, text);
}

int weft_nccl_news_level(void)
{
    static _Atomic uint64_t next_ns;
    uint64_t now_ns = weft_clock_ns(), due_ns = atomic_load(&next_ns);
    return now_ns >= due_ns &&
                   atomic_compare_exchange_strong(&next_ns, &due_ns, now_ns + 1000 * WEFT_NS_PER_MS)
               ? NCCL_LOG_INFO
               : NCCL_LOG_TRACE;
}

int weft_nccl_result(weft_status_t status)
{
    if (status == WEFT_OK) {
        return NCCL_SUCCESS;
    }
    weft_nccl_say(NCCL_LOG_WARN, "%s: %s", weft_status_name(status), weft_error_text());
    switch (status) {
    case WEFT_ERR_INVALID:
        return NCCL_INVALID_ARGUMENT;
    case WEFT_ERR_PEER:
    case WEFT_ERR_NETWORK:
    case WEFT_ERR_AUTH:
    case WEFT_ERR_PROTOCOL:
        return NCCL_REMOTE_ERROR;
    default:
        return NCCL_SYSTEM_ERROR;
    }
}
