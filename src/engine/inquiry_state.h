/* What the parts of inquiry share: its messages, and what it knows of each member. inquiry.c asks
 * and answers, inquiry_census.c compares all members and makes the outcome known, inquiry_text.c
 * puts what is known into words. */
#ifndef ENGINE_INQUIRY_STATE_H
#define ENGINE_INQUIRY_STATE_H

#include "engine/inquiry.h"
#include <pthread.h>
#include <sys/queue.h>

/* -- messages: sent as they are, in the byte order of the job's machines ------------------------
 */
#define INQUIRY_MAGIC 0x71617472u /* "rtaq", little endian */

enum inquiry_type { INQUIRY_QUESTION = 1, INQUIRY_ANSWER, INQUIRY_NOTICE };

struct inquiry_head {
    uint32_t magic, type;
    uint32_t comm, generation;
};

struct inquiry_question {
    struct inquiry_head head;
    uint64_t sequence; /* 0: about none, but what the rank is blocked in */
};
_Static_assert(sizeof(struct inquiry_question) == 24, "sent between ranks");

enum inquiry_state {
    INQUIRY_UNASKED = 0,
    INQUIRY_UNKNOWN,   /* it has no such communicator, perhaps not yet */
    INQUIRY_DESTROYED, /* it had; the last call has the number in call.sequence */
    INQUIRY_CALLED,    /* `call` is its call of that number */
    INQUIRY_PASSED,    /* it has called it, but does not know what */
    INQUIRY_NOT_CALLED /* `call` is its last one there */
};

struct inquiry_answer {
    struct inquiry_head head;
    uint64_t sequence; /* as asked */
    struct call_summary call;
    struct call_summary running; /* what it is blocked in; sequence 0 and kind 255: nothing */
    uint64_t running_ms;
    uint32_t running_comm, running_generation;
    int32_t running_for; /* rank of the job that it waits for there, -1 unknown */
    uint32_t state;
    char running_name[64];
};
_Static_assert(sizeof(struct inquiry_answer) == 192, "sent between ranks");

struct inquiry_notice {
    struct inquiry_head head;
    int32_t status, peer, kind, origin; /* ranks are members */
    uint64_t sequence;
    uint32_t epoch, group_count;
    int32_t system_error, culprit_count;
    int32_t culprits[ROTA_ERROR_MAX_CULPRITS];
    rota_error_group groups[ROTA_ERROR_MAX_GROUPS];
    char address[64];
    char text[320];
};
_Static_assert(sizeof(struct inquiry_notice) == 1000, "sent between ranks, in one message");

#define INQUIRY_NO_KIND 255

/* -- what is known ------------------------------------------------------------------------------
 */
struct inquiry_member {
    uint64_t asked;    /* number asked about last */
    int64_t asked_ns;  /* 0: never */
    uint64_t sequence; /* number that the state is about */
    enum inquiry_state state;
    int64_t answered_ns;
    struct call_summary call;
};

/* What a rank of the job is blocked in, by its last answer. */
struct inquiry_blocked {
    int64_t asked_ns, answered_ns;
    struct call_summary running;
    uint64_t ms;
    uint32_t comm, generation;
    int32_t waits_for;
    char name[64];
};

struct inquiry_kept {
    int from; /* rank of the job */
    uint64_t sequence;
};

struct inquiry_comm {
    struct inquiry *inquiry;
    uint32_t comm, generation;
    const int *members;
    int nmembers, self;
    const char *name;
    bool compares;
    _Atomic bool *asked;
    struct inquiry_member *known; /* by member; NULL until somebody waits */
    struct inquiry_kept *kept;    /* questions before their call */
    int nkept, kept_capacity;
    /* The census that runs, or was the last. */
    uint64_t census;
    bool counting;
    int64_t census_ns, census_most_ns; /* when it is looked at again, and ends in any case */
    struct call_summary census_call;
    int64_t last_ns;               /* when everybody was asked before a deadline */
    struct inquiry_notice *notice; /* why it has ended; for those who ask later */
    LIST_ENTRY(inquiry_comm) entry;
};

/* A communicator that is gone here. */
struct inquiry_grave {
    bool used;
    uint32_t comm, generation;
    uint64_t last;
    struct inquiry_notice *notice;
};
#define INQUIRY_GRAVES 64
#define INQUIRY_EARLY 16

struct inquiry {
    pthread_mutex_t lock;
    struct inquiry_host host;
    LIST_HEAD(, inquiry_comm) comms;
    struct inquiry_blocked *blocked; /* by rank of the job; NULL until there is something */
    int64_t chase_until_ns;          /* until then who is blocked leads to another question */
    struct inquiry_grave graves[INQUIRY_GRAVES];
    unsigned next_grave;
    struct inquiry_notice *early[INQUIRY_EARLY]; /* for communicators that are not there yet */
    unsigned next_early;
};

/* All with the lock held. */

/* -- inquiry.c */
/* Makes comm->known; false without memory. */
bool inquiry_know(struct inquiry_comm *comm);
void inquiry_ask(struct inquiry_comm *comm, int member, uint64_t sequence, int64_t now_ns);
struct call_summary inquiry_summarize(const struct record_call *call);
int inquiry_member_of(const struct inquiry_comm *comm, int job_rank);

/* -- inquiry_census.c */
void inquiry_census_begin(struct inquiry_comm *comm, const struct call_summary *mine,
                          int64_t now_ns);
/* Somebody has answered, or time has passed. */
void inquiry_census_look(struct inquiry_comm *comm, int64_t now_ns);
void inquiry_notice_read(struct inquiry *inquiry, int from, const struct inquiry_notice *notice);
void inquiry_notice_tell(struct inquiry_comm *comm, const struct inquiry_notice *notice);

/* -- inquiry_text.c */
/* "rank 3", "ranks 0, 2-3": of the ranks that are marked. */
size_t inquiry_add_ranks(char *text, size_t size, size_t at, const bool *marked, int nranks);

#endif
