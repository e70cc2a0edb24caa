/* The registry of memory kinds, and host memory. */
#include "memory/memory.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static unsigned char claimed[64];

static bool claim(const void *pointer, size_t bytes) {
    (void)bytes;
    return (uintptr_t)pointer - (uintptr_t)claimed < sizeof(claimed);
}

static bool claim_nothing(const void *pointer, size_t bytes) {
    (void)pointer;
    (void)bytes;
    return false;
}

static struct memory_kind kind_with(uint32_t id, bool (*identify)(const void *, size_t)) {
    struct memory_kind kind = memory_host;
    kind.name = "claimed";
    kind.id = id;
    kind.identify = identify;
    return kind;
}

Test(kinds, host_without_registration) {
    int local = 0;
    cr_assert_eq(memory_identify(&local, sizeof(local)), &memory_host);
    cr_assert_eq(memory_identify(NULL, 0), &memory_host);
    cr_assert_eq(memory_identify(NULL, 10), &memory_host);
    cr_assert_eq(memory_host.id, 0);
    cr_assert(memory_host.host_readable);
}

Test(kinds, registered_kind_is_found) {
    static struct memory_kind kind;
    kind = kind_with(5, claim);
    cr_assert_eq(memory_kind_register(&kind), ROTA_OK);
    cr_assert_eq(memory_identify(claimed, 64), &kind);
    cr_assert_eq(memory_identify(claimed + 63, 1), &kind);
    cr_assert_eq(memory_identify(claimed, 0), &memory_host);
    int local = 0;
    cr_assert_eq(memory_identify(&local, sizeof(local)), &memory_host);
    cr_assert_eq(memory_kind_register(&kind), ROTA_OK, "a second time changes nothing");
}

Test(kinds, refused) {
    static struct memory_kind first, same_id, host_id, large_id, incomplete;
    first = kind_with(3, claim);
    same_id = kind_with(3, claim_nothing);
    host_id = kind_with(0, claim);
    large_id = kind_with(32, claim);
    incomplete = kind_with(4, NULL);
    cr_assert_eq(memory_kind_register(NULL), ROTA_ERR_ARGUMENT);
    cr_assert_eq(memory_kind_register(&host_id), ROTA_ERR_ARGUMENT);
    cr_assert_eq(memory_kind_register(&large_id), ROTA_ERR_ARGUMENT);
    cr_assert_eq(memory_kind_register(&incomplete), ROTA_ERR_ARGUMENT);
    cr_assert_eq(memory_identify(claimed, 1), &memory_host, "nothing was registered");
    cr_assert_eq(memory_kind_register(&first), ROTA_OK);
    cr_assert_eq(memory_kind_register(&same_id), ROTA_ERR_ARGUMENT);
}

Test(kinds, table_is_bounded) {
    static struct memory_kind kinds[9];
    for (uint32_t i = 0; i < 8; i++) {
        kinds[i] = kind_with(i + 1, i == 7 ? claim : claim_nothing);
        cr_assert_eq(memory_kind_register(&kinds[i]), ROTA_OK);
    }
    kinds[8] = kind_with(9, claim);
    cr_assert_eq(memory_kind_register(&kinds[8]), ROTA_ERR_MEMORY);
    cr_assert_eq(memory_identify(claimed, 1), &kinds[7]);
}

Test(host, copy_and_reduce_are_done_at_once) {
    float a[100], b[100], sum[100];
    for (int i = 0; i < 100; i++) {
        a[i] = (float)i;
        b[i] = 0.5f;
    }
    float copy[100] = {0};
    cr_assert_eq(memory_host.copy(copy, a, sizeof(a), NULL), MEMORY_DONE);
    cr_assert(memcmp(copy, a, sizeof(a)) == 0);
    cr_assert_eq(memory_host.copy(NULL, NULL, 0, NULL), MEMORY_DONE);

    struct reduce_spec spec;
    cr_assert_eq(reduce_spec_init(&spec, ROTA_FLOAT32, ROTA_SUM, 2, CPU_SCALAR), ROTA_OK);
    const struct reduce_operand operands[] = {{a, false}, {b, false}};
    cr_assert_eq(memory_host.reduce(&spec, sum, true, operands, 2, 100, NULL), MEMORY_DONE);
    for (int i = 0; i < 100; i++)
        cr_assert_eq(sum[i], (float)i + 0.5f);
}

Test(host, allocation) {
    const size_t sizes[] = {0, 1, 4095, 4096, 100000};
    for (size_t i = 0; i < 5; i++) {
        unsigned char *pointer = memory_host.allocate(sizes[i]);
        cr_assert_not_null(pointer);
        cr_assert_eq((uintptr_t)pointer % 4096, 0);
        memset(pointer, 1, sizes[i]);
        memory_host.free(pointer);
    }
    cr_assert_null(memory_host.allocate(SIZE_MAX));
    memory_host.free(NULL);
}
