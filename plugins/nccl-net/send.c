/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sending end. Lanes take chunks in the order of the messages, each when it has room: so a fast lane takes more
 * than a slow one, and no lane carries a lower number behind a higher one. That matters because a receiver stops reading
 * a lane whose next chunk has no receive yet: were a chunk of an earlier message behind it, both sides would
 * wait for ever. For the same reason what a lost lane carried goes again only by lanes that were dialled
 * after it was lost: they are empty.
 */
#include "nccl.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#define CALLER_BUDGET ((size_t)128 << 10) /* bytes that one call of test() moves by a lane */
#define HELPER_BUDGET ((size_t)1 << 20)
#define CHUNK_ALIGN ((uint32_t)64 << 10)
#define LANES_FROM ((size_t)32 << 10) /* the first message of this size opens the other lanes */
#define INLINE ((size_t)64 << 10) /* up to here isend itself sends: sooner than waking a helper */

static struct weft_nccl_send *send_at(struct weft_nccl_comm *comm, uint64_t number)
{
    return &comm->sends[number % WEFT_NCCL_SENDS];
}

/* Comm's lock. */
static void finish(struct weft_nccl_send *send)
{
    if (send->request != NULL) {
        send->request->landed = send->request->count;
        send->request = NULL;
    }
}

/* Comm's lock. */
static void retire(struct weft_nccl_comm *comm)
{
    while (comm->retired < comm->landed) {
        struct weft_nccl_send *send = send_at(comm, comm->retired);
        if (send->writers > 0) {
            return; /* a copy that nobody needs is half out, of memory that is lent */
        }
        comm->again -= send->again;
        send->again = 0;
        comm->freed = send->is_eager ? send->copied : comm->freed;
        finish(send);
        comm->retired++;
    }
    if (comm->first_unsent < comm->retired) {
        comm->first_unsent = comm->retired;
    }
}

/* ---- which chunk is next; comm's lock ---- */

static bool find_again(struct weft_nccl_comm *comm, uint64_t *number_p, uint32_t *index_p)
{
    for (uint64_t number = comm->retired; number < comm->next_number; number++) {
        struct weft_nccl_send *send = send_at(comm, number);
        for (uint32_t i = 0; send->again > 0 && i < send->begun; i++) {
            if (send->lane_of[i] == WEFT_NCCL_AGAIN) {
                send->again--;
                comm->again--;
                weft_nccl_count(WEFT_NCCL_COUNT_CHUNKS_AGAIN, 1);
                *number_p = number;
                *index_p = i;
                return true;
            }
        }
    }
    return false;
}

static bool find_new(struct weft_nccl_lane *lane, uint64_t *number_p, uint32_t *index_p)
{
    struct weft_nccl_comm *comm = lane->comm;
    while (comm->first_unsent < comm->next_number) {
        struct weft_nccl_send *send = send_at(comm, comm->first_unsent);
        if (send->begun < send->count) {
            if (!weft_nccl_rate_fits(lane,
                                     send->size < send->chunk_len ? send->size : send->chunk_len)) {
                return false;
            }
            *number_p = comm->first_unsent;
            *index_p = send->begun++;
            return true;
        }
        comm->first_unsent++;
    }
    return false;
}

static bool take(struct weft_nccl_lane *lane, struct weft_nccl_send **send_p)
{
    struct weft_nccl_comm *comm = lane->comm;
    struct weft_nccl_send *send;
    uint64_t number;
    uint32_t index;
    if (lane->state != WEFT_NCCL_LANE_UP || (!(comm->again > 0 && lane->id >= comm->again_min_id &&
                                               find_again(comm, &number, &index)) &&
                                             !find_new(lane, &number, &index))) {
        return false;
    }
    send = send_at(comm, number);
    send->lane_of[index] = lane->index;
    send->writers++;
    lane->last_number = number;
    lane->frame = (struct weft_nccl_chunk){.flags = send->is_eager ? 0 : WEFT_NCCL_AWAITED,
                                           .tag = send->tag,
                                           .number = number,
                                           .offset = index * send->chunk_len,
                                           .size = send->size,
                                           .index = (uint16_t)index};
    lane->frame.len = send->size - lane->frame.offset < send->chunk_len
                          ? send->size - lane->frame.offset
                          : send->chunk_len;
    *send_p = send;
    return true;
}

