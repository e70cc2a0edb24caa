/* Reader of the text form (docs/schedules.md has the grammar): one line per rank's head and one
 * per step, words and numbers, so one pass without look-ahead beyond the next character. */
#include "schedule/draft.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST_WORD = 24 };

struct reader {
    struct draft *draft;
    const char *at, *end;
    uint32_t line;
    bool failed;
    rota_status status;
};

/* What stands at the cursor, for messages: printable and short. */
static void describe(const struct reader *r, char *text, size_t size) {
    size_t n = 0;
    const char *at = r->at;
    if (at == r->end || *at == '\n') {
        snprintf(text, size, "the end of the %s", at == r->end ? "file" : "line");
        return;
    }
    text[n++] = '\'';
    while (at<r->end && * at> ' ' && *at < 127 && n < size - 2 && n <= LONGEST_WORD)
        text[n++] = *at++;
    if (n == 1 && at < r->end)
        n += (size_t)snprintf(text + n, size - n, "\\x%02x", (unsigned char)*at);
    text[n++] = '\'';
    text[n] = 0;
}

static bool expected(struct reader *r, const char *what) {
    char found[LONGEST_WORD + 16];
    if (r->failed)
        return false;
    describe(r, found, sizeof found);
    r->failed = true;
    r->status =
        error_raise(ROTA_ERR_FORMAT, "line %u: expected %s, found %s", r->line, what, found);
    return false;
}

/* Passes on what the draft objects to. */
static bool accept(struct reader *r, const char *wrong) {
    if (!wrong || r->failed)
        return !r->failed;
    r->failed = true;
    if (wrong == draft_no_memory)
        r->status = error_raise(ROTA_ERR_MEMORY, "no memory to read a schedule");
    else
        r->status = error_raise(ROTA_ERR_FORMAT, "line %u: %s", r->line, wrong);
    return false;
}

static void skip_blanks(struct reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
    if (r->at < r->end && *r->at == '#')
        while (r->at < r->end && *r->at != '\n')
            r->at++;
}

static bool at_line_end(struct reader *r) {
    skip_blanks(r);
    return r->at == r->end || *r->at == '\n';
}

/* To the first character of the next line that is not empty; false at the end of the file. */
static bool next_line(struct reader *r) {
    while (at_line_end(r)) {
        if (r->at == r->end)
            return false;
        r->at++;
        r->line++;
    }
    return true;
}

static bool peek_is(struct reader *r, char c) {
    skip_blanks(r);
    return r->at < r->end && *r->at == c;
}

static bool take(struct reader *r, char c) {
    if (!peek_is(r, c))
        return false;
    r->at++;
    return true;
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || c == '_';
}

/* The word at the cursor, empty when there is none or it is longer than any that exists. */
static void peek_word(struct reader *r, char word[LONGEST_WORD]) {
    skip_blanks(r);
    size_t n = 0;
    while (r->at + n < r->end && is_letter(r->at[n]) && n < LONGEST_WORD - 1) {
        word[n] = r->at[n];
        n++;
    }
    word[r->at + n < r->end && is_letter(r->at[n]) ? 0 : n] = 0;
}

static bool take_word(struct reader *r, const char *wanted) {
    char word[LONGEST_WORD];
    peek_word(r, word);
    if (strcmp(word, wanted) != 0)
        return false;
    r->at += strlen(word);
    return true;
}

static bool read_number(struct reader *r, uint32_t *number) {
    skip_blanks(r);
    uint64_t value = 0;
    const char *at = r->at;
    while (at < r->end && *at >= '0' && *at <= '9' && value <= UINT32_MAX)
        value = value * 10 + (uint64_t)(*at++ - '0');
    if (at == r->at || value > UINT32_MAX)
        return expected(r, "a number below 4294967296");
    r->at = at;
    *number = (uint32_t)value;
    return true;
}

static bool read_numbers(struct reader *r, struct draft_numbers *list) {
    do {
        uint32_t number;
        if (!read_number(r, &number) || !accept(r, draft_add_number(list, number)))
            return false;
    } while (take(r, ','));
    return true;
}

static bool read_head_fields(struct reader *r, struct draft_head *head, bool *has_ranks,
                             bool *has_rank) {
    while (!at_line_end(r)) {
        uint32_t *number;
        if (take_word(r, "in_place")) {
            head->in_place = true;
            continue;
        }
        if (take_word(r, "ranks")) {
            number = &head->nranks;
            *has_ranks = true;
        } else if (take_word(r, "rank")) {
            number = &head->rank;
            *has_rank = true;
        } else if (take_word(r, "root")) {
            number = &head->root;
            head->has_root = true;
        } else if (take_word(r, "chunks")) {
            number = &head->chunks;
        } else if (take_word(r, "scratch")) {
            number = &head->scratch;
        } else {
            return expected(r, "ranks, rank, root, chunks, scratch or in_place");
        }
        if (!read_number(r, number))
            return false;
    }
    return true;
}

