/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for a sweet spot among some hundred settings, each of which takes a tenth of a second
 * to probe and whose rate is noisy. Four steps, each within its part of the time:
 *
 *   1. a coarse grid (every second value of window and chunk), short probes, in random order, so
 *      that a budget that ends too soon has still seen every region; a setting whose first samples
 *      are far below the best is given up at once;
 *   2. climbing: the neighbours of the settings that may be the best, until none is new;
 *   3. halving: those that may be the best, again and again in turn, twice as long each round, half
 *      of them leaving after each, but none that is within the noise;
 *   4. among those that cannot be told apart, the one nearest to the usual settings.
 *
 * It measures through a function and reads time through another: tests run it on made-up rates.
 */
#include "tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PROBE_MS 100
#define PROBING(budget_ms) ((budget_ms)*2 / 3) /* steps 1 and 2 */
#define HOPELESS 0.6                           /* of the best so far */
#define NOISE_LEAST 0.01                       /* nobody repeats a measurement better than this */
#define PROBE_NOISE 0.03                       /* nor a short one than this */
#define CLIMBERS 6
#define FINALISTS 16
#define FINAL_ROUNDS 8

/* ---- points ---- */

static int by_value(const void *a, const void *b)
{
    float first = *(const float *)a, second = *(const float *)b;
    return first < second ? -1 : first > second;
}

static double median_of(float *sorted, unsigned count)
{
    qsort(sorted, count, sizeof(*sorted), by_value);
    return ((double)sorted[(count - 1) / 2] + (double)sorted[count / 2]) / 2;
}

void weft_tune_point_rate(struct tune_point *point)
{
    float scratch[TUNE_SAMPLES_MAX];
    unsigned count = point->sample_count;
    if (count == 0) {
        point->gbs = 0;
        point->noise = 1;
        return;
    }
    memcpy(scratch, point->samples, count * sizeof(*scratch));
    point->gbs = median_of(scratch, count);
    for (unsigned i = 0; i < count; i++) {
        scratch[i] = fabsf(point->samples[i] - (float)point->gbs);
    }
    /* two standard errors of a median, its scatter taken from the median deviation */
    double deviation = 1.4826 * median_of(scratch, count);
    double error = 2 * 1.2533 * deviation / sqrt(count) / (point->gbs > 0 ? point->gbs : 1);
    double least = count < 8 ? PROBE_NOISE : NOISE_LEAST;
    point->noise = error > least ? error : least;
}

struct tune_point *weft_tune_find(const struct tune_search *search,
                                  const struct tune_setting *setting)
{
    for (unsigned i = 0; i < search->count; i++) {
        if (memcmp(&search->point[i].setting, setting, sizeof(*setting)) == 0) {
            return &search->point[i];
        }
    }
    return NULL;
}

static unsigned find_top(const struct tune_search *search)
{
    unsigned top = 0;
    for (unsigned i = 1; i < search->count; i++) {
        top = search->point[i].gbs > search->point[top].gbs ? i : top;
    }
    return top;
}

static bool may_be_best(const struct tune_point *point, const struct tune_point *top)
{
    return !point->is_hopeless && point->gbs * (1 + point->noise) >= top->gbs * (1 - top->noise);
}

/* ---- time ---- */

static uint64_t spent_ms(const struct tune_search *search)
{
    return (search->clock(search->context) - search->began_ns) / WEFT_NS_PER_MS;
}

double weft_tune_progress(const struct tune_search *search)
{
    double used = (double)spent_ms(search) / (double)search->budget_ms;
    return used < 1 ? used : 1;
}

static uint64_t probe_ms(const struct tune_search *search)
{
    uint64_t share = PROBING(search->budget_ms) / 100;
    return share < PROBE_MS ? share + 1 : PROBE_MS;
}

/* ---- measuring ---- */

static bool measure(struct tune_search *search, struct tune_point *point, uint64_t ms,
                    double hopeless_gbs)
{
    if (!search->measure(search->context, &point->setting, ms, hopeless_gbs, point)) {
        return false;
    }
    weft_tune_point_rate(point);
    point->is_hopeless = point->gbs < hopeless_gbs;
    return true;
}

static bool probe(struct tune_search *search, const struct tune_setting *setting, uint64_t ms)
{
    struct tune_point *point = &search->point[search->count];
    double best = search->count > 0 ? search->point[find_top(search)].gbs : 0;
    if (search->count == TUNE_POINTS_MAX || weft_tune_find(search, setting) != NULL) {
        return true;
    }
    memset(point, 0, sizeof(*point));
    point->setting = *setting;
    search->count++;
    return measure(search, point, ms, search->is_exhaustive ? 0 : best * HOPELESS);
}

