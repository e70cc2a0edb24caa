/* Arrays that grow as they are filled. */
#ifndef TOPOLOGY_GROW_H
#define TOPOLOGY_GROW_H

#include <stdbool.h>
#include <stdlib.h>

/* Room for one element more than `count`, each of `size` bytes; false without memory. */
static inline bool grow(void **array, int count, int *room, size_t size) {
    if (count < *room)
        return true;
    int wanted = *room * 2 + 64;
    void *larger = reallocarray(*array, (size_t)wanted, size);
    if (larger == NULL)
        return false;
    *array = larger;
    *room = wanted;
    return true;
}

#endif
