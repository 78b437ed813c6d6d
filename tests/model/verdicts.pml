/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verdicts, as src/control has them (heal.c, heal_below.c, verdict.c, history.c): RANKS ranks of one host in a tree, of
 * which CRASHES die and CLOSES close in good order, at any moment. README.md says what is checked and left out.
 *
 *   kind 0, HEAL: the one below has dialled     == HELLO ==>  <== ACCEPT or REFUSE ==   == FIRST, … ==>
 *   kind 1, ADOPT: the one above has            the same, the other way round
 *
 * A connection is its two ways; the end of one is ENDED, or that its other end is dead and everything is read. Who dies
 * may have said only the first frames of what it had to say just then. Of each kind two ranks have one connection at a time.
 *
 * Time is order: a rank is patient as long as what it waits for lives. So many times (SLOW) it is not.
 * Nothing goes on for ever: when nobody can do anything more, everything must be in order (looks_back).
 * BUG_… plants one mistake each.
 */
#ifndef RANKS
#define RANKS 4
#endif
#ifndef FAN
#define FAN 2 /* children of each rank in the tree of the start: 1 a chain, 3 a star */
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef CLOSES
#define CLOSES 0
#endif
#ifndef SLOW
#define SLOW 0
#endif
#define NONE RANKS
#define LIFE 255
#define WORDS 3 /* that one who dies may still say */
#define ROOM 8 /* frames on their way in one direction of one connection */

#define BIT(r) (1 << (r))
#define HAS(set, r) (((set) >> (r)) & 1)
#define AT(a, b) ((a)*RANKS + (b))
#define WAY(kind, from, to) way[(kind)*RANKS * RANKS + AT(from, to)]
#define ABOVE_AT_START(r) (((r)-1) / FAN)

mtype = { HELLO, ACCEPT, REFUSE, ENDED, FIRST, REPORT, VERDICT, CLOSED, BYE, TOLD };

chan way[2 * RANKS * RANKS] = [ROOM] of { mtype, byte, byte }; /* type, rank, number of a verdict */

byte ended; /* set: dead, or closed in good order; who looks at a connection sees it, and the checks */
#define LIVES(r) (!HAS(ended, r))
byte given[RANKS * (RANKS + 1) + 1]; /* checks: by number, whom a verdict was on, + 1; 0: there was none */
byte crashes, closes, slow;

/* ---- of each rank ---- */
byte gone[RANKS], closed[RANKS]; /* sets: there was a verdict; the news that it closed */
byte number_of[RANKS * RANKS];   /* of verdicts */
byte verdicts[RANKS];            /* the highest number so far */
byte out[RANKS];                 /* set: gone, closed, or seems so to this rank */
byte kept[RANKS];                /* set: reported, and not judged yet */
byte kept_number[RANKS * RANKS]; /* of those the ones that somebody has judged; 0 */
byte news[RANKS];                /* set: of closed, not told to those below */
byte parent[RANKS], parent_kind[RANKS];
byte children[RANKS], by_call[RANKS]; /* sets: those below; of which kind the connection is */
byte heard[RANKS] = BIT(RANKS) - 1;                    /* set: neighbours that have said something on their connection */
bool is_top[RANKS], is_seeking[RANKS], must_check[RANKS];
bool is_hearing[RANKS]; /* coordinates, and does not judge before others have told it all */
byte awaited[RANKS];    /* set: those */
byte told[RANKS] = BIT(RANKS) - 1; /* set: children that have told all they knew when they came */
byte attempt[RANKS] = NONE;  /* whom it has dialled; NONE */
byte there[RANKS] = NONE;    /* who lived when it was last dialled; NONE */
byte visitors[RANKS]; /* set: have dialled, and said nothing yet */
byte calls[RANKS];    /* set: those below that it has dialled */
byte adopter[RANKS] = NONE;  /* the one above that has dialled, and said nothing yet; NONE */

byte breath = LIFE; /* frames that who acts can still say; the last ones of who dies */

hidden byte i, j, x, n, set, above, subject, number;
hidden mtype what;

