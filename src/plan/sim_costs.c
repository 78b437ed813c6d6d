/* SPDX-License-Identifier: Apache-2.0 */
/* How long a step keeps a core busy. */
#include "plan/sim.h"

static double max_of(double a, double b)
{
    return a > b ? a : b;
}

const struct weft_plan_path *weft_sim_path_of(const struct weft_plan_sim *sim, bool is_between)
{
    const struct weft_plan_calibration *calibration = &sim->facts->calibration;

    return is_between                              ? &calibration->net
           : sim->facts->inside == WEFT_INSIDE_SHM ? &calibration->shm
                                                   : &calibration->loopback;
}

double weft_sim_flag_s(const struct weft_plan_sim *sim)
{
    return sim->facts->calibration.flag_s;
}

/* Past the last cache the memory's rate counts, which all cores share; traffic is what is read and written
 * there per byte of result. */
static double bounded(const struct weft_plan_sim *sim, double seconds, double bytes, double traffic)
{
    return sim->is_past_cache ? max_of(seconds, bytes * traffic / sim->memory_rate) : seconds;
}

double weft_sim_copy_s(struct weft_plan_sim *sim, const struct weft_plan_step *step)
{
    const struct weft_plan_calibration *calibration = &sim->facts->calibration;
    double bytes = step->to.blocks * sim->block_bytes;

    sim->written += bytes;
    if (step->to.space == WEFT_SPACE_SLOT) {
        return bounded(sim, bytes / calibration->slot_write_rate, bytes, 1);
    }
    if (step->from.space == WEFT_SPACE_SLOT) {
        return bounded(sim, bytes / calibration->slot_read_rate, bytes, 1);
    }
    return bounded(sim, bytes / calibration->copy_rate, bytes, 2);
}

/* reduce_rate is of two sources and one result: three streams. */
double weft_sim_reduce_s(struct weft_plan_sim *sim, double bytes, uint32_t sources)
{
    double streams = (double)sources + 1;

    sim->written += bytes;
    return bounded(sim, bytes * streams / 3 / sim->facts->calibration.reduce_rate, bytes, 2);
}
