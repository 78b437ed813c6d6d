/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From what was measured to a calibration. Rates and times are taken over; what waiting costs in a crowd is
 * found by asking the model: its prediction is a straight line in it.
 */
#include "tune_coll.h"

#include <math.h>

#define LATENCY_LEAST 0.1 /* of half a round trip */

/* Three digits say all that a measurement knows. */
static double round_off(double number)
{
    double scale = pow(10, 2 - floor(log10(number)));

    return round(number * scale) / scale;
}

static void take(double *to, double measured)
{
    if (measured > 0) {
        *to = round_off(measured);
    }
}

static void take_path(struct weft_plan_path *path, const struct tune_coll_path *seen)
{
    if (seen->half_s <= 0) {
        return;
    }
    double most = seen->half_s * (1 - LATENCY_LEAST) / 2;
    double message_s = seen->message_s > 0 && seen->message_s < most ? seen->message_s : most;

    take(&path->message_s, message_s);
    take(&path->latency_s, seen->half_s - 2 * message_s);
    take(&path->rate, seen->rate);
}

/* Seconds that the model gives this plan of 8 bytes, with this calibration. < 0: none. */
static double predict(const struct tune_coll_seen *seen, const char *algo, uint32_t inside,
                      const struct weft_plan_calibration *calibration)
{
    struct weft_plan_facts facts;
    struct weft_plan_sim *sim = weft_plan_sim_open();
    struct weft_plan_run run = {.bytes = 8};
    struct weft_plan_cost cost;
    struct weft_plan plan;
    const struct weft_plan_builder *builder = weft_plan_find(algo);
    bool is_fine = sim != NULL && builder != NULL &&
                   weft_plan_shape(builder, WEFT_ALLREDUCE, seen->crowd, 0, 1, &plan);

    weft_plan_facts_default(seen->crowd, seen->cores, &facts);
    facts.inside = inside;
    facts.calibration = *calibration;
    is_fine = is_fine && weft_plan_sim_run(sim, &facts, &plan, &run, &cost) == WEFT_RUN_DONE;
    weft_plan_sim_close(sim);
    return is_fine ? cost.time_s : -1;
}

struct crowd {
    const char *algo;
    uint32_t inside;
    double measured_s;
};

/* wait: a number of the calibration. It stays when the crowd was not slower than the model without it. */
static void take_wait(const struct tune_coll_seen *seen, const struct crowd *crowd,
                      struct weft_plan_calibration *calibration, double *wait)
{
    const double unit = 1e-6;
    double before = *wait, without, with;

    if (crowd->measured_s <= 0 || seen->crowd <= seen->cores) {
        return;
    }
    *wait = 0;
    without = predict(seen, crowd->algo, crowd->inside, calibration);
    *wait = unit;
    with = predict(seen, crowd->algo, crowd->inside, calibration);
    *wait = before;
    if (without >= 0 && with > without && crowd->measured_s > without) {
        take(wait, unit * (crowd->measured_s - without) / (with - without));
    }
}

void weft_tune_coll_fit(const struct tune_coll_seen *seen,
                        struct weft_plan_calibration *calibration_p)
{
    struct weft_plan_calibration *to = calibration_p;
    const struct crowd tcp = {"doubling", WEFT_INSIDE_TCP, seen->crowd_tcp_s};
    const struct crowd shm = {"oneshot", WEFT_INSIDE_SHM, seen->crowd_shm_s};

    weft_plan_calibration_default(to);
    take_path(&to->shm, &seen->shm);
    take_path(&to->loopback, &seen->tcp);
    take(&to->flag_s, seen->flag_s);
    take(&to->copy_rate, seen->copy_rate);
    take(&to->reduce_rate, seen->add_rate);
    take(&to->slot_write_rate, seen->write_rate);
    take(&to->slot_read_rate, seen->read_rate);
    take(&to->memory_rate, seen->memory_rate);
    take_wait(seen, &tcp, to, &to->loopback.wait_s);
    take_wait(seen, &shm, to, &to->flag_wait_s);
    /* between hosts: the same cores do the same work; how far it is, this host cannot know */
    to->net.rate = to->loopback.rate;
    to->net.message_s = to->loopback.message_s;
    to->net.wait_s = to->loopback.wait_s;
}