#define KNOWN(me) (gone[me] | closed[me])
#define IS_PARENT(me, from, kind) (parent[me] == from && parent_kind[me] == kind)
#define IS_CHILD(me, from, kind) (HAS(children[me], from) && HAS(by_call[me], from) == kind)
#define IS_NEIGHBOUR(me, from, kind) (IS_PARENT(me, from, kind) || IS_CHILD(me, from, kind))
/* It has this connection; or one that is not more than dialled. */
#define HOLDS(me, from, kind)                                                                      \
    (IS_NEIGHBOUR(me, from, kind) ||                                                               \
     kind == 0 && (attempt[me] == from || HAS(visitors[me], from)) ||                              \
     kind == 1 && (adopter[me] == from || HAS(calls[me], from)))

/* ---- frames ---- */

inline say(kind, from, to, type, word, word2)
{
    if
    :: LIVES(to) && breath > 0 ->
        assert(nfull(WAY(kind, from, to))); /* of the model: more ROOM */
        WAY(kind, from, to)!type, word, word2;
        breath = (breath == LIFE -> LIFE : breath - 1)
    :: else
    fi
}

#ifdef BACKWARDS /* who coordinates next hears last */
#define TURN(i) (RANKS - 1 - (i))
#else
#define TURN(i) (i)
#endif
inline flood(me, type, word, word2)
{
    i = 0;
    do
    :: i < RANKS ->
        if
        :: HAS(children[me], TURN(i)) -> say(HAS(by_call[me], TURN(i)), me, TURN(i), type, word, word2)
        :: else
        fi;
        i++
    :: else -> break
    od
}

inline empties(kind, from, to)
{
    do
    :: len(WAY(kind, from, to)) > 0 -> WAY(kind, from, to)?_, _, _
    :: len(WAY(kind, from, to)) == 0 -> break
    od
}

inline hangs_up(me, other, kind)
{
    empties(kind, other, me);
    say(kind, me, other, ENDED, 0, 0)
}

/* ---- verdicts ---- */

/* Numbers are no two coordinators': the remainder says whose. */
#ifdef BUG_NUMBERS_ANEW
#define NEXT_NUMBER(me) (verdicts[me] + 1)
#else
#define NEXT_NUMBER(me) (verdicts[me] + 1 + (me + 2 * RANKS - verdicts[me] % RANKS) % RANKS)
#endif

inline judge(me, rank, its_number)
{
    kept[me] = kept[me] & ~BIT(rank);
    kept_number[AT(me, rank)] = 0;
    if
    :: HAS(KNOWN(me), rank)
    :: else ->
        printf("rank %d hears that rank %d is dead (%d)\n", me, rank, its_number);
        assert(!LIVES(rank)); /* nobody is judged who lives */
        assert(crashes > 0);  /* nor who closed, unless that was lost with one who died */
        assert(slow > 0 || its_number > verdicts[me]); /* in one order */
        gone[me] = gone[me] | BIT(rank);
        out[me] = out[me] | BIT(rank);
        number_of[AT(me, rank)] = its_number;
        verdicts[me] = (its_number > verdicts[me] -> its_number : verdicts[me]);
        must_check[me] = true;
        flood(me, VERDICT, rank, its_number)
    fi
}

inline gives_verdict(me, rank, its_number)
{
    n = (its_number != 0 -> its_number : NEXT_NUMBER(me));
    assert(given[n] == 0 || given[n] == rank + 1); /* a number is one verdict's */
    given[n] = rank + 1;
    judge(me, rank, n)
}

inline keeps(me, rank, its_number)
{
    kept[me] = kept[me] | BIT(rank);
    kept_number[AT(me, rank)] = (its_number != 0 -> its_number : kept_number[AT(me, rank)])
}

inline report(me, rank, its_number)
{
    if
    :: HAS(KNOWN(me), rank)
    :: !HAS(KNOWN(me), rank) && is_top[me] && (its_number != 0 || !is_hearing[me]) ->
        gives_verdict(me, rank, its_number)
    :: else ->
#ifndef BUG_SAID_ONCE
        keeps(me, rank, its_number);
#endif
        if
        :: parent[me] != NONE -> say(parent_kind[me], me, parent[me], REPORT, rank, its_number)
        :: else -> keeps(me, rank, its_number)
        fi
    fi
}

