/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages in the model. A message is a note; it waits in its channel (sender, offset to the receiver)
 * until its other half comes. Then it moves: its sender's core copies it, the NICs of both hosts are taken
 * one after another, its receiver's core copies it out while it still comes in. Short ones move before
 * their receive is known.
 */
#include "plan/sim.h"

static double max_of(double a, double b)
{
    return a > b ? a : b;
}

/* ---- notes and channels ---- */

static uint32_t take_note(struct weft_plan_sim *sim)
{
    uint32_t at = sim->free_note;

    if (at != WEFT_SIM_NONE) {
        sim->free_note = sim->note[at].next;
        return at;
    }
    struct sim_note *grown =
        weft_sim_grow(sim, SIM_NOTES, sim->note, (size_t)sim->note_count + 1, sizeof(*sim->note));
    if (grown == NULL) {
        sim->has_no_memory = true;
        return WEFT_SIM_NONE;
    }
    sim->note = grown;
    return sim->note_count++;
}

static uint32_t slot_of(const struct weft_plan_sim *sim, uint64_t key)
{
    uint64_t hash = key * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t mask = sim->channel_room - 1, at = (uint32_t)(hash >> 32) & mask;

    while (sim->channel[at].run == sim->number && sim->channel[at].key != key) {
        at = (at + 1) & mask;
    }
    return at;
}

static bool grow_channels(struct weft_plan_sim *sim)
{
    struct sim_channel *old = sim->channel;
    uint32_t old_room = sim->channel_room;
    uint32_t room = old_room > 0 ? old_room * 2 : 256;
    struct sim_channel *channel = weft_sim_grow(NULL, 0, NULL, room, sizeof(*channel));

    if (channel == NULL) {
        return false;
    }
    sim->channel = channel;
    sim->channel_room = room;
    for (uint32_t i = 0; i < old_room; i++) {
        if (old[i].run == sim->number) {
            channel[slot_of(sim, old[i].key)] = old[i];
        }
    }
    weft_sim_grow(NULL, 0, old, 0, 0);
    return true;
}

static struct sim_channel *find_channel(struct weft_plan_sim *sim, uint32_t sender, uint32_t offset)
{
    uint64_t key = (uint64_t)sender << 32 | offset;

    if (sim->channel_count * 2 >= sim->channel_room && !grow_channels(sim)) {
        sim->has_no_memory = true;
        return NULL;
    }
    struct sim_channel *channel = &sim->channel[slot_of(sim, key)];
    if (channel->run != sim->number) {
        *channel = (struct sim_channel){key, WEFT_SIM_NONE, WEFT_SIM_NONE, sim->number, 0};
        sim->channel_count++;
    }
    return channel;
}

/* The first note of the channel whose other half (sent or posted) is missing, or a new one. */
static uint32_t match(struct weft_plan_sim *sim, uint32_t sender, uint32_t offset, bool is_send)
{
    struct sim_channel *channel = find_channel(sim, sender, offset);
    uint32_t at = channel != NULL ? channel->first : WEFT_SIM_NONE;

    if (channel == NULL) {
        return WEFT_SIM_NONE;
    }
    if (at != WEFT_SIM_NONE && (sim->note[at].sent_at < 0) == is_send) {
        channel->first = sim->note[at].next;
        return at;
    }
    at = take_note(sim);
    if (at == WEFT_SIM_NONE) {
        return at;
    }
    sim->note[at] = (struct sim_note){.sent_at = -1,
                                      .posted_at = -1,
                                      .sender = sender,
                                      .receiver = WEFT_SIM_NONE,
                                      .offset = offset,
                                      .next = WEFT_SIM_NONE,
                                      .next_pending = WEFT_SIM_NONE};
    if (channel->first == WEFT_SIM_NONE) {
        channel->first = at;
    } else {
        sim->note[channel->last].next = at;
    }
    channel->last = at;
    return at;
}

/* ---- moving ---- */

static void count(struct weft_plan_sim *sim, struct sim_actor *sender, const struct sim_note *note)
{
    sim->messages++;
    if (note->is_between) {
        sender->sent_between += note->bytes;
    } else {
        sender->sent_inside += note->bytes;
    }
    sim->written += 2 * note->bytes;
}

/* Both NICs, each busy for as long as the bytes take at the rate of all NICs of a host. */
static void cross(struct weft_plan_sim *sim, struct sim_note *note, uint32_t from, uint32_t to)
{
    const struct weft_plan_facts *facts = sim->facts;
    double rate =
        facts->nic_rate * facts->nics * (note->is_exchanged ? facts->calibration.duplex : 1);
    double seconds = rate > 0 ? note->bytes / rate : 0;
    double out = max_of(note->first, sim->host[from].out_free);
    double arrives = out + facts->calibration.net.latency_s;
    double in = max_of(arrives, sim->host[to].in_free);

    note->parts.wire += out - note->first;
    note->parts.latency += arrives - out;
    note->parts.wire += in - arrives;
    sim->host[from].out_free = out + seconds;
    sim->host[to].in_free = in + seconds;
    sim->host[from].out_bytes += note->bytes;
    sim->host[to].in_bytes += note->bytes;
    note->first = in;
    note->last = max_of(in + seconds, note->last + facts->calibration.net.latency_s);
}

