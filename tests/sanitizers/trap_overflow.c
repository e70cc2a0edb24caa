/* Overflows a signed integer in a Criterion test, on purpose. */
#include <criterion/criterion.h>
#include <limits.h>

Test(trap, overflow) {
    volatile int number = INT_MAX;
    number = number + 1;
    cr_assert(1);
}