inline reports_again(me)
{
    set = kept[me];
#ifdef BUG_FORGETS_KEPT
    set = (is_top[me] -> 0 : set);
#endif
    kept[me] = 0;
    x = 0;
    do
    :: x < RANKS ->
        if
        :: HAS(set, x) -> report(me, x, kept_number[AT(me, x)])
        :: else
        fi;
        x++
    :: else -> break
    od
}

/* ---- good-byes ---- */

inline tells_news(me)
{
    x = 0;
    do
    :: x < RANKS ->
        if
        :: HAS(news[me], x) -> flood(me, CLOSED, x, 0)
        :: else
        fi;
        x++
    :: else -> break
    od;
    news[me] = 0
}

inline has_closed(me, rank)
{
    printf("rank %d hears that rank %d has closed\n", me, rank);
    assert(!LIVES(rank));
    closed[me] = closed[me] | BIT(rank);
    kept[me] = kept[me] & ~BIT(rank);
    kept_number[AT(me, rank)] = 0;
    out[me] = out[me] | BIT(rank);
    must_check[me] = true
}

inline passes_on(me, rank)
{
    news[me] = news[me] | BIT(rank);
    if
    :: is_top[me] || parent[me] == NONE || parent[me] == rank -> tells_news(me)
    :: else -> say(parent_kind[me], me, parent[me], CLOSED, rank, 0)
    fi
}

inline rank_closed(me, rank)
{
    if
    :: HAS(KNOWN(me), rank)
    :: else ->
        has_closed(me, rank);
        passes_on(me, rank)
    fi
}

inline hears_closed(me, from, kind, rank)
{
    if
    :: IS_PARENT(me, from, kind) ->
        if
        :: HAS(KNOWN(me), rank)
        :: else -> has_closed(me, rank)
        fi;
        flood(me, CLOSED, rank, 0)
    :: else -> rank_closed(me, rank)
    fi
}

/* This rank did not see its end. */
inline absent(me, rank)
{
    out[me] = out[me] | BIT(rank);
    if
    :: rank > 0 && HAS(closed[me], ABOVE_AT_START(rank)) && !HAS(kept[me], rank) ->
        rank_closed(me, rank) /* it has most likely, too, unless somebody saw it die */
    :: else -> report(me, rank, 0)
    fi
}

/* ---- neighbours ---- */

/* All that happened so far: verdicts in their order, then who closed. */
inline tells_history(me, to, kind, type)
{
    n = 1;
    x = 0;
    do
    :: x < RANKS ->
        if
        :: n > verdicts[me] && HAS(closed[me], x) -> say(kind, me, to, CLOSED, x, 0)
        :: n <= verdicts[me] && HAS(gone[me], x) && number_of[AT(me, x)] == n -> say(kind, me, to, type, x, n)
        :: else
        fi;
        x++
    :: x == RANKS && n <= verdicts[me] ->
        n++;
        x = 0
    :: else -> break
    od
}

inline takes_parent(me, rank, kind)
{
    printf("rank %d is below rank %d now (%d)\n", me, rank, kind);
    is_seeking[me] = false;
    there[me] = NONE;
    parent[me] = rank;
    parent_kind[me] = kind;
    is_top[me] = false;
    is_hearing[me] = false;
    awaited[me] = 0;
    out[me] = out[me] & ~BIT(rank);
#ifdef BUG_UNHEARD_IS_DEAD
    heard[me] = heard[me] | BIT(rank);
#else
    heard[me] = (kind == 1 -> heard[me] | BIT(rank) : heard[me] & ~BIT(rank));
#endif
    if
    :: adopter[me] != NONE && adopter[me] != rank -> hangs_up(me, adopter[me], 1)
    :: else
    fi;
    adopter[me] = NONE;
    say(kind, me, rank, FIRST, 0, 0);
    tells_history(me, rank, kind, REPORT);
    reports_again(me);
    say(kind, me, rank, TOLD, 0, 0)
}