/* now: when both halves were there. to: the receiver's host */
static void move(struct weft_plan_sim *sim, struct sim_note *note, double now, uint32_t to)
{
    struct sim_actor *sender = &sim->actor[note->sender];
    const struct weft_plan_path *path = weft_sim_path_of(sim, note->is_between);

    if (now > sender->clock) { /* it stood idle until the receiver was there */
        sender->parts.wait += now - sender->clock;
        sender->clock = now;
    }
    weft_sim_work(sim, sender, path->message_s, &sender->parts.message);
    note->first = sender->clock;
    note->parts = sender->parts;
    note->hop = sender->hop;
    weft_sim_work(sim, sender, note->bytes / path->rate, &sender->parts.copy);
    note->last = sender->clock;
    if (note->is_between) {
        cross(sim, note, sender->host, to);
    } else {
        note->first += path->latency_s;
        note->parts.latency += path->latency_s;
        note->last += path->latency_s;
    }
    note->is_moved = true;
    count(sim, sender, note);
    if (note->receiver != WEFT_SIM_NONE) {
        weft_sim_wake(sim, note->receiver, note->first);
    }
}

static bool is_between(const struct weft_plan_sim *sim, uint32_t a, uint32_t b)
{
    return weft_plan_facts_host(sim->facts, a) != weft_plan_facts_host(sim->facts, b);
}

/* The host on which the peer's share of the work is done: in a class run that of its stand-in. */
static uint32_t host_run(const struct weft_plan_sim *sim, uint32_t rank)
{
    return sim->actor[rank % sim->actors].host;
}

/* Does the actor receive from this rank in the round that it is in? */
static bool expects(const struct weft_plan_sim *sim, uint32_t actor, uint32_t peer)
{
    const struct sim_actor *its = &sim->actor[actor];
    uint64_t key = (uint64_t)(peer % sim->actors) << 32 | weft_sim_offset(sim, peer, its->rank);
    const struct sim_channel *back = &sim->channel[slot_of(sim, key)];

    return back->run == sim->number && back->posted == its->round + 1;
}

void weft_sim_send(struct weft_plan_sim *sim, uint32_t actor, uint32_t peer, double bytes)
{
    uint32_t rank = sim->actor[actor].rank;
    uint32_t at = match(sim, actor, weft_sim_offset(sim, rank, peer), true);

    if (at == WEFT_SIM_NONE) {
        return;
    }
    struct sim_note *note = &sim->note[at];
    note->sent_at = sim->actor[actor].clock;
    note->bytes = bytes;
    note->is_between = is_between(sim, rank, peer);
    note->is_exchanged = note->is_between && expects(sim, actor, peer);
    if (note->posted_at >= 0) {
        /* the receiver's word that it is ready has to come first */
        bool is_early = bytes <= sim->facts->eager_max;
        double word = weft_sim_path_of(sim, note->is_between)->latency_s;
        move(sim, note, max_of(note->sent_at, is_early ? 0 : note->posted_at + word),
             host_run(sim, peer));
    } else if (bytes <= sim->facts->eager_max) {
        move(sim, note, note->sent_at, host_run(sim, peer));
    }
}

void weft_sim_post(struct weft_plan_sim *sim, uint32_t actor, uint32_t peer, bool is_reduced)
{
    struct sim_actor *receiver = &sim->actor[actor];
    uint32_t offset = weft_sim_offset(sim, peer, receiver->rank);
    uint32_t at = match(sim, peer % sim->actors, offset, false);

    if (at == WEFT_SIM_NONE) {
        return;
    }
    struct sim_note *note = &sim->note[at];
    find_channel(sim, peer % sim->actors, offset)->posted = receiver->round + 1;
    note->posted_at = receiver->clock;
    note->receiver = actor;
    note->is_reduced = is_reduced;
    if (receiver->first_note == WEFT_SIM_NONE) {
        receiver->first_note = at;
    } else {
        sim->note[receiver->last_note].next_pending = at;
    }
    receiver->last_note = at;
    if (note->sent_at >= 0 && !note->is_moved) {
        double word = weft_sim_path_of(sim, note->is_between)->latency_s;
        move(sim, note, note->posted_at + word, receiver->host);
    }
}

static void finish(struct weft_plan_sim *sim, struct sim_actor *actor, const struct sim_note *note)
{
    const struct weft_plan_path *path = weft_sim_path_of(sim, note->is_between);

    if (!sim->is_queued && !actor->has_waited) {
        /* All seem to run at once, but in a crowd they take turns: hardly anything has come already, and
         * of several messages about every second has to be waited for. */
        actor->has_waited = true;
        weft_sim_waited(sim, actor, path->wait_s * (actor->has_received ? 0.5 : 1));
    }
    weft_sim_waited(sim, actor, path->wait_s);
    actor->has_received = true;
    weft_sim_work(sim, actor, path->message_s, &actor->parts.message);
    weft_sim_work(sim, actor, note->bytes / path->rate, &actor->parts.copy);
    if (note->last > actor->clock) { /* it came more slowly than it could be taken */
        *(note->is_between ? &actor->parts.wire : &actor->parts.copy) += note->last - actor->clock;
        actor->clock = note->last;
    }
    if (note->is_reduced) {
        weft_sim_work(sim, actor, weft_sim_reduce_s(sim, note->bytes, 2), &actor->parts.reduce);
    }
}

bool weft_sim_receive(struct weft_plan_sim *sim, struct sim_actor *actor)
{
    uint32_t at = actor->first_note;
    struct sim_note *note = &sim->note[at];

    if (!note->is_moved) {
        actor->state = SIM_BLOCKED;
        return false;
    }
    if (note->first > actor->clock) {
        actor->clock = note->first;
        actor->parts = note->parts;
        actor->has_waited = true;
        actor->hop = weft_sim_hop(sim, note->hop, note->offset, actor->round, note->first);
        return false;
    }
    finish(sim, actor, note);
    actor->first_note = note->next_pending;
    note->next = sim->free_note;
    sim->free_note = at;
    return true;
}
