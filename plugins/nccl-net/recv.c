/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The receiving end. A chunk's payload goes straight from the socket to where its receive wants it; only what was
 * read together with its header passes through the lane's small buffer. A lane whose next chunk has no receive
 * yet is parked: nothing more is read from it, and TCP holds the sender back.
 */
#include "nccl.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define CALLER_BUDGET ((size_t)128 << 10) /* bytes that one call of test() moves by a lane */
#define HELPER_BUDGET ((size_t)1 << 20)
#define NOTE_EVERY 16 /* messages that nobody waits for, until the sender hears of them */
#define NOTE_LEN ((uint32_t)64 << 10) /* … or so many bytes of them */
#define NOTE_AWAITED 2 /* … that somebody waits for, while others are on their way */

enum begun { BEGUN_PLACED, BEGUN_SUNK, BEGUN_PARKED, BEGUN_WRONG };

static struct weft_nccl_receive *receive_at(struct weft_nccl_comm *comm, uint64_t number)
{
    return &comm->receives[number % WEFT_NCCL_RECEIVES];
}

/* ---- which receive a message is for; comm's lock ---- */

static uint32_t matched_count(const struct weft_nccl_request *request)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < request->count; i++) {
        count += request->place[i].is_matched;
    }
    return count;
}

/* Within a group the tag decides; a lone receive takes whatever comes. */
static enum begun match(struct weft_nccl_comm *comm, struct weft_nccl_receive *receive,
                        const struct weft_nccl_chunk *chunk)
{
    struct weft_nccl_request *request = receive->request;
    uint32_t at = 0;
    if (request->has_twins && matched_count(request) != chunk->number - request->number) {
        return BEGUN_PARKED;
    }
    while (request->count > 1 && at < request->count &&
           (request->place[at].is_matched || request->place[at].tag != chunk->tag)) {
        at++;
    }
    if (at == request->count) {
        weft_nccl_comm_fail(comm, NCCL_INVALID_USAGE, "no receive of the group has tag %u",
                            chunk->tag);
        return BEGUN_WRONG;
    }
    if (chunk->size > request->place[at].room) {
        weft_nccl_comm_fail(
            comm, NCCL_INVALID_USAGE, "message %llu has %u bytes, its receive has room for %u",
            (unsigned long long)chunk->number, chunk->size, request->place[at].room);
        return BEGUN_WRONG;
    }
    request->place[at].is_matched = true;
    request->place[at].len = chunk->size;
    receive->place = (uint8_t)at;
    receive->size = chunk->size;
    receive->is_begun = true;
    comm->begun++;
    return BEGUN_PLACED;
}

static enum begun begin(struct weft_nccl_lane *lane)
{
    struct weft_nccl_comm *comm = lane->comm;
    const struct weft_nccl_chunk *chunk = &lane->frame;
    struct weft_nccl_receive *receive = receive_at(comm, chunk->number);
    enum begun begun = BEGUN_PLACED;
    if (chunk->number < comm->floor) {
        return BEGUN_SUNK;
    }
    if (chunk->number >= comm->posted) {
        return BEGUN_PARKED;
    }
    if (receive->is_whole || (receive->chunks[chunk->index / 64] >> chunk->index % 64 & 1) != 0) {
        return BEGUN_SUNK;
    }
    if (!receive->is_begun) {
        begun = match(comm, receive, chunk);
    } else if (receive->size != chunk->size) {
        return BEGUN_WRONG;
    }
    if (begun == BEGUN_PLACED) {
        lane->data = (uint8_t *)receive->request->place[receive->place].data + chunk->offset;
    }
    return begun;
}

/* Lanes that waited may go on. Those without a helper do when somebody calls test(). */
static void unpark(struct weft_nccl_comm *comm, uint32_t parked)
{
    parked &= atomic_load(&comm->by_helpers);
    for (; parked != 0; parked &= parked - 1) {
        weft_nccl_helper_kick(comm->lanes[__builtin_ctz(parked)], WEFT_NCCL_READ);
    }
}