static bool begin_chunk(struct weft_nccl_lane *lane)
{
    struct weft_nccl_comm *comm = lane->comm;
    struct weft_nccl_send *send = NULL;
    weft_nccl_rate_look(lane);
    pthread_mutex_lock(&comm->lock);
    lane->has_frame = take(lane, &send);
    pthread_mutex_unlock(&comm->lock);
    if (!lane->has_frame) {
        return false;
    }
    lane->data = send->data + lane->frame.offset; /* counted among its writers: it stays */
    lane->left = lane->frame.len;
    if (comm->is_checked) {
        lane->frame.flags |= WEFT_NCCL_CHECKED;
        lane->frame.payload_crc = weft_wire_crc32c(0, lane->data, lane->left);
    }
    if (send->is_eager) { /* there is room for its header before it */
        lane->head_left = 0;
        lane->data -= WEFT_NCCL_CHUNK_LEN;
        lane->left += WEFT_NCCL_CHUNK_LEN;
        weft_nccl_chunk_encode(&lane->frame, lane->data);
    } else {
        lane->head_left = WEFT_NCCL_CHUNK_LEN;
        weft_nccl_chunk_encode(&lane->frame, lane->head);
    }
    weft_nccl_count(WEFT_NCCL_COUNT_CHUNKS_OUT, 1);
    return true;
}

void weft_nccl_send_open(struct weft_nccl_lane *lane)
{
    lane->frame = (struct weft_nccl_chunk){.flags = WEFT_NCCL_OPENS};
    weft_nccl_chunk_encode(&lane->frame, lane->head);
    lane->head_left = WEFT_NCCL_CHUNK_LEN;
    lane->left = 0;
    lane->has_frame = lane->is_opening = true;
}

static void end_chunk(struct weft_nccl_lane *lane)
{
    struct weft_nccl_comm *comm = lane->comm;
    struct weft_nccl_send *send;
    if (lane->is_opening) {
        lane->has_frame = lane->is_opening = false;
        return;
    }
    pthread_mutex_lock(&comm->lock);
    send = send_at(comm, lane->frame.number);
    send->writers--;
    lane->has_frame = false;
    if (send->is_eager) { /* whole: it has one chunk */
        finish(send);
    }
    retire(comm);
    pthread_mutex_unlock(&comm->lock);
    weft_nccl_count(WEFT_NCCL_COUNT_BYTES_OUT, lane->frame.len);
}

/* ---- the lane's owner ---- */

