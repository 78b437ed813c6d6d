/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many lanes to one peer, as docs/lanes.md describes them: a sender, a receiver and two slots that die
 * and return. README.md beside this file says what is checked, what is left out and how to run it.
 *
 *   sender   == to[0], to[1] ==>       receiver    CHUNK number, id, epoch    ENVELOPE number, -, epoch
 *            <== back[0], back[1] ==               ACK slot, generation, count
 *                                                  TOLD all envelopes up to this number are here
 *
 * Chunk 2 is a put, which ends with FLUSHED; the others are a long message, which ends with DONE. The
 * last envelope is the flush. The receiver reads a frame in two steps, header and body: what happens
 * between them is most of this model. (A slot that dies there is also a sender that died in the middle
 * of a frame.)
 *
 * Nothing goes in a circle: every step but a death brings something forward, and deaths are counted. So
 * a run that does not finish ends in a deadlock, and spin reports an invalid end state.
 *
 * With USER_LAGS the receiver is two: the link, which reads, and its user, which hears later what came and
 * only then says where a body goes.
 *
 * With OVERTAKES the sender sends copies of what a living slot holds, over any slot: what the slot had is a
 * ghost from then on, which is counted and nothing else.
 *
 * BUG_… plants one mistake each. ACKS_STAY and WITHDRAWS are other protocols that work, see README.md.
 */
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef CHUNKS
#define CHUNKS 3 /* 1 to 4 */
#endif
#ifndef ENVELOPES
#define ENVELOPES 1
#endif
#ifndef ROOM
#define ROOM 1 /* frames on their way in each direction of a slot, beside the one that is being read */
#endif
#ifndef OVERTAKES
#define OVERTAKES 0
#endif
#ifdef BUG_NEW_NUMBER
#define WINDOW 8
#else
#define WINDOW 2 /* numbers after those that have landed without a gap */
#endif
#if CHUNKS < 2
#define PUT 1
#define HAS_MESSAGE false
#else
#define PUT 2
#define HAS_MESSAGE true
#endif
#define NONE 2 /* no slot */

mtype = { CHUNK, ENVELOPE, ACK, TOLD };

/* ---- slots. A slot is a connection: one side may have given it up and the other not yet ---- */
chan to[2] = [ROOM] of { mtype, byte, byte, byte };
chan back[2] = [ROOM] of { mtype, byte, byte, byte };
bool up[2] = true;     /* the sender has it */
bool up_far[2] = true; /* the receiver has it */
bool gone[2];          /* it does not come back; never both */
byte generation[2];
byte deaths;

/* ---- sender ---- */
#define WAITING 0
#define FLYING 1
#define KNOWN 2 /* to have landed */
byte chunk_is[5];
#define DONE 0
#define FLUSHED 1
bool taken[2]; /* the memory is its owner's again: of the message, of the put */
bool is_withdrawn;
#define GHOST 8 /* added to a chunk that a copy took over */
byte overtakes;
chan unacked[2] = [CHUNKS + OVERTAKES * CHUNKS] of { byte };
byte acked[2]; /* so many chunks of this generation */
byte epoch;    /* how often a slot was lost or came: copies have a later one */
byte lead;
byte next_envelope = 1, kept_from = 1;

/* ---- receiver ---- */
byte landed_all;  /* every number up to this one */
byte landed_bits; /* and these of the WINDOW after it */
mtype reading[2]; /* kind of frame whose header is here; 0: between frames */
byte reading_number[2], reading_id[2], reading_epoch[2];
bool sinks[2];                    /* its body is not wanted */
byte arrived[2], arrived_told[2]; /* so many chunks of this generation */
byte envelopes, envelopes_told, envelope_epoch;
bool holds_flush;
#ifdef BUG_HELD_BLOCKS
byte flush_came_over;
#endif
byte message_left = CHUNKS - 1; /* chunks of it that have not landed */
bool answered[2];               /* DONE, FLUSHED: reach the sender some time, as envelopes do */
#ifdef USER_LAGS
bool asked[2];   /* the user has not said yet where the body goes that comes by this slot */
byte landing[2]; /* a chunk that has landed, which the user has not heard yet; 0: none */
byte placed[2];  /* the user's: what it takes to come by this slot; 0: nothing */
byte matched;    /* the user's: envelopes it was asked about */
#endif