/* false: the lane is of no more use. */
static bool begin_frame(struct weft_nccl_lane *lane, const char **why_p)
{
    struct weft_nccl_comm *comm = lane->comm;
    uint32_t parked = 0;
    enum begun begun;
    pthread_mutex_lock(&comm->lock);
    begun = begin(lane);
    if (begun == BEGUN_PLACED && receive_at(comm, lane->frame.number)->request->has_twins) {
        parked = comm->parked; /* the next of them may be matched now */
    }
    lane->is_parked = begun == BEGUN_PARKED;
    if (lane->is_parked) {
        comm->parked |= UINT32_C(1) << lane->index;
    } else {
        comm->parked &= ~(UINT32_C(1) << lane->index);
    }
    pthread_mutex_unlock(&comm->lock);
    unpark(comm, parked);
    lane->is_sunk = begun == BEGUN_SUNK;
    lane->left = lane->frame.len;
    if (begun == BEGUN_SUNK) {
        weft_nccl_count(WEFT_NCCL_COUNT_CHUNKS_SUNK, 1);
    } else if (begun == BEGUN_PARKED) {
        weft_nccl_count(WEFT_NCCL_COUNT_WAITED, 1);
    }
    *why_p = "a message that does not fit what came before";
    return begun != BEGUN_WRONG;
}

/* ---- landing ---- */

/* Comm's lock. Is the sender to be told now? */
static bool complete(struct weft_nccl_comm *comm, struct weft_nccl_receive *receive,
                     bool is_awaited)
{
    receive->is_whole = true;
    receive->request->landed++;
    receive->request = NULL;
    while (comm->floor < comm->posted && receive_at(comm, comm->floor)->is_whole) {
        comm->floor++;
    }
    weft_nccl_count(WEFT_NCCL_COUNT_MESSAGES_IN, 1);
    comm->begun--;
    comm->untold_len += is_awaited ? 0 : receive->size;
    comm->owes_notes |= is_awaited;
    return comm->floor - comm->told >= NOTE_EVERY ||
           (comm->untold_len >= NOTE_LEN && comm->floor > comm->told) ||
           (comm->owes_notes && comm->floor > comm->told &&
            (comm->begun == 0 || comm->floor - comm->told >= NOTE_AWAITED));
}

/* By the first lane that is up and heard: one that callers drive, at the other end too, is heard soonest. */
void weft_nccl_recv_tell(struct weft_nccl_comm *comm)
{
    uint32_t up;
    pthread_mutex_lock(&comm->lock);
    up = weft_nccl_comm_up(comm) & ~comm->deaf;
    pthread_mutex_unlock(&comm->lock);
    if (up != 0) {
        weft_nccl_lane_drive(comm->lanes[__builtin_ctz(up)], WEFT_NCCL_NOTES);
    }
}

static bool land(struct weft_nccl_lane *lane, const char **why_p)
{
    struct weft_nccl_comm *comm = lane->comm;
    const struct weft_nccl_chunk *chunk = &lane->frame;
    struct weft_nccl_receive *receive;
    bool is_due = false;
    lane->has_frame = false;
    weft_nccl_count(WEFT_NCCL_COUNT_BYTES_IN, chunk->len);
    if (lane->is_sunk) {
        return true;
    }
    if ((chunk->flags & WEFT_NCCL_CHECKED) != 0 &&
        weft_wire_crc32c(0, lane->data - chunk->len, chunk->len) != chunk->payload_crc) {
        *why_p = "a payload that was damaged on its way";
        return false;
    }
    pthread_mutex_lock(&comm->lock);
    receive = receive_at(comm, chunk->number);
    receive->chunks[chunk->index / 64] |= UINT64_C(1) << chunk->index % 64;
    receive->landed += chunk->len;
    if (receive->landed >= receive->size) {
        is_due = complete(comm, receive, (chunk->flags & WEFT_NCCL_AWAITED) != 0);
    }
    pthread_mutex_unlock(&comm->lock);
    if (is_due) {
        weft_nccl_recv_tell(comm);
    }
    return true;
}

/* ---- the lane's owner ---- */

/* Payload that came with a header. */
static void take_staged(struct weft_nccl_lane *lane)
{
    size_t staged = lane->in_end - lane->in_start;
    size_t len = staged < lane->left ? staged : lane->left;
    if (len > 0 && !lane->is_sunk) {
        memcpy(lane->data, lane->in + lane->in_start, len);
        lane->data += len;
    }
    lane->in_start += len;
    lane->left -= len;
    if (lane->in_start == lane->in_end) {
        lane->in_start = lane->in_end = 0;
    }
}

/* Where the next bytes go: the rest of the payload, and what comes behind it. After much payload that is only the next
 * header, so that the payload behind that one needs no copy; after little, all that fits. */
static int parts_for(struct weft_nccl_lane *lane, struct iovec parts[2])
{
    size_t room = sizeof(lane->in) - lane->in_end;
    int count = 0;
    if (lane->left > 0 && !lane->is_sunk) {
        parts[count++] = (struct iovec){.iov_base = lane->data, .iov_len = lane->left};
        room = lane->left > WEFT_NCCL_SMALL ? WEFT_NCCL_CHUNK_LEN : room;
    }
    parts[count++] = (struct iovec){.iov_base = lane->in + lane->in_end, .iov_len = room};
    return count;
}

