/* Nothing of it is used; it is only included. */
#include <criterion/criterion.h>
