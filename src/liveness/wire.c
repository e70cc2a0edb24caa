/* Frames: which are sound, and view messages as bytes. Integers are sent as this machine has them,
 * as everywhere in rota: little endian. */
#include "liveness/wire.h"
#include "liveness/agreement.h"

bool wire_header_sound(const struct wire_header *header) {
    if (header->magic != WIRE_MAGIC || header->unused != 0)
        return false;
    switch (header->type) {
    case WIRE_MESSAGE:
        return header->bytes <= LIVENESS_MAX_MESSAGE;
    case WIRE_PING:
    case WIRE_PONG:
        return header->bytes == 8;
    case WIRE_LEFT:
    case WIRE_CLOSING:
        return header->bytes == 0;
    case WIRE_VIEW:
        return header->bytes <= WIRE_MAX;
    case WIRE_AGREEMENT:
        return header->bytes == sizeof(struct agreement_message);
    default:
        return false;
    }
}

/* -- writing ------------------------------------------------------------------------------------
 */

struct writer {
    uint8_t *data;
    size_t size, used;
    bool full;
};

static void put(struct writer *writer, const void *data, size_t bytes) {
    if (writer->full || bytes > writer->size - writer->used) {
        writer->full = true;
        return;
    }
    memcpy(writer->data + writer->used, data, bytes);
    writer->used += bytes;
}

static void put_number(struct writer *writer, uint32_t number) {
    put(writer, &number, sizeof number);
}

static void put_ballot(struct writer *writer, struct view_ballot ballot) {
    put_number(writer, ballot.round);
    put_number(writer, ballot.rank);
}

static void put_ranks(struct writer *writer, const struct ranks *set) {
    if (set == NULL) {
        put_number(writer, 0);
        return;
    }
    put_number(writer, (uint32_t)ranks_count(set));
    RANKS_EACH (set, rank)
        put_number(writer, (uint32_t)rank);
}

static void put_text(struct writer *writer, const char *text) {
    size_t length = text != NULL ? strlen(text) : 0;
    put_number(writer, (uint32_t)length);
    if (length > 0)
        put(writer, text, length);
}

enum { HAS_VALUE = 1, IS_DECIDED = 2, IS_PROVED = 4 };

size_t wire_view_write(const struct view_message *message, uint8_t *payload, size_t size) {
    struct writer writer = {.data = payload, .size = size};
    put_number(&writer, message->type);
    put_number(&writer, message->epoch);
    put_number(&writer, (message->value != NULL ? HAS_VALUE : 0u) |
                            (message->decided ? IS_DECIDED : 0u) |
                            (message->proved ? IS_PROVED : 0u));
    put_ballot(&writer, message->ballot);
    put_ballot(&writer, message->accepted);
    put_ranks(&writer, message->dead);
    if (message->value != NULL) {
        put_number(&writer, (uint32_t)message->value->status);
        put_ranks(&writer, message->value->failed);
        put_text(&writer, message->value->text);
    }
    put_number(&writer, (uint32_t)message->peer);
    put_text(&writer, message->reason);
    put_ranks(&writer, message->left);
    return writer.full ? 0 : writer.used;
}

/* -- reading ------------------------------------------------------------------------------------
 */

struct reader {
    const uint8_t *data;
    size_t left;
    bool bad;
};

static void get(struct reader *reader, void *data, size_t bytes) {
    if (reader->bad || bytes > reader->left) {
        reader->bad = true;
        memset(data, 0, bytes);
        return;
    }
    memcpy(data, reader->data, bytes);
    reader->data += bytes;
    reader->left -= bytes;
}

static uint32_t get_number(struct reader *reader) {
    uint32_t number;
    get(reader, &number, sizeof number);
    return number;
}

static struct view_ballot get_ballot(struct reader *reader) {
    struct view_ballot ballot;
    ballot.round = get_number(reader);
    ballot.rank = get_number(reader);
    return ballot;
}

/* Ascending, each once. */
static void get_ranks(struct reader *reader, struct ranks *set) {
    uint32_t count = get_number(reader);
    int64_t before = -1;
    ranks_clear(set);
    for (uint32_t i = 0; i < count && !reader->bad; i++) {
        uint32_t rank = get_number(reader);
        if (rank >= (uint32_t)set->n || (int64_t)rank <= before)
            reader->bad = true;
        else if (!reader->bad)
            ranks_add(set, (int)rank);
        before = rank;
    }
}

/* Printable: it goes into messages and logs. */
static void get_text(struct reader *reader, char *text, size_t size) {
    uint32_t length = get_number(reader);
    if (length >= size) {
        reader->bad = true;
        length = 0;
    }
    get(reader, text, length);
    text[length] = 0;
    for (uint32_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            text[i] = '?';
}

bool wire_view_init(struct wire_view *view, int nranks) {
    memset(view, 0, sizeof *view);
    return ranks_init(&view->dead, nranks) && ranks_init(&view->left, nranks) &&
           ranks_init(&view->failed, nranks);
}

void wire_view_free(struct wire_view *view) {
    ranks_free(&view->dead);
    ranks_free(&view->left);
    ranks_free(&view->failed);
}

bool wire_view_read(const uint8_t *payload, size_t bytes, struct wire_view *view) {
    struct reader reader = {.data = payload, .left = bytes};
    struct view_message *message = &view->message;
    memset(message, 0, sizeof *message);
    uint32_t type = get_number(&reader);
    message->epoch = get_number(&reader);
    uint32_t flags = get_number(&reader);
    message->ballot = get_ballot(&reader);
    message->accepted = get_ballot(&reader);
    message->dead = &view->dead;
    get_ranks(&reader, &view->dead);
    message->decided = (flags & IS_DECIDED) != 0;
    message->proved = (flags & IS_PROVED) != 0;
    if (flags & HAS_VALUE) {
        uint32_t status = get_number(&reader);
        reader.bad |= status != ROTA_ERR_PEER && status != ROTA_ERR_TIMEOUT;
        view->value.status = (rota_status)status;
        view->value.failed = &view->failed;
        get_ranks(&reader, &view->failed);
        get_text(&reader, view->value.text, sizeof view->value.text);
        message->value = &view->value;
    }
    uint32_t peer = get_number(&reader);
    message->reason = view->reason;
    get_text(&reader, view->reason, sizeof view->reason);
    message->left = &view->left;
    get_ranks(&reader, &view->left);
    if (reader.bad || reader.left != 0 || type == 0 || type >= VIEW_MESSAGE_TYPES ||
        flags > (HAS_VALUE | IS_DECIDED | IS_PROVED) || peer >= (uint32_t)view->dead.n)
        return false;
    message->type = (enum view_message_type)type;
    message->peer = (int)peer;
    return true;
}