static ssize_t write_some(struct weft_nccl_lane *lane, size_t *asked_p)
{
    struct iovec parts[2] = {{.iov_base = lane->head + WEFT_NCCL_CHUNK_LEN - lane->head_left,
                              .iov_len = lane->head_left},
                             {.iov_base = lane->data, .iov_len = lane->left}};
    struct msghdr msg = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t len;
    *asked_p = lane->head_left + lane->left;
    do {
        len = lane->head_left > 0
                  ? sendmsg(lane->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL)
                  : send(lane->fd, lane->data, lane->left, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (len < 0 && errno == EINTR);
    return len;
}

static void advance(struct weft_nccl_lane *lane, size_t len)
{
    size_t head = len < lane->head_left ? len : lane->head_left;
    lane->head_left -= head;
    lane->written += len;
    lane->data += len - head;
    lane->left -= len - head;
}

bool weft_nccl_send_write(struct weft_nccl_lane *lane, bool *is_more_p, const char **why_p)
{
    size_t budget = lane->helper != NULL ? HELPER_BUDGET : CALLER_BUDGET;
    size_t moved = 0, asked;
    if (atomic_load(&lane->comm->result) != NCCL_SUCCESS) {
        *why_p = "its connection has failed";
        return false; /* the memory of its sends is the caller's again */
    }
    while (lane->has_frame || begin_chunk(lane)) {
        ssize_t len;
        if (moved >= budget) {
            *is_more_p = true;
            return true;
        }
        len = write_some(lane, &asked);
        if (len < 0) {
            *why_p = strerrordesc_np(errno);
            return errno == EAGAIN || errno == ENOBUFS;
        }
        advance(lane, (size_t)len);
        moved += (size_t)len;
        if (lane->head_left == 0 && lane->left == 0) {
            end_chunk(lane);
        } else if ((size_t)len < asked) {
            return true; /* full: epoll will tell, or the next call */
        }
    }
    return true;
}

static bool hear(struct weft_nccl_lane *lane, const struct weft_nccl_note *note, const char **why_p)
{
    struct weft_nccl_comm *comm = lane->comm;
    struct weft_nccl_lane *down = NULL;
    bool is_fine = true;
    uint32_t up;
    pthread_mutex_lock(&comm->lock);
    if (note->type == WEFT_NCCL_TYPE_LANDED) {
        is_fine = note->value <= comm->next_number;
        if (is_fine && note->value > comm->landed) {
            comm->landed = note->value;
            retire(comm);
        }
    }
    up = note->type == WEFT_NCCL_TYPE_DOWN ? weft_nccl_comm_up(comm) : 0;
    for (; up != 0; up &= up - 1) {
        struct weft_nccl_lane *other = comm->lanes[__builtin_ctz(up)];
        down = other->id == note->value ? other : down;
    }
    pthread_mutex_unlock(&comm->lock);
    if (down != NULL) {
        atomic_store(&down->kill_why, "the peer has given it up");
        weft_nccl_lane_drive(down, WEFT_NCCL_KILL);
    }
    *why_p = "it says that messages have landed that were never sent";
    return is_fine;
}

static bool hear_all(struct weft_nccl_lane *lane, const char **why_p)
{
    struct weft_nccl_note note;
    for (; lane->in_end - lane->in_start >= WEFT_NCCL_NOTE_LEN;
         lane->in_start += WEFT_NCCL_NOTE_LEN) {
        if (weft_nccl_note_decode(lane->in + lane->in_start, &note) != WEFT_OK) {
            *why_p = "bytes that are no note";
            return false;
        }
        if (!hear(lane, &note, why_p)) {
            return false;
        }
    }
    memmove(lane->in, lane->in + lane->in_start, lane->in_end - lane->in_start);
    lane->in_end -= lane->in_start;
    lane->in_start = 0;
    return true;
}

bool weft_nccl_send_read(struct weft_nccl_lane *lane, const char **why_p)
{
    bool is_more = true;
    while (is_more) {
        size_t room = sizeof(lane->in) - lane->in_end;
        ssize_t len = recv(lane->fd, lane->in + lane->in_end, room, MSG_DONTWAIT);
        if (len < 0 && errno == EINTR) {
            continue;
        }
        if (len <= 0) {
            *why_p = len == 0 ? "closed by the peer" : strerrordesc_np(errno);
            return len < 0 && errno == EAGAIN;
        }
        lane->in_end += (size_t)len;
        if (!hear_all(lane, why_p)) {
            return false;
        }
        is_more = (size_t)len == room || lane->is_ending; /* epoll tells once only */
    }
    return true;
}

void weft_nccl_send_lost(struct weft_nccl_lane *lane)
{
    struct weft_nccl_comm *comm = lane->comm;
    if (lane->has_frame && !lane->is_opening) {
        send_at(comm, lane->frame.number)->writers--;
    }
    lane->has_frame = lane->is_opening = false;
    for (uint64_t number = comm->landed; number < comm->next_number; number++) {
        struct weft_nccl_send *send = send_at(comm, number);
        for (uint32_t i = 0; i < send->begun; i++) {
            if (send->lane_of[i] == lane->index) {
                send->lane_of[i] = WEFT_NCCL_AGAIN;
                send->again++;
                comm->again++;
                comm->again_min_id = comm->next_id;
            }
        }
    }
    retire(comm);
}

/* ---- closing ---- */

/* Is there a send that was called done, and is not in a socket? */
static bool has_promised(struct weft_nccl_comm *comm)
{
    bool is_any = false;
    pthread_mutex_lock(&comm->lock);
    for (uint64_t number = comm->landed; number < comm->next_number; number++) {
        const struct weft_nccl_send *send = send_at(comm, number);
        is_any |= send->request == NULL && send->again + send->writers > 0;
    }
    pthread_mutex_unlock(&comm->lock);
    return is_any;
}

void weft_nccl_send_flush(struct weft_nccl_comm *comm)
{
    const struct timespec pause = {.tv_nsec = 200000};
    uint64_t until_ns =
        weft_clock_after_ms((uint64_t)weft_nccl_core.params.number[WEFT_PARAM_PATH_TIMEOUT]);
    weft_nccl_comm_drive(comm, WEFT_NCCL_READ | WEFT_NCCL_WRITE); /* finds out which lanes live */
    while (has_promised(comm) && atomic_load(&comm->result) == NCCL_SUCCESS &&
           weft_clock_ns() < until_ns) {
        weft_engine_poll(weft_nccl_core.engine);
        weft_nccl_comm_drive(comm, WEFT_NCCL_READ | WEFT_NCCL_WRITE);
        nanosleep(&pause, NULL);
    }
}

/* ---- what NCCL calls ---- */

/* Comm's lock. Where the copy is, behind room for its header; without room in the ring the original, and not eager. */
static void *copy(struct weft_nccl_comm *comm, struct weft_nccl_send *send, void *data,
                  uint32_t size)
{
    uint64_t len = ((uint64_t)WEFT_NCCL_CHUNK_LEN + size + 63) / 64 * 64;
    uint64_t at = comm->copied % WEFT_NCCL_COPIES;
    uint64_t skipped = at + len > WEFT_NCCL_COPIES ? WEFT_NCCL_COPIES - at : 0;
    uint8_t *place = comm->copies + (at + skipped) % WEFT_NCCL_COPIES + WEFT_NCCL_CHUNK_LEN;
    if (comm->copied + skipped + len - comm->freed > WEFT_NCCL_COPIES) {
        send->is_eager = false;
        return data;
    }
    comm->copied += skipped + len;
    send->copied = comm->copied;
    if (size > 0) {
        memcpy(place, data, size);
    }
    return place;
}

/* Comm's lock. */
static struct weft_nccl_request *post(struct weft_nccl_comm *comm, void *data, uint32_t size,
                                      uint32_t tag)
{
    struct weft_nccl_send *send = send_at(comm, comm->next_number);
    struct weft_nccl_request *request;
    if (comm->next_number - comm->retired == WEFT_NCCL_SENDS) {
        return NULL;
    }
    request = weft_nccl_request_new(comm);
    if (request == NULL) {
        return NULL;
    }
    send->size = size;
    send->tag = tag;
    send->is_eager = size <= comm->eager_len && size <= comm->chunk_len;
    data = send->is_eager ? copy(comm, send, data, size) : data;
    send->data = data;
    send->chunk_len = (size / WEFT_NCCL_CHUNKS + CHUNK_ALIGN) / CHUNK_ALIGN * CHUNK_ALIGN;
    send->chunk_len = send->chunk_len < comm->chunk_len ? comm->chunk_len : send->chunk_len;
    send->count = size == 0 ? 1 : (size - 1) / send->chunk_len + 1;
    send->begun = send->again = send->writers = 0;
    send->request = request;
    request->number = comm->next_number++;
    request->count = 1;
    request->landed = 0;
    request->place[0].len = size;
    return request;
}

/* A helper for each chunk that waits; the caller takes what they leave. Not always the same one first. */
static void rouse(struct weft_nccl_comm *comm, uint32_t chunks)
{
    uint32_t lanes = atomic_load(&comm->by_helpers);
    uint32_t first = (uint32_t)comm->next_number % WEFT_NCCL_LANES;
    for (uint32_t i = 0; i < WEFT_NCCL_LANES && chunks > 0 && lanes != 0; i++) {
        uint32_t at = (first + i) % WEFT_NCCL_LANES;
        if ((lanes >> at & 1) != 0) {
            weft_nccl_helper_kick(comm->lanes[at], WEFT_NCCL_WRITE);
            lanes &= ~(UINT32_C(1) << at);
            chunks--;
        }
    }
}

int weft_nccl_isend(void *handle, void *data, size_t len, int tag, void **request_p)
{
    struct weft_nccl_comm *comm = handle;
    struct weft_nccl_request *request;
    uint32_t chunks = 0;
    *request_p = NULL;
    if (weft_nccl_is_foreign(comm->process)) {
        return NCCL_SYSTEM_ERROR;
    }
    if (len > WEFT_NCCL_LEN_MAX) {
        weft_nccl_say(NCCL_LOG_WARN, "isend of %zu bytes: %d are the most", len, WEFT_NCCL_LEN_MAX);
        return NCCL_INVALID_ARGUMENT;
    }
    if (atomic_load(&comm->result) != NCCL_SUCCESS) {
        return atomic_load(&comm->result);
    }
    pthread_mutex_lock(&comm->lock);
    request = post(comm, data, (uint32_t)len, (uint32_t)tag);
    for (uint64_t i = comm->first_unsent; i < comm->next_number && len > INLINE; i++) {
        chunks += send_at(comm, i)->count - send_at(comm, i)->begun;
    }
    pthread_mutex_unlock(&comm->lock);
    if (request == NULL) { /* what makes room is heard here */
        weft_nccl_comm_drive(comm, WEFT_NCCL_READ | WEFT_NCCL_WRITE);
        return NCCL_SUCCESS;
    }
    weft_nccl_count(WEFT_NCCL_COUNT_MESSAGES_OUT, 1);
    if (len > LANES_FROM && !atomic_exchange(&comm->wants_lanes, true)) {
        weft_nccl_comm_poke(comm);
    }
    rouse(comm, chunks);
    if (len <= INLINE) {
        weft_nccl_comm_drive(comm, WEFT_NCCL_WRITE);
    }
    *request_p = request;
    return NCCL_SUCCESS;
}