/* ---- what only the checks know ---- */
bool applied[5];

hidden mtype kind; /* nothing stays in these beyond a step */
hidden byte n, id, e, c;

#ifdef BUG_NEW_NUMBER
byte moved[5], last_number = CHUNKS;
#define NUMBER(c) (c + moved[c])
#else
#define NUMBER(c) (c)
#endif

#define OF_PUT(c) ((c) == PUT)
#define IS_VOID(c) (is_withdrawn && !OF_PUT(c))
#define BIT(n) (1 << ((n) - landed_all - 1))
#define HAS_LANDED(n) ((n) <= landed_all || (landed_bits & BIT(n)))
/* The lowest chunk whose state is so; CHUNKS + 1: none. */
#define LOWEST(so)                                                                                 \
    (chunk_is[1] so -> 1 : (CHUNKS > 1 && chunk_is[2] so -> 2 : (CHUNKS > 2 && chunk_is[3] so -> 3 : \
    (CHUNKS > 3 && chunk_is[4] so -> 4 : CHUNKS + 1))))
#define FIRST_UP (up[0] -> 0 : (up[1] -> 1 : NONE))
#define IS_FINISHED                                                                                \
    ((taken[DONE] || !HAS_MESSAGE) && taken[FLUSHED] && LOWEST(!= KNOWN) > CHUNKS &&               \
     len(unacked[0]) + len(unacked[1]) == 0 && kept_from > ENVELOPES)

/* What is sent to a side that has given the slot up is lost. */
#define HAS_ROOM(s) (up[s] && (!up_far[s] || len(to[s]) < ROOM))
#define HAS_ROOM_BACK(s) (up_far[s] && (!up[s] || len(back[s]) < ROOM))

inline post(s, what, x, y, z)
{
    if
    :: up_far[s] -> to[s]!what, x, y, z
    :: else
    fi
}

inline post_back(s, what, x, y, z)
{
    if
    :: up[s] -> back[s]!what, x, y, z
    :: else
    fi
}

inline drain(channel)
{
    do
    :: nempty(channel) -> channel?_, _, _, _
    :: empty(channel) -> break
    od
}

/* ---- sender ---- */

/* All that is kept goes again over a new lead. */
inline sender_chooses_lead()
{
    lead = FIRST_UP;
#ifndef BUG_NO_REPLAY
    next_envelope = kept_from
#endif
}

inline chunk_goes_again()
{
    if
    :: c >= GHOST /* its copy does, or has */
#ifndef BUG_TAKEN_BACK
    :: c < GHOST && chunk_is[c] == KNOWN /* it was answered, and its memory may be gone */
#endif
    :: else ->
        chunk_is[c] = WAITING;
#ifdef BUG_NEW_NUMBER
        last_number++;
        moved[c] = last_number - c
#endif
    fi
}

inline sender_loses(s)
{
    printf("sender gives slot %d up\n", s);
    up[s] = false;
    epoch++;
    drain(back[s]);
    do
    :: nempty(unacked[s]) ->
        unacked[s]?c;
        chunk_goes_again()
    :: empty(unacked[s]) -> break
    od;
    acked[s] = 0;
    if
    :: s == lead -> sender_chooses_lead()
    :: else
    fi
}

#if defined(BUG_OLD_GENERATION) || defined(ACKS_STAY)
#define IS_CURRENT(slot, its) up[slot]
#else
#define IS_CURRENT(slot, its) (up[slot] && its == generation[slot])
#endif