inline takes_child(me, rank, kind)
{
    printf("rank %d is above rank %d now (%d)\n", me, rank, kind);
    if
    :: HAS(children[me], rank) -> hangs_up(me, rank, HAS(by_call[me], rank))
    :: else
    fi;
    children[me] = children[me] | BIT(rank);
    told[me] = told[me] & ~BIT(rank);
    by_call[me] = (kind == 1 -> by_call[me] | BIT(rank) : by_call[me] & ~BIT(rank));
    out[me] = out[me] & ~BIT(rank);
#ifdef BUG_UNHEARD_IS_DEAD
    heard[me] = heard[me] | BIT(rank);
#else
    heard[me] = (kind == 0 -> heard[me] | BIT(rank) : heard[me] & ~BIT(rank));
#endif
#ifndef BUG_NOT_TOLD_BELOW
    tells_history(me, rank, kind, VERDICT)
#endif
}

/* One that never said anything on this connection has ended only that. */
inline loses_neighbour(me, rank)
{
    printf("rank %d loses rank %d\n", me, rank);
    if
    :: parent[me] == rank ->
        parent[me] = NONE;
        is_seeking[me] = true
    :: else -> must_check[me] = true
    fi;
    children[me] = children[me] & ~BIT(rank);
    by_call[me] = by_call[me] & ~BIT(rank);
    if
    :: HAS(heard[me], rank) ->
        out[me] = out[me] | BIT(rank);
        report(me, rank, 0)
    :: else
    fi
}

/* ---- going up ---- */

/* As weft_control_tree_up(): to `above`. */
inline finds_above(me, rank)
{
    above = NONE;
    n = rank;
    do
    :: n > 0 && above == NONE ->
        n = ABOVE_AT_START(n);
        above = (HAS(out[me], n) -> NONE : n)
    :: else -> break
    od;
    n = 0;
    do
    :: n < rank && above == NONE ->
        above = (HAS(out[me], n) -> NONE : n);
        n++
    :: else -> break
    od
}

/* Those who are about to come may know verdicts of the one before, which it did not live to tell us. */
inline begins_to_hear(me)
{
    j = 0;
    do
    :: j < RANKS ->
        finds_above(me, j);
        if
#ifdef BUG_SPOKEN_IS_TOLD
        :: j == me || above != me || HAS(out[me] | children[me], j)
#else
        :: j == me || above != me || HAS(out[me] | children[me] & told[me], j)
#endif
        :: else -> awaited[me] = awaited[me] | BIT(j)
        fi;
        j++
    :: else -> break
    od;
    is_hearing[me] = true
}

inline has_heard(me)
{
    is_hearing[me] = false;
    awaited[me] = 0;
    reports_again(me)
}

inline becomes_top(me)
{
    printf("rank %d coordinates\n", me);
    is_seeking[me] = false;
    there[me] = NONE;
#ifndef BUG_JUDGES_UNHEARD
    if
    :: !is_top[me] -> begins_to_hear(me)
    :: else
    fi;
#endif
    is_top[me] = true;
    parent[me] = NONE;
    reports_again(me);
#ifndef BUG_NEWS_KEPT
    tells_news(me)
#endif
}

#define IS_FREE(me, other, kind)                                                                   \
    (!HOLDS(other, me, kind) && len(WAY(kind, me, other)) + len(WAY(kind, other, me)) == 0)

inline seeks(me)
{
    finds_above(me, me);
    if
    :: above == NONE -> becomes_top(me)
    :: above != NONE && LIVES(above) && IS_FREE(me, above, 0) ->
        printf("rank %d asks rank %d\n", me, above);
        attempt[me] = above;
        there[me] = above;
        say(0, me, above, HELLO, 0, 0)
    :: above != NONE && LIVES(above) && !IS_FREE(me, above, 0) /* in a moment */
    :: else -> /* nobody is there (any more: then it is looked for again) */
        out[me] = out[me] | BIT(above);
        if
        :: there[me] == above
        :: else -> absent(me, above)
        fi;
        there[me] = NONE
    fi
}

inline gives_up(me)
{
    printf("rank %d gives rank %d up\n", me, attempt[me]);
    slow++;
    out[me] = out[me] | BIT(attempt[me]);
    hangs_up(me, attempt[me], 0);
    attempt[me] = NONE;
    there[me] = NONE
}

/* Those above that a coordinator did not find, and nobody knows to be gone. */
#define STRAYS(me) (out[me] & ~KNOWN(me) & (BIT(me) - 1))

