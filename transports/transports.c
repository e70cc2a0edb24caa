/* The table of transports, generated from transports.def. */
#include "transports/transport.h"

#include <string.h>

static const struct transport_ops *const table[] = {
#define TRANSPORT(id, ops) &ops,
#include "transports/transports.def"
#undef TRANSPORT
};
_Static_assert(sizeof table / sizeof table[0] == TRANSPORT_COUNT, "one entry per line");

const struct transport_ops *transport_at(int index) {
    return index >= 0 && index < TRANSPORT_COUNT ? table[index] : NULL;
}

const struct transport_ops *transport_find(const char *name) {
    for (int i = 0; i < TRANSPORT_COUNT; i++)
        if (strcmp(table[i]->name, name) == 0)
            return table[i];
    return strcmp(transport_test.name, name) == 0 ? &transport_test : NULL;
}

/* Whether the text "over=NAME,..." names this transport. */
static bool lies_over(const char *text, const char *name) {
    const char *over = strstr(text, "over=");
    size_t length = strlen(name);
    return over && (over == text || over[-1] == ',') && strncmp(over + 5, name, length) == 0 &&
           (over[5 + length] == ',' || over[5 + length] == '\0');
}

const struct transport_ops *transport_choose(const struct settings *settings, int index) {
    const struct transport_ops *ops = transport_at(index);
    if (ops && lies_over(settings_text(settings, SETTING_TEST_TRANSPORT), ops->name))
        return &transport_test;
    return ops;
}