inline sender_hears_ack(slot, its, count)
{
    if
    :: IS_CURRENT(slot, its) ->
        do
        :: acked[slot] < count && nempty(unacked[slot]) ->
            acked[slot]++;
            unacked[slot]?c;
#ifdef BUG_GHOST_COUNTS
            c = c % GHOST;
#endif
            if
            :: c >= GHOST /* it was counted: it may have gone to the sink before its copy was through */
            :: else ->
                printf("sender takes chunk %d for landed\n", c);
                assert(HAS_LANDED(NUMBER(c))); /* only what has landed is acknowledged */
                chunk_is[c] = KNOWN
            fi
        :: acked[slot] >= count || empty(unacked[slot]) -> break
        od
    :: else
    fi
}

inline sender_hears(s)
{
    back[s]?kind, n, id, e;
    if
    :: kind == ACK -> sender_hears_ack(n, id, e)
    :: kind == TOLD && n >= kept_from ->
        kept_from = n + 1;
        next_envelope = (next_envelope < kept_from -> kept_from : next_envelope)
    :: else
    fi
}

inline sender_hears_answer(what)
{
    printf("sender hears %d (0: done, 1: flushed)\n", what);
    taken[what] = true;
    c = 1;
    do
    :: c <= CHUNKS ->
        if
        :: OF_PUT(c) == what -> chunk_is[c] = KNOWN
        :: else
        fi;
        c++
    :: else -> break
    od;
    c = 0
}

/* The message has failed: its memory is its owner's at once, but its numbers would be missed. */
inline sender_withdraws()
{
    printf("sender withdraws the message\n");
    is_withdrawn = true;
    taken[DONE] = true;
#ifdef BUG_WITHDRAWN_GAP
    if
    :: chunk_is[1] == WAITING -> chunk_is[1] = KNOWN
    :: else
    fi
#endif
}

inline sender_posts_chunk(s)
{
    c = LOWEST(== WAITING);
    n = NUMBER(c);
    id = (IS_VOID(c) -> 0 : c);
    printf("sender posts chunk %d, epoch %d, over slot %d\n", c, epoch, s);
    assert(id == 0 || !taken[OF_PUT(c)]); /* nothing is read after it was given back */
    chunk_is[c] = FLYING;
    unacked[s]!c;
    post(s, CHUNK, n, id, epoch)
}

/* What the slot holds goes again, with its number; the slot stays. */
inline sender_overtakes(s)
{
    printf("sender overtakes slot %d\n", s);
    overtakes++;
#ifndef BUG_SAME_EPOCH
    epoch++;
#endif
    n = len(unacked[s]);
    do
    :: n > 0 ->
        unacked[s]?c;
        if
        :: c < GHOST && chunk_is[c] == FLYING ->
            chunk_is[c] = WAITING;
            c = c + GHOST
        :: else
        fi;
        unacked[s]!c;
        n--
    :: else -> break
    od;
    c = 0
}

inline sender_posts_envelope(s)
{
    printf("sender posts envelope %d, epoch %d, over slot %d\n", next_envelope, epoch, s);
    post(s, ENVELOPE, next_envelope, 0, epoch);
    next_envelope++
}

#ifdef BUG_NO_WINDOW
#define CHUNK_MAY_GO (LOWEST(== WAITING) <= CHUNKS)
#else
#define CHUNK_MAY_GO                                                                               \
    (LOWEST(== WAITING) <= CHUNKS && LOWEST(== WAITING) < LOWEST(!= KNOWN) + WINDOW)
#endif
#ifdef WITHDRAWS
#define MAY_WITHDRAW (HAS_MESSAGE && !taken[DONE])
#else
#define MAY_WITHDRAW false
#endif
#define MAY_OVERTAKE(s) (overtakes < OVERTAKES && up[s] && up[1 - s] && nempty(unacked[s]))
#define SENDER_ON(s)                                                                               \
    :: d_step { MAY_OVERTAKE(s) -> sender_overtakes(s) }                                           \
    :: d_step { CHUNK_MAY_GO && HAS_ROOM(s) -> sender_posts_chunk(s) }                             \
    :: d_step { lead == s && next_envelope <= ENVELOPES && HAS_ROOM(s) ->                          \
                sender_posts_envelope(s) }                                                         \
    :: d_step { up[s] && nempty(back[s]) -> sender_hears(s) }                                      \
    :: d_step { up[s] && !up_far[s] -> sender_loses(s) }

