/* SPDX-License-Identifier: Apache-2.0 */
#include "lanes.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STALL_S 0.05

static pthread_mutex_t print_lock = PTHREAD_MUTEX_INITIALIZER;

double lanes_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

bool lanes_is_over(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&input, 1, 0) > 0;
}

/* ---- what is said ---- */

static void print_text(const char *text)
{
    putchar('"');
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\') {
            putchar('\\');
        }
        putchar((unsigned char)*at < 0x20 ? '?' : *at);
    }
    putchar('"');
}

void lanes_print_failure(const char *name, const char *call, weft_status_t status)
{
    pthread_mutex_lock(&print_lock);
    printf("{\"event\": \"failed\", \"traffic\": \"%s\", \"call\": \"%s\", \"status\": \"%s\", "
           "\"at\": %.6f, \"text\": ",
           name, call, weft_status_name(status), lanes_now_s());
    print_text(weft_error_text());
    printf("}\n");
    fflush(stdout);
    pthread_mutex_unlock(&print_lock);
}

bool lanes_is_fine(struct traffic *traffic, const char *call, weft_status_t status)
{
    if (status != WEFT_OK && !traffic->has_failed) {
        lanes_print_failure(traffic->name, call, status);
        traffic->has_failed = true;
    }
    return status == WEFT_OK;
}

void lanes_print_stats(const struct traffic *traffic, const char *event, double since)
{
    double now = lanes_now_s();
    bool is_end = strcmp(event, "done") == 0;
    pthread_mutex_lock(&print_lock);
    printf(
        "{\"event\": \"%s\", \"traffic\": \"%s\", \"at\": %.6f, \"took\": %.6f, \"bytes\": %llu, "
        "\"rounds\": %llu, \"stall\": %.6f}\n",
        event, traffic->name, now, now - since,
        (unsigned long long)(is_end ? traffic->bytes : traffic->second_bytes),
        (unsigned long long)traffic->rounds, is_end ? traffic->worst_s : traffic->stall_s);
    fflush(stdout);
    pthread_mutex_unlock(&print_lock);
}

static void print_stall(const struct traffic *traffic, double from, double took)
{
    pthread_mutex_lock(&print_lock);
    printf("{\"event\": \"stall\", \"traffic\": \"%s\", \"at\": %.6f, \"took\": %.6f}\n",
           traffic->name, from, took);
    fflush(stdout);
    pthread_mutex_unlock(&print_lock);
}

void lanes_progress(struct traffic *traffic, size_t bytes)
{
    double now = lanes_now_s();
    if (traffic->last_s == 0) {
        traffic->began_s = traffic->second_s = traffic->last_s = now;
    }
    double gap = now - traffic->last_s;
    if (gap >= STALL_S) {
        print_stall(traffic, traffic->last_s, gap);
    }
    traffic->last_s = now;
    traffic->stall_s = gap > traffic->stall_s ? gap : traffic->stall_s;
    traffic->worst_s = gap > traffic->worst_s ? gap : traffic->worst_s;
    traffic->bytes += bytes;
    traffic->second_bytes += bytes;
    traffic->rounds++;
    if (now >= traffic->second_s + 1) {
        lanes_print_stats(traffic, "second", traffic->second_s);
        traffic->second_s = now;
        traffic->second_bytes = 0;
        traffic->stall_s = 0;
    }
}

/* ---- patterns ---- */

uint64_t lanes_stamp(const struct traffic *traffic, uint64_t round, char kind)
{
    uint64_t x = (round << 20 | (uint64_t)traffic->tag << 8 | (uint8_t)kind) * 0x9e3779b97f4a7c15U;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
    return (x ^ x >> 27) | 1;
}

static uint64_t word_at(uint64_t stamp, size_t index)
{
    return stamp + index * 0x94d049bb133111ebU;
}

void lanes_fill(uint8_t *data, size_t len, uint64_t stamp)
{
    size_t whole = len / 8 * 8;
    for (size_t i = 0; i < whole; i += 8) {
        uint64_t word = word_at(stamp, i / 8);
        memcpy(data + i, &word, 8);
    }
    uint64_t word = word_at(stamp, whole / 8);
    memcpy(data + whole, &word, len - whole);
}

static bool holds(const uint8_t *data, size_t len, uint64_t stamp)
{
    size_t whole = len / 8 * 8;
    uint64_t differs = 0;
    for (size_t i = 0; i < whole; i += 8) {
        uint64_t word;
        memcpy(&word, data + i, 8);
        differs |= word ^ word_at(stamp, i / 8);
    }
    uint64_t word = word_at(stamp, whole / 8);
    return differs == 0 && memcmp(data + whole, &word, len - whole) == 0;
}

void lanes_check(const struct traffic *traffic, const struct piece *piece, const char *when)
{
    if (holds(piece->data, piece->len, piece->stamp)) {
        return;
    }
    size_t first = piece->len, last = 0;
    for (size_t i = 0; i < piece->len; i++) {
        uint64_t word = word_at(piece->stamp, i / 8);
        if (piece->data[i] != (uint8_t)(word >> (i % 8 * 8))) {
            first = first < i ? first : i;
            last = i;
        }
    }
    pthread_mutex_lock(&print_lock);
    printf("{\"event\": \"wrong\", \"traffic\": \"%s\", \"rank\": %d, \"when\": \"%s\", \"round\": "
           "%llu, "
           "\"len\": %zu, \"first\": %zu, \"last\": %zu, \"at\": %.6f}\n",
           traffic->name, traffic->rank, when, (unsigned long long)traffic->rounds, piece->len,
           first, last, lanes_now_s());
    fflush(stdout);
    _exit(3);
}

void lanes_check_again(const struct traffic *traffic, struct piece *piece)
{
    if (piece->stamp != 0) {
        lanes_check(traffic, piece, "later");
    }
    piece->stamp = 0;
}

static void *allocated[256];
static _Atomic unsigned allocated_count;

void *lanes_allocate(size_t len)
{
    unsigned at = atomic_fetch_add(&allocated_count, 1);
    if (at >= sizeof(allocated) / sizeof(allocated[0]) || !(allocated[at] = calloc(1, len))) {
        fprintf(stderr, "out of memory\n");
        _exit(2);
    }
    return allocated[at];
}

void lanes_free_all(void)
{
    for (unsigned i = atomic_load(&allocated_count); i-- > 0;) {
        free(allocated[i]);
    }
}

void lanes_check_number(const struct traffic *traffic, const char *what, uint64_t is,
                        uint64_t should)
{
    if (is == should) {
        return;
    }
    pthread_mutex_lock(&print_lock);
    printf("{\"event\": \"wrong\", \"traffic\": \"%s\", \"rank\": %d, \"when\": \"%s\", \"round\": "
           "%llu, "
           "\"is\": %llu, \"should\": %llu, \"at\": %.6f}\n",
           traffic->name, traffic->rank, what, (unsigned long long)traffic->rounds,
           (unsigned long long)is, (unsigned long long)should, lanes_now_s());
    fflush(stdout);
    _exit(3);
}