inline looks_again(me)
{
    out[me] = KNOWN(me);
    is_seeking[me] = true
}

/* ---- calling those below ---- */

inline checks_below(me)
{
    must_check[me] = false;
    j = 0;
    do
    :: j < RANKS ->
        finds_above(me, j);
        if
        :: j == me || above != me || parent[me] == j || HAS(out[me] | children[me] | calls[me], j)
        :: else ->
            if
            :: LIVES(j) && IS_FREE(me, j, 1) ->
                printf("rank %d calls rank %d\n", me, j);
                calls[me] = calls[me] | BIT(j);
                say(1, me, j, HELLO, 0, 0)
            :: LIVES(j) && !IS_FREE(me, j, 1) -> must_check[me] = true
            :: else -> absent(me, j)
            fi
        fi;
        j++
    :: else -> break
    od
}

inline ends_call(me, rank)
{
    printf("rank %d calls rank %d in vain\n", me, rank);
    slow++;
    hangs_up(me, rank, 1);
    calls[me] = calls[me] & ~BIT(rank);
    must_check[me] = true
}

/* ---- what comes ---- */

inline hears_hello(me, from, kind)
{
    if
    :: HAS(KNOWN(me), from) || kind == 1 && (parent[me] != NONE || adopter[me] != NONE) ->
        say(kind, me, from, REFUSE, 0, 0)
    :: !HAS(KNOWN(me), from) && kind == 0 ->
        visitors[me] = visitors[me] | BIT(from);
        say(kind, me, from, ACCEPT, 0, 0)
    :: else ->
        adopter[me] = from;
        say(kind, me, from, ACCEPT, 0, 0);
        if
        :: attempt[me] != NONE -> hangs_up(me, attempt[me], 0)
        :: else
        fi;
        attempt[me] = NONE
    fi
}

inline hears_accept(me, from, kind)
{
    if
    :: kind == 0 ->
        attempt[me] = NONE;
        takes_parent(me, from, 0)
    :: else ->
        calls[me] = calls[me] & ~BIT(from);
        if
#ifndef BUG_ADOPTS_TWICE
        :: HAS(children[me], from) -> hangs_up(me, from, 1) /* it has come by itself */
#endif
        :: else ->
            say(1, me, from, FIRST, 0, 0);
            takes_child(me, from, 1)
        fi
    fi
}

inline hears_refuse(me, from, kind)
{
    if
    :: kind == 0 ->
        attempt[me] = NONE;
        out[me] = out[me] | BIT(from)
    :: else -> calls[me] = calls[me] & ~BIT(from)
    fi
}

inline hears_first(me, from, kind)
{
    if
    :: IS_NEIGHBOUR(me, from, kind) -> heard[me] = heard[me] | BIT(from)
    :: kind == 0 && !IS_NEIGHBOUR(me, from, kind) ->
        visitors[me] = visitors[me] & ~BIT(from);
        if
        :: HAS(KNOWN(me), from) -> hangs_up(me, from, 0)
        :: else -> takes_child(me, from, 0)
        fi
    :: else ->
        adopter[me] = NONE;
        if
        :: HAS(KNOWN(me), from) || parent[me] != NONE -> hangs_up(me, from, 1)
        :: else -> takes_parent(me, from, 1)
        fi
    fi
}

/* By the end of this connection. */
inline loses(me, from, kind)
{
    empties(kind, me, from);
    if
    :: IS_NEIGHBOUR(me, from, kind) -> loses_neighbour(me, from)
    :: kind == 0 && !IS_NEIGHBOUR(me, from, kind) ->
        attempt[me] = (attempt[me] == from -> NONE : attempt[me]);
        visitors[me] = visitors[me] & ~BIT(from)
    :: else ->
        must_check[me] = must_check[me] || HAS(calls[me], from);
        calls[me] = calls[me] & ~BIT(from);
        adopter[me] = (adopter[me] == from -> NONE : adopter[me])
    fi
}

/* Somebody lost its connection to one that lives, perhaps: we would see its end. */
#define IS_OURS_TO_SEE(me, rank) (rank == me || parent[me] == rank || HAS(children[me], rank))