active proctype sender()
{
    do
    SENDER_ON(0)
    SENDER_ON(1)
    :: d_step { answered[DONE] && !taken[DONE] -> sender_hears_answer(DONE) }
    :: d_step { answered[FLUSHED] && !taken[FLUSHED] -> sender_hears_answer(FLUSHED) }
    :: d_step { MAY_WITHDRAW -> sender_withdraws() }
    :: IS_FINISHED -> break
    od
}

/* ---- receiver ---- */

inline receiver_stops_reading(s)
{
    reading[s] = 0;
    reading_number[s] = 0;
    reading_id[s] = 0;
    reading_epoch[s] = 0;
    sinks[s] = false
}

/* ---- the receiver's user, when it lags. What it is told of one slot it hears in order ---- */

#ifdef USER_LAGS
#define IS_HEARD(s) (!asked[s] && landing[s] == 0)
#define IS_COUNTED(c) true /* a flush does not wait for the user to hear of what is there */

inline asks(s)
{
    asked[s] = !sinks[s] && !(kind == ENVELOPE && n == matched) /* a copy goes to the same place */
}

/* What comes by this slot is not wanted any more. */
#ifdef BUG_ASKED_TWICE
#define TAKES_BACK(s) false
#else
#define TAKES_BACK(s) asked[s]
#endif
#ifdef BUG_UNPLACES_NEXT
#define WAS_PLACED(s) (reading[s] == CHUNK && !sinks[s])
#else
#define WAS_PLACED(s) (reading[s] == CHUNK && !sinks[s] && !asked[s])
#endif
inline unplaces(s)
{
    if
    :: WAS_PLACED(s) -> placed[s] = 0
    :: else
    fi;
    if
    :: TAKES_BACK(s) -> asked[s] = false
    :: else
    fi
}

inline user_hears_landing(s)
{
    if
    :: placed[s] == landing[s] -> receiver_applies(landing[s])
    :: else
    fi;
    landing[s] = 0;
    placed[s] = 0
}

inline user_answers(s)
{
    printf("user is asked about %e %d of slot %d\n", reading[s], reading_number[s], s);
    if
    :: reading[s] == ENVELOPE ->
        assert(reading_number[s] == matched + 1); /* each once, in order */
        matched++
    :: else -> placed[s] = reading_id[s]
    fi;
    asked[s] = false
}
#else
#define IS_HEARD(s) true
#define IS_COUNTED(c) applied[c]
inline asks(s)
{
    skip
}
inline unplaces(s)
{
    skip
}
#endif

inline receiver_loses(s)
{
    printf("receiver gives slot %d up\n", s);
    unplaces(s);
    up_far[s] = false;
    drain(to[s]);
    receiver_stops_reading(s);
    arrived[s] = 0;
    arrived_told[s] = 0;
#ifndef BUG_TOLD_ONCE
    envelopes_told = 0; /* what told it may be lost */
#ifndef ACKS_STAY
    arrived_told[1 - s] = 0;
#endif
#endif
#ifdef BUG_FORGETS_LANDED
    landed_bits = 0;
#endif
}

#ifdef BUG_FLUSH_EARLY
#define IS_FLUSH_TRUE true
#else
#define IS_FLUSH_TRUE (landed_all >= PUT)
#endif

inline receiver_may_answer_flush()
{
    if
    :: holds_flush && IS_FLUSH_TRUE ->
        printf("receiver answers the flush\n");
        assert(applied[PUT] && (IS_COUNTED(1) || IS_VOID(1))); /* a flush is answered when it is true */
        holds_flush = false;
        answered[FLUSHED] = true
    :: else
    fi
}