/* ---- 1: the grid ---- */

unsigned weft_tune_space_size(const struct tune_space *space)
{
    unsigned size = 1;
    for (unsigned axis = 0; axis < TUNE_AXES; axis++) {
        size *= space->count[axis];
    }
    return size;
}

static void nth_setting(const struct tune_space *space, unsigned n, struct tune_setting *setting_p)
{
    for (unsigned axis = 0; axis < TUNE_AXES; axis++) {
        setting_p->at[axis] = (uint8_t)(n % space->count[axis]);
        n /= space->count[axis];
    }
}

/* Window: first, middle, last of five; chunk: every second; lanes and strategy: all. */
static bool is_coarse(const struct tune_setting *setting)
{
    return setting->at[TUNE_WINDOW] % 2 == 0 && setting->at[TUNE_CHUNK] % 2 == 1;
}

/* The same order in every run: two tunings differ by what they measure, not by luck. */
static void shuffle(unsigned *order, unsigned count)
{
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    for (unsigned i = count; i > 1; i--) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        unsigned j = (unsigned)((state >> 33) % i);
        unsigned other = order[j];
        order[j] = order[i - 1];
        order[i - 1] = other;
    }
}

static bool sweep(struct tune_search *search, uint64_t ms, uint64_t until_ms)
{
    unsigned size = weft_tune_space_size(search->space);
    unsigned *order = weft_cli_alloc(size, sizeof(*order));
    bool is_fine = true;
    for (unsigned i = 0; i < size; i++) {
        order[i] = i;
    }
    shuffle(order, size);
    for (unsigned i = 0; i < size && is_fine; i++) {
        struct tune_setting setting;
        nth_setting(search->space, order[i], &setting);
        if (!search->is_exhaustive && !is_coarse(&setting)) {
            continue;
        }
        if (spent_ms(search) >= until_ms) {
            search->is_cut = true;
            break;
        }
        is_fine = probe(search, &setting, ms);
    }
    free(order);
    return is_fine;
}

/* ---- 2: climbing ---- */

static int by_rate(const void *a, const void *b)
{
    const struct tune_ref *first = a, *second = b;
    return first->point->gbs > second->point->gbs ? -1 : first->point->gbs < second->point->gbs;
}

void weft_tune_sort(struct tune_ref *list, unsigned count)
{
    qsort(list, count, sizeof(*list), by_rate);
}

/* Those that may be the best, fastest first; at most room. */
static unsigned list_hopeful(const struct tune_search *search, struct tune_ref *list, unsigned room)
{
    struct tune_ref all[TUNE_POINTS_MAX] = {{0}};
    const struct tune_point *top = &search->point[find_top(search)];
    unsigned count = 0;
    for (unsigned i = 0; i < search->count; i++) {
        if (may_be_best(&search->point[i], top)) {
            all[count++].point = &search->point[i];
        }
    }
    weft_tune_sort(all, count);
    count = count < room ? count : room;
    memcpy(list, all, count * sizeof(*list));
    return count;
}

static bool probe_neighbours(struct tune_search *search, struct tune_setting setting,
                             uint64_t until_ms)
{
    for (unsigned axis = 0; axis < TUNE_AXES; axis++) {
        for (int step = -1; step <= 1; step += 2) {
            struct tune_setting next = setting;
            int at = setting.at[axis] + step;
            if (at < 0 || at >= (int)search->space->count[axis]) {
                continue;
            }
            next.at[axis] = (uint8_t)at;
            if (spent_ms(search) >= until_ms) {
                search->is_cut = true;
                return true;
            }
            if (!probe(search, &next, probe_ms(search))) {
                return false;
            }
        }
    }
    return true;
}

static bool climb(struct tune_search *search, uint64_t until_ms)
{
    struct tune_ref climbers[CLIMBERS];
    for (unsigned before = 0; before != search->count && !search->is_cut;) {
        unsigned count = list_hopeful(search, climbers, CLIMBERS);
        before = search->count;
        for (unsigned i = 0; i < count; i++) {
            if (!probe_neighbours(search, climbers[i].point->setting, until_ms)) {
                return false;
            }
        }
    }
    return true;
}

/* ---- 3: halving ---- */

static unsigned distance(const struct tune_search *search, const struct tune_setting *setting)
{
    unsigned sum = 0;
    for (unsigned axis = 0; axis < TUNE_AXES; axis++) {
        int off = setting->at[axis] - search->space->usual.at[axis];
        /* more lanes are more connections, buffers and wake-ups: not for nothing */
        sum += (unsigned)abs(off) * (axis == TUNE_LANES ? 3 : 1);
    }
    return sum;
}

