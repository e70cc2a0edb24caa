/* Leaks in a Criterion test, on purpose: the program ends with success, only the report tells. */
#include <criterion/criterion.h>
#include <stdlib.h>

static void *volatile kept;

Test(trap, leak) {
    kept = malloc(4321);
    kept = NULL;
    cr_assert(1);
}