/* The staged bytes are all taken, or they are a piece of a header. <= 0 as recvmsg. */
static ssize_t read_some(struct weft_nccl_lane *lane, bool *is_short_p)
{
    struct iovec parts[2];
    struct msghdr msg = {.msg_iov = parts};
    bool has_place = lane->left > 0 && !lane->is_sunk;
    size_t placed, asked = 0;
    ssize_t len;
    memmove(lane->in, lane->in + lane->in_start, lane->in_end - lane->in_start);
    lane->in_end -= lane->in_start;
    lane->in_start = 0;
    msg.msg_iovlen = (size_t)parts_for(lane, parts);
    for (size_t i = 0; i < msg.msg_iovlen; i++) {
        asked += parts[i].iov_len;
    }
    do {
        len = msg.msg_iovlen > 1
                  ? recvmsg(lane->fd, &msg, MSG_DONTWAIT)
                  : recv(lane->fd, parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT);
    } while (len < 0 && errno == EINTR);
    if (len > 0) {
        placed = !has_place ? 0 : (size_t)len < lane->left ? (size_t)len : lane->left;
        lane->data += placed;
        lane->left -= placed;
        lane->in_end += (size_t)len - placed;
        *is_short_p = (size_t)len < asked;
    }
    return len;
}

/* Notes may come by it; and what was said by one that was lost may not have arrived. */
static void hear_opening(struct weft_nccl_lane *lane)
{
    struct weft_nccl_comm *comm = lane->comm;
    pthread_mutex_lock(&comm->lock);
    comm->deaf &= ~(UINT32_C(1) << lane->index);
    comm->owes_notes |= comm->floor > 0;
    pthread_mutex_unlock(&comm->lock);
    weft_nccl_lane_drive(lane, WEFT_NCCL_NOTES); /* after this */
}

/* Works off what is staged; false: the lane is lost. *wants_p: more bytes are needed to go on. */
static bool digest(struct weft_nccl_lane *lane, bool *wants_p, const char **why_p)
{
    for (;;) {
        if (!lane->has_frame) {
            if (lane->in_end - lane->in_start < WEFT_NCCL_CHUNK_LEN) {
                *wants_p = true;
                return true;
            }
            if (weft_nccl_chunk_decode(lane->in + lane->in_start, &lane->frame) != WEFT_OK) {
                *why_p = "bytes that are no chunk";
                return false;
            }
            lane->in_start += WEFT_NCCL_CHUNK_LEN;
            if ((lane->frame.flags & WEFT_NCCL_OPENS) != 0) {
                hear_opening(lane);
                continue;
            }
            lane->has_frame = lane->is_parked = true;
        }
        if (lane->is_parked && !begin_frame(lane, why_p)) {
            return false;
        }
        if (lane->is_parked) {
            *wants_p = false;
            return true;
        }
        take_staged(lane);
        if (lane->left > 0) {
            *wants_p = true;
            return true;
        }
        if (!land(lane, why_p)) {
            return false;
        }
    }
}

bool weft_nccl_recv_read(struct weft_nccl_lane *lane, bool *is_more_p, const char **why_p)
{
    size_t budget = lane->helper != NULL ? HELPER_BUDGET : CALLER_BUDGET;
    size_t moved = 0;
    bool wants = true, is_short = false;
    for (;;) {
        ssize_t len;
        if (atomic_load(&lane->comm->result) != NCCL_SUCCESS) {
            *why_p = "its connection has failed";
            return false; /* the memory of its receives is the caller's again */
        }
        if (!digest(lane, &wants, why_p)) {
            return false;
        }
        if (!wants || (is_short && !lane->is_ending)) {
            return true;
        }
        if (moved >= budget) {
            *is_more_p = true;
            return true;
        }
        len = read_some(lane, &is_short);
        if (len <= 0) {
            lane->has_ended = len == 0;
            *why_p = len == 0 ? "closed by the peer" : strerrordesc_np(errno);
            return len < 0 && errno == EAGAIN;
        }
        moved += (size_t)len;
    }
}