inline receiver_applies(chunk)
{
    assert(!applied[chunk]);                         /* once */
    assert(!taken[OF_PUT(chunk)] || IS_VOID(chunk)); /* while its memory is lent */
    applied[chunk] = true;
    if
    :: !OF_PUT(chunk) ->
        assert(message_left > 0); /* before DONE */
        message_left--;
        answered[DONE] = message_left == 0
    :: else
    fi
}

inline chunk_lands(s, number, chunk)
{
    printf("receiver has chunk %d\n", chunk);
    if
#ifdef USER_LAGS
    :: chunk > 0 && !OF_PUT(chunk) -> landing[s] = chunk /* a put is not counted: its bytes are there */
    :: chunk > 0 && OF_PUT(chunk) -> receiver_applies(chunk)
#else
    :: chunk > 0 -> receiver_applies(chunk)
#endif
    :: else
    fi;
    landed_bits = landed_bits | BIT(number);
    do
    :: landed_bits & 1 ->
        landed_bits = landed_bits >> 1;
        landed_all++
    :: else -> break
    od;
    receiver_may_answer_flush()
}

/* The same chunk or envelope is on its way over the other slot, into its memory. */
#define OTHER_PLACES(s)                                                                            \
    (reading[1 - s] == kind && reading_number[1 - s] == n && !sinks[1 - s])
#ifdef BUG_STALE_OWNER
#define IS_OLDER(s) false
#else
#define IS_OLDER(s) (e < reading_epoch[1 - s])
#endif
#ifdef BUG_STALE_LEAD
#define OF_FORMER_LEAD false
#else
#define OF_FORMER_LEAD (e < envelope_epoch)
#endif
#ifdef BUG_FORMER_OWNER
#define FORMER_SINKS false
#else
#define FORMER_SINKS true
#endif

inline chunk_begins(s)
{
    assert(n <= landed_all + WINDOW); /* the sender keeps within the window */
    if
    :: HAS_LANDED(n) || OTHER_PLACES(s) && IS_OLDER(s) -> sinks[s] = true
    :: !HAS_LANDED(n) && OTHER_PLACES(s) && !IS_OLDER(s) ->
        unplaces(1 - s);
        sinks[1 - s] = FORMER_SINKS
    :: else
    fi
}

inline envelope_begins(s)
{
#ifdef BUG_GAP_IS_ERROR
    assert(n <= envelopes + 1); /* but what was before it may be on its way over the other slot */
#endif
    if
    :: n <= envelopes || OF_FORMER_LEAD -> sinks[s] = true
    :: else ->
        envelope_epoch = e;
#ifndef BUG_STALE_LEAD
        assert(n == envelopes + 1); /* a lead leaves nothing out */
#endif
        sinks[s] = n > envelopes + 1;
        if
        :: OTHER_PLACES(s) ->
            unplaces(1 - s);
            sinks[1 - s] = true
        :: else
        fi
    fi
}

inline receiver_reads_header(s)
{
    to[s]?kind, n, id, e;
    if
    :: kind == CHUNK -> chunk_begins(s)
    :: else -> envelope_begins(s)
    fi;
    asks(s);
    reading[s] = kind;
    reading_number[s] = n;
    reading_id[s] = id;
    reading_epoch[s] = e;
    printf("receiver reads on slot %d the header of %e %d, epoch %d, sinks it: %d\n", s, kind, n, e,
           sinks[s])
}

#ifdef BUG_SINK_NOT_COUNTED
#define COUNTS(s) (!sinks[s])
#else
#define COUNTS(s) true
#endif

inline receiver_reads_body(s)
{
    printf("receiver reads on slot %d the body, sinks it: %d\n", s, sinks[s]);
    if
    :: reading[s] == CHUNK ->
        arrived[s] = arrived[s] + COUNTS(s);
        if
        :: !sinks[s] -> chunk_lands(s, reading_number[s], reading_id[s])
        :: else
        fi
    :: reading[s] == ENVELOPE && !sinks[s] ->
        assert(reading_number[s] == envelopes + 1); /* in order, once */
        envelopes++;
        holds_flush = envelopes == ENVELOPES;
#ifdef BUG_HELD_BLOCKS
        flush_came_over = s;
#endif
        receiver_may_answer_flush()
    :: else
    fi;
    receiver_stops_reading(s)
}

