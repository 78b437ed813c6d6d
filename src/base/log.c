/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log: one line, one write(2), so that lines of different ranks on one stderr do not mix and no
 * lock of stdio is ever held across a fork. Levels are read without ordering: a line more or less
 * around a change of level matters to nobody.
 */
#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define LINE_LEN 1024
#define LIMIT_NS (1000 * WEFT_NS_PER_MS)
#define DEFAULT_LEVEL WEFT_LOG_WARN

static const char *const level_names[] = {
    [WEFT_LOG_OFF] = "off",   [WEFT_LOG_ERROR] = "error", [WEFT_LOG_WARN] = "warn",
    [WEFT_LOG_INFO] = "info", [WEFT_LOG_DEBUG] = "debug", [WEFT_LOG_TRACE] = "trace",
};

static const char *const room_names[WEFT_ROOM_COUNT] = {
#define ROOM_NAME(name) #name,
    WEFT_LOG_ROOMS(ROOM_NAME)
#undef ROOM_NAME
};

static _Atomic uint8_t levels[WEFT_ROOM_COUNT] = {
#define ROOM_LEVEL(name) DEFAULT_LEVEL,
    WEFT_LOG_ROOMS(ROOM_LEVEL)
#undef ROOM_LEVEL
};

static _Thread_local int line_rank = -1;
static _Atomic(void (*)(enum weft_log_level, const char *)) line_sink;

/* Index of the name equal to the first len bytes of word, in any case; -1: none. */
static int find_name(const char *const *names, size_t count, const char *word, size_t len)
{
    for (size_t i = 0; i < count; i++) {
        if (strlen(names[i]) == len && strncasecmp(names[i], word, len) == 0) {
            return (int)i;
        }
    }
    return -1;
}

/* One word of a spec, "net:debug" or "info"; -1 into room_p for the latter. */
static weft_status_t parse_word(const char *spec, const char *word, size_t len, int *room_p,
                                int *level_p)
{
    const char *colon = memchr(word, ':', len);
    const char *level_word = colon ? colon + 1 : word;
    size_t level_len = len - (size_t)(level_word - word);
    int room = -1;
    int level = find_name(level_names, WEFT_COUNT_OF(level_names), level_word, level_len);

    if (colon) {
        size_t room_len = (size_t)(colon - word);

        room = find_name(room_names, WEFT_ROOM_COUNT, word, room_len);
        if (room < 0) {
            return weft_fail(WEFT_ERR_INVALID, "log setting \"%.64s\": there is no room \"%.*s\"",
                             spec, (int)(room_len < 64 ? room_len : 64), word);
        }
    }
    if (level < 0) {
        return weft_fail(WEFT_ERR_INVALID,
                         "log setting \"%.64s\": \"%.*s\" is not a level (off, error, warn, info, "
                         "debug, trace)",
                         spec, (int)(level_len < 64 ? level_len : 64), level_word);
    }
    *room_p = room;
    *level_p = level;
    return WEFT_OK;
}

weft_status_t weft_log_configure(const char *spec)
{
    int wanted[WEFT_ROOM_COUNT];
    int others = DEFAULT_LEVEL;

    for (size_t i = 0; i < WEFT_ROOM_COUNT; i++) {
        wanted[i] = -1;
    }
    for (const char *word = spec; *word != '\0';) {
        size_t len = strcspn(word, ",");
        int room = -1;
        int level = DEFAULT_LEVEL;

        if (len > 0) {
            weft_status_t status = parse_word(spec, word, len, &room, &level);

            if (status != WEFT_OK) {
                return status;
            }
            if (room < 0) {
                others = level;
            } else {
                wanted[room] = level;
            }
        }
        word += len + (word[len] == ',');
    }
    for (size_t i = 0; i < WEFT_ROOM_COUNT; i++) {
        atomic_store_explicit(&levels[i], (uint8_t)(wanted[i] < 0 ? others : wanted[i]),
                              memory_order_relaxed);
    }
    return WEFT_OK;
}

void weft_log_set_rank(int rank)
{
    line_rank = rank;
}

void weft_log_set_sink(void (*sink)(enum weft_log_level level, const char *line))
{
    atomic_store(&line_sink, sink);
}

bool weft_log_is_on(enum weft_log_room room, enum weft_log_level level)
{
    return (unsigned)level <= atomic_load_explicit(&levels[room], memory_order_relaxed);
}

void weft_text_clean(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c != '\0'; c++) {
        if (*c < 0x20 || *c == 0x7f) {
            *c = '?';
        } else if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) {
            /* C1 controls in UTF-8: some terminals obey them like ESC sequences */
            c[0] = c[1] = '?';
        }
    }
}

void weft_log_write(enum weft_log_room room, enum weft_log_level level, const char *fmt, ...)
{
    int saved_errno = errno;
    char line[LINE_LEN + 1]; /* the newline takes the place of the final zero */
    size_t len;
    va_list args;
    void (*sink)(enum weft_log_level, const char *) = atomic_load(&line_sink);

    if (line_rank >= 0) {
        snprintf(line, LINE_LEN, "weft %s %s [rank %d]: ", room_names[room], level_names[level],
                 line_rank);
    } else {
        snprintf(line, LINE_LEN, "weft %s %s: ", room_names[room], level_names[level]);
    }
    len = strlen(line);
    va_start(args, fmt);
    vsnprintf(line + len, LINE_LEN - len, fmt, args);
    va_end(args);

    weft_text_clean(line + len);
    len += strlen(line + len);
    if (sink != NULL) {
        sink(level, line);
    } else {
        line[len++] = '\n';
        /* a log that cannot be written has nobody to complain to */
        (void)!write(STDERR_FILENO, line, len);
    }
    errno = saved_errno;
}

bool weft_log_limit(struct weft_log_limiter *limiter, uint64_t now_ns, uint32_t *held_back_p)
{
    uint64_t next_ns = atomic_load_explicit(&limiter->next_ns, memory_order_relaxed);

    if (now_ns < next_ns ||
        !atomic_compare_exchange_strong_explicit(&limiter->next_ns, &next_ns, now_ns + LIMIT_NS,
                                                 memory_order_relaxed, memory_order_relaxed)) {
        atomic_fetch_add_explicit(&limiter->held_back, 1, memory_order_relaxed);
        return false;
    }
    *held_back_p = atomic_exchange_explicit(&limiter->held_back, 0, memory_order_relaxed);
    return true;
}