bool weft_nccl_recv_notes(struct weft_nccl_lane *lane, const char **why_p)
{
    struct weft_nccl_comm *comm = lane->comm;
    uint8_t out[(WEFT_NCCL_LANES + 1) * WEFT_NCCL_NOTE_LEN];
    size_t len = 0;
    ssize_t sent;
    bool is_deaf;
    pthread_mutex_lock(&comm->lock);
    comm->down_count = comm->is_left ? 0 : comm->down_count;
    comm->owes_notes &= !comm->is_left;
    while (comm->down_count > 0) {
        struct weft_nccl_note down = {.type = WEFT_NCCL_TYPE_DOWN,
                                      .value = comm->down[--comm->down_count]};
        weft_nccl_note_encode(&down, out + len);
        len += WEFT_NCCL_NOTE_LEN;
    }
    if (!comm->is_left && (comm->floor > comm->told || comm->owes_notes)) {
        struct weft_nccl_note landed = {.type = WEFT_NCCL_TYPE_LANDED, .value = comm->floor};
        weft_nccl_note_encode(&landed, out + len);
        len += WEFT_NCCL_NOTE_LEN;
        comm->told = comm->floor;
        comm->untold_len = 0;
        comm->owes_notes = false;
    }
    pthread_mutex_unlock(&comm->lock);
    if (len == 0) {
        return true;
    }
    weft_nccl_count(WEFT_NCCL_COUNT_NOTES_OUT, 1);
    do {
        sent = send(lane->fd, out, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent == (ssize_t)len) {
        return true;
    }
    /* The sender may have closed, and what it has sent is still to be read. */
    is_deaf = sent < 0 && (errno == EPIPE || errno == ECONNRESET);
    *why_p = "the peer does not read";
    pthread_mutex_lock(&comm->lock);
    comm->deaf |= UINT32_C(1) << lane->index;
    comm->owes_notes = true; /* by another lane, when there is one */
    pthread_mutex_unlock(&comm->lock);
    return is_deaf;
}

void weft_nccl_recv_lost(struct weft_nccl_lane *lane)
{
    lane->comm->owes_notes = true; /* what was said by it may be lost */
    lane->comm->is_ended |= lane->has_ended;
}

void weft_nccl_recv_left(struct weft_nccl_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    comm->is_left = true;
    pthread_mutex_unlock(&comm->lock);
    for (uint32_t i = 0; i < atomic_load(&comm->lane_count); i++) {
        weft_nccl_lane_hush(comm->lanes[i]);
    }
}

/* ---- what NCCL calls ---- */

static bool has_twins(const struct weft_nccl_request *request)
{
    for (uint32_t i = 1; i < request->count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (request->place[i].tag == request->place[j].tag) {
                return true;
            }
        }
    }
    return false;
}

/* Comm's lock. */
static struct weft_nccl_request *post(struct weft_nccl_comm *comm, uint32_t count, void **data,
                                      const size_t *lens, const int *tags)
{
    struct weft_nccl_request *request;
    if (comm->posted + count - comm->floor > WEFT_NCCL_RECEIVES) {
        return NULL;
    }
    request = weft_nccl_request_new(comm);
    if (request == NULL) {
        return NULL;
    }
    request->count = count;
    request->landed = 0;
    request->number = comm->posted;
    for (uint32_t i = 0; i < count; i++) {
        request->place[i] = (struct weft_nccl_place){
            .data = data[i],
            .room = lens[i] < WEFT_NCCL_LEN_MAX ? (uint32_t)lens[i] : WEFT_NCCL_LEN_MAX,
            .tag = (uint32_t)tags[i]};
        *receive_at(comm, comm->posted + i) = (struct weft_nccl_receive){.request = request};
    }
    request->has_twins = has_twins(request);
    comm->posted += count;
    return request;
}

int weft_nccl_irecv(void *handle, int count, void **data, const size_t *lens, const int *tags,
                    void **request_p)
{
    struct weft_nccl_comm *comm = handle;
    struct weft_nccl_request *request;
    uint32_t parked;
    *request_p = NULL;
    if (weft_nccl_is_foreign(comm->process)) {
        return NCCL_SYSTEM_ERROR;
    }
    if (count < 1 || count > WEFT_NCCL_GROUP) {
        weft_nccl_say(NCCL_LOG_WARN, "irecv of %d buffers: 1 to %d are served", count,
                      WEFT_NCCL_GROUP);
        return NCCL_INVALID_ARGUMENT;
    }
    if (atomic_load(&comm->result) != NCCL_SUCCESS) {
        return atomic_load(&comm->result);
    }
    pthread_mutex_lock(&comm->lock);
    request = post(comm, (uint32_t)count, data, lens, tags);
    parked = request != NULL ? comm->parked : 0;
    pthread_mutex_unlock(&comm->lock);
    unpark(comm, parked);
    *request_p = request;
    return NCCL_SUCCESS;
}