inline hears(me, from, kind)
{
    WAY(kind, from, me)?what, subject, number;
    if
    :: what == HELLO -> hears_hello(me, from, kind)
    :: what != HELLO && !HOLDS(me, from, kind) /* of a connection that is no more */
    :: what != HELLO && HOLDS(me, from, kind) ->
        if
        :: IS_NEIGHBOUR(me, from, kind) && what != ENDED -> heard[me] = heard[me] | BIT(from)
        :: else
        fi;
        if
        :: what == ACCEPT -> hears_accept(me, from, kind)
        :: what == REFUSE -> hears_refuse(me, from, kind)
        :: what == ENDED -> loses(me, from, kind)
        :: what == FIRST -> hears_first(me, from, kind)
        :: what == REPORT && IS_OURS_TO_SEE(me, subject)
        :: what == REPORT && !IS_OURS_TO_SEE(me, subject) -> report(me, subject, number)
        :: what == VERDICT -> judge(me, subject, number)
        :: what == CLOSED -> hears_closed(me, from, kind, subject)
        :: what == BYE -> rank_closed(me, from)
        :: what == TOLD ->
            awaited[me] = awaited[me] & ~BIT(from);
            told[me] = told[me] | BIT(from)
        fi
    fi;
    subject = 0;
    number = 0
}

/* Who is called while its parent is gone unnoticed, or another is about to be, says that it has one, and is called
 * again: here it is called later. */
#define MAY_HEAR(me, from, kind)                                                                   \
    (kind == 0 || parent[me] == from || adopter[me] == from ||                                     \
     adopter[me] == NONE && (parent[me] == NONE || LIVES(parent[me])))
#define HAS_END(me, from, kind)                                                                    \
    (!LIVES(from) && len(WAY(kind, from, me)) == 0 && HOLDS(me, from, kind))
#define HAS_HEARD(me) (is_hearing[me] && (awaited[me] & ~out[me]) == 0)
#define MAY_SEEK(me)                                                                               \
    (is_seeking[me] && attempt[me] == NONE && (adopter[me] == NONE || slow < SLOW))

/* ---- ends ---- */

inline forgets_all(r)
{
    gone[r] = 0;
    closed[r] = 0;
    verdicts[r] = 0;
    out[r] = 0;
    kept[r] = 0;
    news[r] = 0;
    is_hearing[r] = false;
    awaited[r] = 0;
    told[r] = 0;
    parent[r] = NONE;
    children[r] = 0;
    by_call[r] = 0;
    heard[r] = 0;
    is_top[r] = false;
    is_seeking[r] = false;
    must_check[r] = false;
    attempt[r] = NONE;
    there[r] = NONE;
    visitors[r] = 0;
    calls[r] = 0;
    adopter[r] = NONE;
    i = 0;
    do
    :: i < RANKS ->
        number_of[AT(r, i)] = 0;
        kept_number[AT(r, i)] = 0;
        empties(0, i, r);
        empties(1, i, r);
        i++
    :: else -> break
    od
}

inline dies(r)
{
    printf("rank %d dies\n", r);
    ended = ended | BIT(r);
    crashes++;
    breath = LIFE;
    forgets_all(r)
}

inline says_bye(r)
{
    printf("rank %d closes\n", r);
    closes++;
    tells_news(r);
    if
    :: parent[r] != NONE -> say(parent_kind[r], r, parent[r], BYE, 0, 0)
    :: else
    fi;
    flood(r, BYE, 0, 0);
    ended = ended | BIT(r);
    forgets_all(r)
}

/* ---- ranks ---- */

#define ME (_pid / RANKS)
#define FROM (_pid % RANKS)
#define COMES(kind) (LIVES(ME) && len(WAY(kind, FROM, ME)) > 0 && MAY_HEAR(ME, FROM, kind))
#define ACTS (LIVES(ME) && ME == FROM)

/* What it does is its last, and it does not come to the end of it. */
inline may_die()
{
    if
    :: true
    :: crashes < CRASHES -> select(breath : 0 .. WORDS)
    fi
}

#define IT_IS(deed)                                                                                \
    d_step                                                                                         \
    {                                                                                              \
        deed;                                                                                      \
        if                                                                                         \
        :: breath != LIFE -> dies(ME)                                                              \
        :: else                                                                                    \
        fi;                                                                                        \
        n = 0                                                                                      \
    }

