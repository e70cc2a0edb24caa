/* User operators and premultiplied sums: the aligned binary tree over blocks that stay in the
 * first-level cache.
 *
 * Operands are loaded into buffers of a pool, one after the other, as partials. As in reduce.c a
 * stack of nodes counts in binary: after k operands it holds one node per bit of k, and equal
 * heights merge, the left one being lower in the stack. What is left at the end is folded from the
 * right. dst is written when all operands of its block have been read, so it may be one of them. */
#include "composed.h"
#include "kernels.h"
#include <string.h>

#define POOL_BYTES 32768
#define BLOCK_MAX 2048
/* The stack of 2^k operands holds at most k + 1 nodes. */
#define DEPTH_MAX 30

_Static_assert(POOL_BYTES / DEPTH_MAX >= ROTA_DTYPE_BYTES_MAX, "a block has one element at least");

struct stack {
    const struct reduce_spec *spec;
    reduce_scale_fn scale; /* of a premultiplied sum */
    size_t count;          /* elements of a node */
    size_t depth;
    char *nodes[DEPTH_MAX];
};

/* The node that operand k is alone. */
static void push(struct stack *stack, const struct reduce_operand *operand, size_t first) {
    const struct reduce_spec *spec = stack->spec;
    size_t size = operand->partial ? spec->partial_size : spec->element_size;
    const char *from = (const char *)operand->data + first * size;
    char *node = stack->nodes[stack->depth++];
    if (stack->scale && !operand->partial)
        stack->scale(node, from, stack->count, spec->scalar);
    else
        memcpy(node, from, stack->count * size);
}

/* Combines the two topmost nodes. */
static void merge(struct stack *stack) {
    const struct reduce_spec *spec = stack->spec;
    char **left = &stack->nodes[stack->depth - 2], **right = &stack->nodes[stack->depth - 1];
    stack->depth--;
    if (spec->form == REDUCE_USER) { /* the result stands where the right operand was */
        spec->user.function(*left, *right, stack->count, spec->dtype, spec->user.arg);
        char *result = *right;
        *right = *left;
        *left = result;
    } else {
        spec->kernels->pair[1][1][0](*left, *left, *right, stack->count, spec->nranks);
    }
}

static void pop(struct stack *stack, void *dst, bool finish) {
    const struct reduce_spec *spec = stack->spec;
    const char *node = stack->nodes[--stack->depth];
    reduce_single_fn kernel = spec->form == REDUCE_USER ? NULL : spec->kernels->single[1][finish];
    if (kernel)
        kernel(dst, node, stack->count, spec->nranks);
    else
        memcpy(dst, node, stack->count * (finish ? spec->element_size : spec->partial_size));
}

void reduce_composed(const struct reduce_spec *spec, void *dst, bool finish,
                     const struct reduce_operand *operands, size_t noperands, size_t count) {
    char pool[POOL_BYTES] __attribute__((aligned(64)));
    const size_t dst_size = finish ? spec->element_size : spec->partial_size;
    size_t buffers = 2;
    for (size_t n = noperands; n > 1 && buffers < DEPTH_MAX; n >>= 1)
        buffers++;
    size_t step = POOL_BYTES / (buffers * spec->partial_size);
    step = step > BLOCK_MAX ? BLOCK_MAX : step >= 16 ? step & ~(size_t)15 : step;
    struct stack stack = {.spec = spec};
    if (spec->form == REDUCE_PRE_MUL_SUM)
        stack.scale = reduce_scale_of(spec->dtype, spec->isa);
    for (size_t i = 0; i < buffers; i++)
        stack.nodes[i] = pool + i * step * spec->partial_size;
    for (size_t first = 0; first < count; first += step) {
        stack.count = count - first < step ? count - first : step;
        for (size_t k = 0; k < noperands; k++) {
            push(&stack, &operands[k], first);
            for (size_t bits = k + 1; !(bits & 1); bits >>= 1)
                merge(&stack);
        }
        while (stack.depth > 1)
            merge(&stack);
        pop(&stack, (char *)dst + first * dst_size, finish);
    }
}
