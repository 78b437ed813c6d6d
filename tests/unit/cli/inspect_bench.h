/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of weft inspect: recordings of a few ranks, made here, and what is said of them. */
#ifndef WEFT_TESTS_INSPECT_BENCH_H
#define WEFT_TESTS_INSPECT_BENCH_H

#include "cli_support.h"

#include "wire/dump.h"

#include <dirent.h>

#define RANKS 4
#define ENTRIES 16
#define COMM UINT64_C(0xc0ffee)

struct bench {
    char folder[64];
    struct weft_recorder rank[RANKS];
    /* what recordings of failures say; the text NULL: words of the rank's own */
    weft_status_t status;
    uint32_t blamed; /* + 1 */
    const char *text;
};

static inline void open_ranks(struct bench *bench)
{
    *bench = (struct bench){.folder = "/tmp/weft-test-inspect-XXXXXX", .status = WEFT_ERR_TIMEOUT};
    assert_non_null(mkdtemp(bench->folder));
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const struct weft_recorder_spec spec = {
            .entries = ENTRIES, .job = "job", .rank = rank, .ranks = RANKS, .host = "node7"};
        weft_recorder_open(&spec, &bench->rank[rank]);
        assert_non_null(bench->rank[rank].image);
        weft_recorder_comm_open(&bench->rank[rank], COMM, rank, RANKS);
    }
}

static inline void close_ranks(struct bench *bench)
{
    const struct dirent *entry;
    DIR *folder = opendir(bench->folder);
    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        unlinkat(dirfd(folder), entry->d_name, 0);
    }
    closedir(folder);
    assert_int_equal(rmdir(bench->folder), 0);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        weft_recorder_close(&bench->rank[rank]);
    }
}

static inline uint64_t begin(struct bench *bench, uint32_t rank, uint32_t number, uint32_t coll)
{
    const struct weft_record_call call = {
        .comm = COMM,
        .count = 100,
        .number = number,
        .signature = 1000 + coll,
        .chain = 1,
        .what = weft_record_what(coll, WEFT_F32, WEFT_SUM,
                                 weft_recorder_name(&bench->rank[rank], "ring"), 0)};
    return weft_recorder_begin(&bench->rank[rank], &call);
}

static inline void do_one(struct bench *bench, uint32_t rank, uint32_t number, uint32_t coll)
{
    weft_recorder_end(&bench->rank[rank], begin(bench, rank, number, coll), WEFT_OK);
}

static inline void do_all(struct bench *bench, uint32_t count)
{
    for (uint32_t number = 0; number < count; number++) {
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            do_one(bench, rank, number, WEFT_ALLREDUCE);
        }
    }
}

static inline void save(struct bench *bench, uint32_t rank, enum weft_record_reason reason)
{
    size_t len = weft_recorder_len(&bench->rank[rank]);
    struct weft_recording *copy = aligned_alloc(4096, (len + 4095) / 4096 * 4096);
    char path[128];
    FILE *file;
    assert_non_null(copy);
    memset(copy, 0, len);
    weft_recorder_copy(&bench->rank[rank], copy);
    copy->head.reason = reason;
    copy->head.status = reason == WEFT_RECORD_FAILED ? bench->status : WEFT_OK;
    copy->head.blamed = reason == WEFT_RECORD_FAILED ? bench->blamed : 0;
    snprintf(copy->head.text, sizeof(copy->head.text), "the words of rank %u", rank);
    if (bench->text != NULL) {
        snprintf(copy->head.text, sizeof(copy->head.text), "%s", bench->text);
    }
    weft_wire_dump_seal(copy, len);
    snprintf(path, sizeof(path), "%s/%u.dump", bench->folder, rank);
    file = fopen(path, "wbe");
    assert_non_null(file);
    assert_int_equal(fwrite(copy, 1, len, file), len);
    fclose(file);
    free(copy);
}

static inline void save_all(struct bench *bench, enum weft_record_reason reason)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        save(bench, rank, reason);
    }
}

static inline void assert_width(const char *text)
{
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        assert_in_range(strcspn(line, "\n"), 0, 100);
    }
}

/* Sentences are wrapped: here they are not. */
static inline void assert_says(const struct cli *cli, const char *words)
{
    char *text = strdup(cli->out);
    assert_non_null(text);
    for (char *at = strchr(text, '\n'); at != NULL; at = strchr(at, '\n')) {
        *at = ' ';
    }
    assert_has(text, words);
    free(text);
}

#endif