/* What a rank hears of each other one; and, as if of itself, what it does without being told. */
active [RANKS * RANKS] proctype rank()
{
end:
    do
    :: atomic { COMES(0) -> may_die(); IT_IS(hears(ME, FROM, 0)) }
    :: atomic { COMES(1) -> may_die(); IT_IS(hears(ME, FROM, 1)) }
    :: atomic { LIVES(ME) && HAS_END(ME, FROM, 0) -> may_die(); IT_IS(loses(ME, FROM, 0)) }
    :: atomic { LIVES(ME) && HAS_END(ME, FROM, 1) -> may_die(); IT_IS(loses(ME, FROM, 1)) }
    :: atomic { ACTS && MAY_SEEK(ME) ->
                slow = slow + (adopter[ME] != NONE);
                may_die();
                IT_IS(seeks(ME)) }
    :: atomic { ACTS && must_check[ME] -> may_die(); IT_IS(checks_below(ME)) }
    :: atomic { ACTS && HAS_HEARD(ME) -> may_die(); IT_IS(has_heard(ME)) }
    :: ACTS && is_top[ME] && !is_seeking[ME] && STRAYS(ME) != 0 ->
progress_by_time: /* now and then, for as long as it takes */
        d_step { looks_again(ME) }
#if SLOW > 0
    :: d_step { LIVES(ME) && HAS(calls[ME], FROM) && slow < SLOW -> ends_call(ME, FROM); n = 0 }
    :: d_step { LIVES(ME) && attempt[ME] == FROM && slow < SLOW -> gives_up(ME); n = 0 }
    :: d_step { ACTS && is_hearing[ME] && slow < SLOW -> slow++; has_heard(ME); n = 0 }
#endif
    od
}

/* ---- fate ---- */

inline grows_tree()
{
    i = 0;
    do
    :: i < RANKS ->
        parent[i] = (i == 0 -> NONE : ABOVE_AT_START(i));
        if
        :: i > 0 -> children[ABOVE_AT_START(i)] = children[ABOVE_AT_START(i)] | BIT(i)
        :: else -> is_top[i] = true
        fi;
        i++
    :: else -> break
    od;
    i = 0
}

/* When nobody can do anything more. */
inline looks_back()
{
    i = 0;
    j = NONE;
    n = 0;
    set = 0;
    do
    :: i < RANKS ->
        if
        :: LIVES(i) ->
            assert(KNOWN(i) == ended); /* everybody knows of all */
            assert(kept[i] == 0);
            assert(!is_seeking[i] && !is_hearing[i]);
            assert(is_top[i] || parent[i] != NONE && HAS(children[parent[i]], i));
            assert(CLOSES > 0 || set == 0 || gone[i] == set - 1); /* and thinks the same of it */
            set = gone[i] + 1;
            n = n + is_top[i];
            x = 0;
            do
            :: x < RANKS -> /* by the same number */
                assert(j == NONE || slow + CLOSES > 0 || number_of[AT(i, x)] == number_of[AT(j, x)]);
                x++
            :: else -> break
            od;
            j = i
        :: else
        fi;
        i++
    :: else -> break
    od;
    assert(n == 1 || ended == BIT(RANKS) - 1)
}

active proctype fate()
{
    byte r;
    d_step { grows_tree(); n = 0 };
    do
    :: atomic { crashes < CRASHES ->
            select(r : 0 .. RANKS - 1);
            if
            :: LIVES(r) -> d_step { dies(r); n = 0 }
            :: else -> crashes++ /* fate may miss, and not for ever */
            fi;
            r = 0
        }
#if CLOSES > 0
    :: atomic { closes < CLOSES ->
            select(r : 0 .. RANKS - 1);
            if
            :: LIVES(r) -> d_step { says_bye(r); n = 0 }
            :: else -> closes++
            fi;
            r = 0
        }
#endif
    :: d_step { crashes + closes < CRASHES + CLOSES -> crashes = CRASHES; closes = CLOSES } /* that was all */
    :: timeout -> d_step { looks_back(); n = 0; x = 0 }; break
    od
}