static bool read_head(struct reader *r) {
    struct draft_head head = {.nranks = 0};
    bool has_ranks = false, has_rank = false;
    char word[LONGEST_WORD];
    if (!take_word(r, "schedule"))
        return expected(r, "schedule");
    peek_word(r, word);
    if (!draft_parse_kind(word, &head.kind))
        return expected(r, "the name of a collective");
    r->at += strlen(word);
    if (!read_head_fields(r, &head, &has_ranks, &has_rank))
        return false;
    if (!has_ranks || !has_rank)
        return expected(r, "ranks and rank");
    return accept(r, draft_begin_rank(r->draft, &head));
}

/* BUFFER[FIRST], BUFFER[FIRST:COUNT], BUFFER[FIRST:COUNT:STRIDE:REPS], each with ~LIKE or
 * ~LIKE:LIKE_STRIDE. */
static bool read_range(struct reader *r, struct draft_ranges *list) {
    struct sched_range range = {.count = 1, .reps = 1};
    char word[LONGEST_WORD];
    peek_word(r, word);
    if (!draft_parse_buffer(word, &range.buffer))
        return expected(r, "input, output or scratch");
    r->at += strlen(word);
    if (!take(r, '['))
        return expected(r, "[");
    if (!read_number(r, &range.first))
        return false;
    if (take(r, ':')) {
        if (!read_number(r, &range.count))
            return false;
        if (take(r, ':')) {
            if (!read_number(r, &range.stride))
                return false;
            if (!take(r, ':'))
                return expected(r, ":");
            if (!read_number(r, &range.reps))
                return false;
        }
    }
    if (!take(r, ']'))
        return expected(r, "]");
    if (take(r, '~')) {
        if (!read_number(r, &range.like))
            return false;
        if (take(r, ':') && !read_number(r, &range.like_stride))
            return false;
    }
    return accept(r, draft_add_range(r->draft, list, &range));
}

static bool starts_range(struct reader *r) {
    char word[LONGEST_WORD];
    enum sched_buffer buffer;
    peek_word(r, word);
    return draft_parse_buffer(word, &buffer);
}

static bool read_ranges(struct reader *r, struct draft_ranges *list) {
    while (starts_range(r))
        if (!read_range(r, list))
            return false;
    return true;
}

static bool read_options(struct reader *r) {
    struct draft *d = r->draft;
    while (!at_line_end(r)) {
        char word[LONGEST_WORD];
        uint32_t flag;
        bool good;
        peek_word(r, word);
        if (draft_parse_flag(word, &flag)) {
            r->at += strlen(word);
            d->step.flags |= flag;
            good = true;
        } else if (take_word(r, "lane")) {
            good = read_number(r, &d->step.lane);
        } else if (take_word(r, "channel")) {
            good = read_number(r, &d->step.channel);
        } else if (take_word(r, "wait")) {
            good = read_numbers(r, &d->waits);
        } else {
            good = expected(r, "a flag, lane, channel, wait or the end of the line");
        }
        if (!good)
            return false;
    }
    return true;
}

/* Peers and operands, which depend on the type. */
static bool read_operands(struct reader *r) {
    struct draft *d = r->draft;
    bool sends = d->step.type == SCHED_SEND;
    bool local = d->step.type == SCHED_COPY || d->step.type == SCHED_REDUCE;
    if (!local) {
        if (!take_word(r, sends ? "to" : "from"))
            return expected(r, sends ? "to" : "from");
        if (!read_numbers(r, &d->peers))
            return false;
    }
    if (d->step.type == SCHED_RECV_REDUCE) {
        if (!take_word(r, "position"))
            return expected(r, "position");
        if (!read_number(r, &d->step.position))
            return false;
    }
    if (d->step.type == SCHED_REDUCE && !read_number(r, &d->step.operands))
        return false;
    if (d->step.type == SCHED_RECV)
        return read_ranges(r, &d->dst);
    if (!read_ranges(r, &d->src))
        return false;
    if (sends)
        return true;
    if (!take(r, '-') || !take(r, '>'))
        return expected(r, "->");
    return read_ranges(r, &d->dst);
}

static bool read_step(struct reader *r) {
    struct draft *d = r->draft;
    uint32_t number;
    char word[LONGEST_WORD];
    const char *start = r->at;
    if (!read_number(r, &number))
        return false;
    if (number != d->nsteps) {
        r->at = start;
        return expected(r, "the number of the next step");
    }
    if (!take(r, ':'))
        return expected(r, ":");
    draft_begin_step(d);
    peek_word(r, word);
    if (!draft_parse_type(word, &d->step.type))
        return expected(r, "send, recv, recv_reduce, copy or reduce");
    r->at += strlen(word);
    return read_operands(r) && read_options(r) && accept(r, draft_end_step(d));
}

rota_status draft_read_text(struct draft *draft, const char *bytes, size_t length) {
    struct reader r = {.draft = draft, .at = bytes, .end = bytes + length, .line = 1};
    if (!next_line(&r)) {
        expected(&r, "schedule");
        return r.status;
    }
    do {
        bool good;
        if (draft->builder && *r.at >= '0' && *r.at <= '9')
            good = read_step(&r);
        else
            good = (!draft->builder || accept(&r, draft_end_rank(draft))) && read_head(&r);
        if (!good)
            return r.status;
    } while (next_line(&r));
    return accept(&r, draft_end_rank(draft)) ? ROTA_OK : r.status;
}