/* The fastest of those that may be the best, but a quarter of the places is for the ones nearest to the
 * usual: where everything is alike, they are to win, and must be measured as long. */
static unsigned list_finalists(const struct tune_search *search, struct tune_ref *list)
{
    struct tune_ref all[TUNE_POINTS_MAX] = {{0}};
    unsigned count = list_hopeful(search, all, TUNE_POINTS_MAX);
    for (unsigned place = FINALISTS * 3 / 4; place < FINALISTS && place < count; place++) {
        unsigned nearest = place;
        for (unsigned i = place + 1; i < count; i++) {
            nearest = distance(search, &all[i].point->setting) <
                              distance(search, &all[nearest].point->setting)
                          ? i
                          : nearest;
        }
        struct tune_ref ref = all[nearest];
        all[nearest] = all[place];
        all[place] = ref;
    }
    count = count < FINALISTS ? count : FINALISTS;
    memcpy(list, all, count * sizeof(*list));
    return count;
}

/* Half of them leave, but none that may be the best. */
static unsigned halve(struct tune_ref *list, unsigned count)
{
    unsigned kept = (count + 1) / 2;
    weft_tune_sort(list, count);
    while (kept < count && may_be_best(list[kept].point, list[0].point)) {
        kept++;
    }
    return kept;
}

/* One more measurement of each, within what is left; in turn, so that a slow minute of the machine
 * hits all of them alike. */
static bool repeat_all(struct tune_search *search, struct tune_ref *list, unsigned count,
                       uint64_t ms)
{
    for (unsigned i = 0; i < count; i++) {
        if (spent_ms(search) + ms > search->budget_ms) {
            return true;
        }
        if (!measure(search, list[i].point, ms, 0)) {
            return false;
        }
    }
    return true;
}

static bool settle(struct tune_search *search)
{
    struct tune_ref list[FINALISTS];
    unsigned count = list_finalists(search, list);
    uint64_t ms = probe_ms(search);
    for (unsigned round = 0; round < FINAL_ROUNDS && count > 0; round++) {
        uint64_t left = search->budget_ms - spent_ms(search);
        if (spent_ms(search) + ms >= search->budget_ms || (count == 1 && round > 1)) {
            break;
        }
        ms = ms * count > left ? left / count : ms;
        if (!repeat_all(search, list, count, ms)) {
            return false;
        }
        count = halve(list, count);
        ms *= 2;
    }
    return true;
}

/* ---- 4: the choice ---- */

static unsigned most_samples(const struct tune_search *search)
{
    unsigned most = 0;
    for (unsigned i = 0; i < search->count; i++) {
        most = search->point[i].sample_count > most ? search->point[i].sample_count : most;
    }
    return most;
}

/* A lucky probe is no winner: only what was measured about as long as the others counts. */
static void choose(struct tune_search *search)
{
    unsigned enough = search->is_exhaustive ? 1 : (most_samples(search) + 3) / 4;
    int top = -1, best = -1;
    for (unsigned i = 0; i < search->count; i++) {
        const struct tune_point *point = &search->point[i];
        if (point->sample_count >= enough && (top < 0 || point->gbs > search->point[top].gbs)) {
            top = (int)i;
        }
    }
    for (unsigned i = 0; i < search->count; i++) {
        const struct tune_point *point = &search->point[i];
        if (point->sample_count < enough ||
            point->gbs < search->point[top].gbs * (1 - NOISE_LEAST)) {
            continue;
        }
        if (best < 0 ||
            distance(search, &point->setting) < distance(search, &search->point[best].setting)) {
            best = (int)i;
        }
    }
    search->top = (unsigned)top;
    search->best = (unsigned)best;
}

bool weft_tune_search(struct tune_search *search)
{
    uint64_t probing_ms = PROBING(search->budget_ms);
    bool is_fine = true;
    search->point = weft_cli_alloc(TUNE_POINTS_MAX, sizeof(*search->point));
    search->count = 0;
    search->began_ns = search->clock(search->context);
    if (search->is_exhaustive) {
        is_fine =
            sweep(search, search->budget_ms / weft_tune_space_size(search->space), UINT64_MAX);
    } else {
        /* first the usual: something to compare with, also when time is short */
        is_fine = probe(search, &search->space->usual, probe_ms(search)) &&
                  sweep(search, probe_ms(search), probing_ms) && climb(search, probing_ms) &&
                  settle(search);
    }
    search->seconds = (double)spent_ms(search) / 1e3;
    if (is_fine) {
        choose(search);
    }
    return is_fine;
}

void weft_tune_search_close(struct tune_search *search)
{
    free(search->point);
    search->point = NULL;
}
