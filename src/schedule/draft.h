/* What the two readers share: a schedule set under construction, with the limits that hostile
 * files run into. Functions return NULL, or what is wrong, to which the reader adds where. */
#ifndef SCHEDULE_DRAFT_H
#define SCHEDULE_DRAFT_H

#include "schedule/builder.h"
#include "schedule/text.h"

/* Numbers are as they stand in the file, not yet checked. */
struct draft_head {
    rota_kind kind;
    uint32_t nranks, rank, root, chunks, scratch;
    bool has_root, in_place;
};

struct draft_ranges {
    struct sched_range *items;
    uint32_t count, room;
};

struct draft_numbers {
    uint32_t *items;
    uint32_t count, room;
};

struct draft {
    struct sched_set set;
    uint32_t set_room;
    struct sched_builder *builder; /* of the rank being read, else NULL */
    struct draft_head head;
    uint32_t nsteps;
    uint64_t chunks_held, chunks_named; /* over all ranks: by buffers, by steps */
    char message[160];

    /* The step being read. */
    struct sched_step step;
    struct draft_numbers peers, waits;
    struct draft_ranges src, dst;
};

extern const char draft_no_memory[];

void draft_free(struct draft *draft); /* with its set */

const char *draft_begin_rank(struct draft *draft, const struct draft_head *head);
void draft_begin_step(struct draft *draft);
const char *draft_add_range(struct draft *draft, struct draft_ranges *list,
                            const struct sched_range *range);
const char *draft_add_number(struct draft_numbers *list, uint32_t number);
const char *draft_end_step(struct draft *draft);
const char *draft_end_rank(struct draft *draft);

/* Words of both forms; false or NULL when there is no such word or number. */
bool draft_parse_kind(const char *word, rota_kind *kind);
bool draft_parse_type(const char *word, enum sched_step_type *type);
bool draft_parse_buffer(const char *word, enum sched_buffer *buffer);
bool draft_parse_flag(const char *word, uint32_t *flag);
const char *draft_type_word(enum sched_step_type type);
const char *draft_buffer_word(enum sched_buffer buffer);
const char *draft_flag_word(uint32_t flag);

/* The readers proper: fill the draft, or raise ROTA_ERR_FORMAT or ROTA_ERR_MEMORY. */
rota_status draft_read_text(struct draft *draft, const char *bytes, size_t length);
rota_status draft_read_json(struct draft *draft, const char *bytes, size_t length);

#endif
