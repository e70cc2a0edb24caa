/* The view change: two ranks that live never hold different decisions of one epoch. After
 * src/liveness/view.c, whose design note gives the rules.
 *
 * Ballots 1 to B stand for (round, rank) in ascending order: each is begun at most once, by any rank,
 * in any order of time. Messages are never taken away, so each may be lost, repeated, late, or come
 * from a rank that died since; that covers partitions, time-outs and isolation, too (who is isolated
 * does what a dead rank does, and never decides). An answer counts at once or never: until the
 * coordinator acts, later is the same as at once. A ballot's D is any set of ranks that are dead when
 * it begins; other proofs only make a rank drop more. A value is the number of the ballot that
 * proposed it first, so equal sets of failed ranks with unequal records count as a difference, and
 * nothing depends on who is in the set.
 *
 * At most N - 2 ranks die, since two must live to disagree. The dead's state and ballots of which
 * nothing can come any more are forgotten, which makes equal futures equal states. */
#ifndef N
#define N 3
#endif
#ifndef B
#define B 3
#endif
#ifndef DEATHS
#define DEATHS (N - 2)
#endif
#define ALL ((1 << N) - 1)
#define BIT(r) (1 << (r))
#define NOBODY N
#define USED_UP (N + 1)
#define SIZE(s) (((s) & 1) + (((s) >> 1) & 1) + (((s) >> 2) & 1) + (((s) >> 3) & 1))

#ifdef MUTANT_SHRINKING /* counts over the view without the dead */
#define LIVE(d) (ALL & ~(d))
#define LOWEST(d) (LIVE(d) & -(LIVE(d)))
#define QUORUM(s, d) \
    (2 * SIZE((s) & LIVE(d)) > SIZE(LIVE(d)) || \
     (2 * SIZE((s) & LIVE(d)) == SIZE(LIVE(d)) && ((s) & LOWEST(d))))
#else
#define QUORUM(s, d) (2 * SIZE(s) > N || (2 * SIZE(s) == N && ((s) & 1)) || ((s) | (d)) == ALL)
#endif

byte dead;
/* Of ranks. `value` belongs to `accepted`; it is what was decided once `decided` is set, and then
 * `accepted` is the ballot under which the rank tells it. */
bit decided[N];
byte known[N], promised[N], accepted[N], value[N];
/* Of ballots. */
byte owner[B + 1], without[B + 1], promises[B + 1], best[B + 1], adopted[B + 1], proposal[B + 1], accepts[B + 1];
byte i, j, k; /* of loops */

#define IS_LIVE(r) (!(dead & BIT(r)))
#ifdef MUTANT_LEARN
#define LEADS(r, b) (IS_LIVE(r) && !decided[r])
#define LEADS1(r, b) (IS_LIVE(r) && promised[r] == b && !decided[r])
#define MAY_LEARN(r, b) 1
#else
#define LEADS(r, b) (IS_LIVE(r) && promised[r] == b && !decided[r])
#define LEADS1(r, b) LEADS(r, b)
#define MAY_LEARN(r, b) (promised[r] <= b)
#endif

#ifdef MUTANT_NO_DROP
#define HEARS(r, from) 1
#define MERGE(r, b) skip
#else
#define HEARS(r, from) (!(known[r] & BIT(from)))
#define MERGE(r, b) known[r] = known[r] | without[b]
#endif
#ifdef MUTANT_NO_ADOPTION
#define TAKE(r, b) skip
#else
#ifdef MUTANT_DECIDED_HIDDEN
#define TAKE(r, b) if :: accepted[r] > best[b] -> best[b] = accepted[r]; adopted[b] = value[r] :: else fi
#else
#define TAKE(r, b) if :: decided[r] -> best[b] = B + 1; adopted[b] = value[r] \
                      :: !decided[r] && accepted[r] > best[b] -> best[b] = accepted[r]; adopted[b] = value[r] \
                      :: else fi
#endif
#endif
#ifdef MUTANT_LATE
#define OVER(b) dead /* who died since the ballot began */
#else
#define OVER(b) without[b]
#endif

inline tidy() {
    /* ranks that died */
    i = 0;
    do
    :: i < N && (dead & BIT(i)) ->
        known[i] = 0; promised[i] = 0;
        j = 0; k = 0;
        do
        :: j < N -> if :: decided[i] && IS_LIVE(j) && !decided[j] && MAY_LEARN(j, accepted[i]) && HEARS(j, i) -> k = 1 :: else fi; j++
        :: else -> break
        od;
        if :: !k -> decided[i] = 0; accepted[i] = 0; value[i] = 0 :: else fi;
        i++
    :: i < N && !(dead & BIT(i)) -> i++
    :: else -> break
    od;
    i = 1;
    do
    :: i <= B && owner[i] < N ->
        if
        :: LEADS(owner[i], i) && (proposal[i] || LEADS1(owner[i], i))
        :: else ->
            promises[i] = 0; best[i] = 0; adopted[i] = 0; accepts[i] = 0;
            j = 0; k = 0;
            do
            :: j < N -> if :: proposal[i] && IS_LIVE(j) && j != owner[i] && promised[j] <= i && accepted[j] != i && HEARS(j, owner[i]) -> k = 1 :: else fi; j++
            :: else -> break
            od;
            if :: !k -> owner[i] = USED_UP; without[i] = 0; proposal[i] = 0 :: else fi
        fi;
        i++
    :: i <= B && owner[i] >= N -> i++
    :: else -> break
    od;
    i = 0; j = 0; k = 0
}