inline receiver_acknowledges(slot, s)
{
    printf("receiver acknowledges %d of slot %d over slot %d\n", arrived[slot], slot, s);
    post_back(s, ACK, slot, generation[slot], arrived[slot]);
    arrived_told[slot] = arrived[slot]
}

inline receiver_tells(s)
{
    printf("receiver tells of envelope %d over slot %d\n", envelopes, s);
    post_back(s, TOLD, envelopes, 0, 0);
    envelopes_told = envelopes
}

#ifdef BUG_HELD_BLOCKS
#define READS(s) (up_far[s] && !(holds_flush && flush_came_over == s))
#else
#define READS(s) up_far[s]
#endif
#ifdef ACKS_STAY
#define MAY_GO_ELSEWHERE false
#else
#define MAY_GO_ELSEWHERE true
#endif
#define OWES_ACK(slot) (up_far[slot] && arrived[slot] > arrived_told[slot])
#define RECEIVER_ON(s)                                                                             \
    :: d_step { READS(s) && reading[s] == 0 && nempty(to[s]) -> receiver_reads_header(s) }         \
    :: d_step { READS(s) && reading[s] != 0 && IS_HEARD(s) -> receiver_reads_body(s) }             \
    :: d_step { envelopes > envelopes_told && HAS_ROOM_BACK(s) -> receiver_tells(s) }              \
    :: d_step { OWES_ACK(s) && HAS_ROOM_BACK(s) -> receiver_acknowledges(s, s) }                 \
    :: d_step { OWES_ACK(1 - s) && MAY_GO_ELSEWHERE && HAS_ROOM_BACK(s) ->              \
                receiver_acknowledges(1 - s, s) }                                                      \
    :: d_step { up_far[s] && !up[s] -> receiver_loses(s) }

#ifdef USER_LAGS
#define USER_ON(s)                                                                                 \
    :: d_step { landing[s] != 0 -> user_hears_landing(s) }                                         \
    :: d_step { landing[s] == 0 && asked[s] -> user_answers(s) }
#else
#define USER_ON(s)
#endif

active proctype receiver()
{
    do
    RECEIVER_ON(0)
    RECEIVER_ON(1)
    USER_ON(0)
    USER_ON(1)
    :: IS_FINISHED -> break
    od
}

/* ---- the network: slots die on either side at any moment, and come back or not ---- */

inline slot_returns(s)
{
    if
    :: up[s] -> sender_loses(s)
    :: else
    fi;
    if
    :: up_far[s] -> receiver_loses(s)
    :: else
    fi;
    printf("slot %d is back\n", s);
    generation[s]++;
    epoch++;
    up[s] = true;
    up_far[s] = true;
    if
    :: FIRST_UP != lead -> sender_chooses_lead()
    :: else
    fi
}

#define CAN_DIE(s) (deaths < DEATHS && up[s] && up_far[s] && !IS_FINISHED)
#define CAN_GO(s) (CAN_DIE(s) && !gone[1 - s])
#define NETWORK_ON(s)                                                                              \
    :: d_step { CAN_DIE(s) -> deaths++; sender_loses(s) }                                          \
    :: d_step { CAN_DIE(s) -> deaths++; receiver_loses(s) }                                        \
    :: d_step { CAN_GO(s) -> deaths++; gone[s] = true; sender_loses(s) }                           \
    :: d_step { CAN_GO(s) -> deaths++; gone[s] = true; receiver_loses(s) }                         \
    :: d_step { !(up[s] && up_far[s]) && !gone[s] -> slot_returns(s) }

active proctype network()
{
    do
    NETWORK_ON(0)
    NETWORK_ON(1)
    :: IS_FINISHED -> break
    od
}