#define AGREE i = 0; do :: i < N -> j = i + 1; do :: j < N -> assert(!decided[i] || !decided[j] || value[i] == value[j] || (dead & (BIT(i) | BIT(j)))); j++ :: else -> break od; i++ :: else -> break od

#define DIE(r) :: d_step { IS_LIVE(r) && SIZE(dead) < DEATHS -> dead = dead | BIT(r); tidy() }

#define BEGIN(r, b, d) :: d_step { owner[b] == NOBODY && IS_LIVE(r) && !decided[r] && promised[r] < b && ((d) & ~dead) == 0 && (known[r] & ~(d)) == 0 -> \
    owner[b] = r; without[b] = d; promised[r] = b; MERGE(r, b); promises[b] = BIT(r); TAKE(r, b); tidy() }

#define PROMISE(r, b) :: d_step { owner[b] < N && !proposal[b] && IS_LIVE(r) && owner[b] != r && promised[r] < b && HEARS(r, owner[b]) && LEADS1(owner[b], b) -> \
    promised[r] = b; MERGE(r, b); promises[b] = promises[b] | BIT(r); TAKE(r, b); tidy() }

#define PROPOSE(b) :: d_step { owner[b] < N && !proposal[b] && LEADS1(owner[b], b) && QUORUM(promises[b], OVER(b)) -> \
    if :: adopted[b] -> proposal[b] = adopted[b] :: else -> proposal[b] = b fi; \
    accepted[owner[b]] = b; value[owner[b]] = proposal[b]; accepts[b] = BIT(owner[b]); best[b] = 0; adopted[b] = 0; promises[b] = 0; tidy() }

#define ACCEPT(r, b) :: d_step { owner[b] < N && proposal[b] && IS_LIVE(r) && owner[b] != r && promised[r] <= b && accepted[r] != b && HEARS(r, owner[b]) -> \
    promised[r] = b; accepted[r] = b; if :: !decided[r] -> value[r] = proposal[b] :: else fi; MERGE(r, b); accepts[b] = accepts[b] | BIT(r); tidy() }

#define COUNT(b) :: d_step { owner[b] < N && proposal[b] && LEADS(owner[b], b) && QUORUM(accepts[b], OVER(b)) -> \
    decided[owner[b]] = 1; value[owner[b]] = proposal[b]; AGREE; tidy() }

#define HEAR(r, z) :: d_step { decided[z] && IS_LIVE(r) && !decided[r] && r != z && MAY_LEARN(r, accepted[z]) && HEARS(r, z) -> \
    promised[r] = accepted[z]; accepted[r] = accepted[z]; value[r] = value[z]; decided[r] = 1; AGREE; tidy() }

#define SUBSETS(r, b) BEGIN(r, b, 0) BEGIN(r, b, 1) BEGIN(r, b, 2) BEGIN(r, b, 3) BEGIN(r, b, 4) BEGIN(r, b, 5) BEGIN(r, b, 6) \
   SUBSETS4(r, b)
#if N >= 4
#define SUBSETS4(r, b) BEGIN(r, b, 8) BEGIN(r, b, 9) BEGIN(r, b, 10) BEGIN(r, b, 12)
#else
#define SUBSETS4(r, b)
#endif
#define RANK(r, b) SUBSETS(r, b) PROMISE(r, b) ACCEPT(r, b)
#if N >= 4
#define RANKS(b) RANK(0, b) RANK(1, b) RANK(2, b) RANK(3, b) PROPOSE(b) COUNT(b)
#else
#define RANKS(b) RANK(0, b) RANK(1, b) RANK(2, b) PROPOSE(b) COUNT(b)
#endif

active proctype job() {
    d_step { i = 0; do :: i <= B -> owner[i] = NOBODY; i++ :: else -> break od; i = 0 }
end:
    do
    DIE(0) DIE(1) DIE(2)
    HEAR(0,1) HEAR(0,2) HEAR(1,0) HEAR(1,2) HEAR(2,0) HEAR(2,1)
#if N >= 4
    DIE(3)
    HEAR(0,3) HEAR(1,3) HEAR(2,3) HEAR(3,0) HEAR(3,1) HEAR(3,2)
#endif
    RANKS(1) RANKS(2)
#if B >= 3
    RANKS(3)
#endif
#if B >= 4
    RANKS(4)
#endif
    od
}
