/* Packing Hamiltonian cycles: max sum(x_c) over cycles c, so that on every row (a link) the cycles
 * that use it sum up to at most its capacity.
 *
 * There are far too many cycles to write down, so columns are generated (Gilmore and Gomory, 1961):
 * a revised simplex over the cycles known so far gives each row a price; the cheapest Hamiltonian
 * cycle under these prices (hamilton.h) either costs less than 1 and enters, or nothing does. Then
 * the prices prove the bound: any cycle costs at least `cheapest`, so x sums up to at most
 * capacity * prices / cheapest.
 *
 * Link graphs are symmetric, hence degenerate; capacities are disturbed by less than 1e-6, every
 * row by another amount, so that no pivot stands still. The result is computed from the capacities
 * as they are.
 *
 * Whole cycles come from diving: take the cycle with the largest share as whole, lower the
 * capacities, solve again; a choice that lowers the optimum too far is undone. */
#include "topology/packing.h"
#include "topology/grow.h"
#include "topology/hamilton.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TINY 1e-9
#define MAX_PIVOTS 20000
#define MAX_WORK 1e9 /* rows squared times pivots: a second or so */

struct simplex {
    const struct packing *problem;
    struct hamilton search;
    int rows, n;
    double *inverse;  /* rows * rows: of the basis; one allocation with the following */
    double *value;    /* of the basic variables, under disturbed capacities */
    double *price;    /* per row */
    double *entering; /* the entering column in terms of the basis */
    double *weights;  /* of arcs */
    double *costs;    /* of the cycles found */
    int *basic;       /* per row: -1 - row of a slack, else a column */
    int *found;       /* up to `most` cycles that may enter; one allocation with basic */
    int most;
    int *columns; /* cycles, n vertices each */
    int column_count, column_room;
    const struct packed *pool; /* cycles to choose from, NULL: all */
    double states;             /* looked at in exact searches */
};

bool packing_describe(struct packing *problem, int n, const int *capacity, bool open) {
    int width = open ? n + 1 : n, skip = width - n;
    size_t arcs = (size_t)width * (size_t)width;
    *problem = (struct packing){.n = width};
    problem->row = malloc(arcs * sizeof(int) + 1);
    problem->capacity = malloc((arcs + 2 * (size_t)width) * sizeof(double) + 1);
    if (problem->row == NULL || problem->capacity == NULL)
        return false;
    for (int i = 0; i < width; i++)
        for (int j = 0; j < width; j++) {
            bool free_arc = i < skip || j < skip;
            int arcs_here = free_arc ? 0 : capacity[(i - skip) * n + j - skip];
            problem->row[i * width + j] = i == j          ? PACKING_NONE
                                          : free_arc      ? PACKING_FREE
                                          : arcs_here > 0 ? problem->rows
                                                          : PACKING_NONE;
            if (i != j && arcs_here > 0)
                problem->capacity[problem->rows++] = arcs_here;
        }
    return true;
}

void packing_forget(struct packing *problem) {
    free(problem->row);
    free(problem->capacity);
}

/* Room for so many cycles. */
static bool packed_init(struct packed *packed, int n, size_t cycles) {
    *packed = (struct packed){.n = n};
    packed->cycles = malloc((cycles + 1) * (size_t)n * sizeof(int));
    packed->shares = malloc((cycles + 1) * sizeof(double));
    if (packed->cycles != NULL && packed->shares != NULL)
        return true;
    packing_free(packed);
    return false;
}

static void packed_add(struct packed *packed, const int *cycle, double share) {
    memcpy(&packed->cycles[packed->count * packed->n], cycle, (size_t)packed->n * sizeof(int));
    packed->shares[packed->count++] = share;
}

static void simplex_free(struct simplex *simplex) {
    hamilton_free(&simplex->search);
    free(simplex->inverse);
    free(simplex->basic);
    free(simplex->columns);
}

static bool simplex_init(struct simplex *simplex, const struct packing *problem,
                         const struct packed *pool) {
    size_t rows = (size_t)problem->rows, n = (size_t)problem->n;
    *simplex =
        (struct simplex){.problem = problem, .rows = problem->rows, .n = problem->n, .pool = pool};
    if (pool == NULL && !hamilton_init(&simplex->search, problem->n))
        return false;
    simplex->most = problem->n < 16 ? problem->n : 16;
    size_t most = (size_t)simplex->most;
    simplex->inverse = calloc(rows * rows + 3 * rows + n * n + most, sizeof(double));
    simplex->basic = calloc(rows + most * n, sizeof(int));
    if (simplex->inverse == NULL || simplex->basic == NULL) {
        simplex_free(simplex);
        return false;
    }
    simplex->value = &simplex->inverse[rows * rows];
    simplex->price = &simplex->value[rows];
    simplex->entering = &simplex->price[rows];
    simplex->weights = &simplex->entering[rows];
    simplex->costs = &simplex->weights[n * n];
    simplex->found = &simplex->basic[rows];
    for (int i = 0; i < simplex->rows; i++) {
        double disturbed = 1e-7 * (1.0 + fmod((i + 1) * 0.6180339887498949, 1.0) * 8);
        simplex->inverse[(size_t)i * rows + (size_t)i] = 1;
        simplex->value[i] = problem->capacity[i] + disturbed;
        simplex->basic[i] = -1 - i;
    }
    return true;
}

static int arc_row(const struct packing *problem, const int *cycle, int at) {
    return problem->row[cycle[at] * problem->n + cycle[(at + 1) % problem->n]];
}

static bool add_column(struct simplex *simplex, const int *cycle) {
    if (!grow((void **)&simplex->columns, simplex->column_count, &simplex->column_room,
              (size_t)simplex->n * sizeof(int)))
        return false;
    memcpy(&simplex->columns[simplex->column_count * simplex->n], cycle,
           (size_t)simplex->n * sizeof(int));
    simplex->column_count++;
    return true;
}

static void find_prices(struct simplex *simplex) {
    size_t rows = (size_t)simplex->rows;
    memset(simplex->price, 0, rows * sizeof(double));
    for (size_t i = 0; i < rows; i++)
        if (simplex->basic[i] >= 0)
            for (size_t j = 0; j < rows; j++)
                simplex->price[j] += simplex->inverse[i * rows + j];
}

/* The column of a slack (variable < 0) or of a cycle in terms of the basis. */
static void transform(struct simplex *simplex, int variable) {
    size_t rows = (size_t)simplex->rows;
    memset(simplex->entering, 0, rows * sizeof(double));
    for (int at = 0; at < (variable < 0 ? 1 : simplex->n); at++) {
        int row = variable < 0
                      ? -1 - variable
                      : arc_row(simplex->problem, &simplex->columns[variable * simplex->n], at);
        for (size_t i = 0; i < rows && row >= 0; i++)
            simplex->entering[i] += simplex->inverse[i * rows + (size_t)row];
    }
}

/* False when nothing limits the variable (a cycle of free arcs). */
static bool pivot(struct simplex *simplex, int variable) {
    size_t rows = (size_t)simplex->rows, leaving = rows;
    double least = INFINITY;
    transform(simplex, variable);
    for (size_t i = 0; i < rows; i++) {
        if (simplex->entering[i] <= TINY)
            continue;
        double ratio = simplex->value[i] / simplex->entering[i];
        if (ratio < least) {
            least = ratio;
            leaving = i;
        }
    }
    if (leaving == rows)
        return false;
    double *pivot_row = &simplex->inverse[leaving * rows], at = simplex->entering[leaving];
    for (size_t j = 0; j < rows; j++)
        pivot_row[j] /= at;
    simplex->value[leaving] = least;
    for (size_t i = 0; i < rows; i++) {
        double factor = simplex->entering[i];
        if (i == leaving || factor == 0)
            continue;
        for (size_t j = 0; j < rows; j++)
            simplex->inverse[i * rows + j] -= factor * pivot_row[j];
        simplex->value[i] -= factor * least;
    }
    simplex->basic[leaving] = variable;
    return true;
}

static double cycle_price(const struct simplex *simplex, const int *cycle) {
    double price = 0;
    for (int at = 0; at < simplex->n; at++) {
        int row = arc_row(simplex->problem, cycle, at);
        price += row >= 0 ? fmax(simplex->price[row], 0) : 0;
    }
    return price;
}

/* The first cycles of the pool that may enter. */
static int cycles_of_pool(struct simplex *simplex) {
    int n = simplex->n, found = 0;
    for (int c = 0; c < simplex->pool->count && found < simplex->most; c++) {
        const int *cycle = &simplex->pool->cycles[c * n];
        double cost = cycle_price(simplex, cycle);
        if (cost > 1 - 1e-7)
            continue;
        memcpy(&simplex->found[found * n], cycle, (size_t)n * sizeof(int));
        simplex->costs[found++] = cost;
    }
    return found;
}

/* Cheapest cycles under the prices; the number of them. */
static int cheapest_cycles(struct simplex *simplex) {
    if (simplex->pool != NULL)
        return cycles_of_pool(simplex);
    for (int i = 0; i < simplex->n * simplex->n; i++) {
        int row = simplex->problem->row[i];
        bool usable = row == PACKING_FREE || (row >= 0 && simplex->problem->capacity[row] > TINY);
        simplex->weights[i] = !usable ? HAMILTON_NONE : row < 0 ? 0 : fmax(simplex->price[row], 0);
    }
    simplex->states += ldexp((double)(simplex->n - 1) * (simplex->n - 1), simplex->n - 1);
    return hamilton_best(&simplex->search, simplex->weights, simplex->most, simplex->found,
                         simplex->costs);
}

/* Pivots until no column helps, or none is found. Sets *cheapest to the cost of the cheapest cycle,
 * 0 when there is none or it is not known. */
static bool optimize(struct simplex *simplex, double *cheapest) {
    double work = (double)simplex->rows * simplex->rows;
    *cheapest = 0;
    for (int pivots = 0;
         pivots < MAX_PIVOTS && pivots * work < MAX_WORK && simplex->states < PACKING_STATES;) {
        int slack = -1;
        find_prices(simplex);
        for (int i = 0; i < simplex->rows && slack < 0; i++)
            if (simplex->price[i] < -TINY)
                slack = i;
        if (slack >= 0) {
            (void)pivot(simplex, -1 - slack);
            pivots++;
            continue;
        }
        int found = cheapest_cycles(simplex);
        *cheapest = found > 0 ? simplex->costs[0] : 0;
        if (found == 0 || simplex->costs[0] > 1 - 1e-7)
            return true;
        for (int i = 0; i < found; i++) { /* later ones may have lost their use by then */
            find_prices(simplex);
            if (cycle_price(simplex, &simplex->found[i * simplex->n]) > 1 - 1e-7)
                continue;
            if (!add_column(simplex, &simplex->found[i * simplex->n]))
                return false;
            if (!pivot(simplex, simplex->column_count - 1))
                return true;
            pivots++;
        }
    }
    return true;
}

/* Lowers all shares until they fit, and adds them up. */
static void fit(const struct packing *problem, struct packed *result, double *load) {
    double worst = 1;
    memset(load, 0, (size_t)problem->rows * sizeof(double));
    for (int c = 0; c < result->count; c++)
        for (int at = 0; at < problem->n; at++) {
            int row = arc_row(problem, &result->cycles[c * problem->n], at);
            if (row >= 0)
                load[row] += result->shares[c];
        }
    for (int i = 0; i < problem->rows; i++)
        if (load[i] > 0)
            worst = fmax(worst, load[i] / problem->capacity[i]);
    result->score = 0;
    for (int c = 0; c < result->count; c++) {
        if (worst > 1)
            result->shares[c] /= worst;
        result->score += result->shares[c];
    }
}

static bool collect(struct simplex *simplex, double cheapest, struct packed *result) {
    size_t rows = (size_t)simplex->rows;
    const double *capacity = simplex->problem->capacity;
    if (!packed_init(result, simplex->n, rows))
        return false;
    for (size_t i = 0; i < rows; i++) {
        double share = 0;
        if (simplex->basic[i] < 0)
            continue;
        for (size_t j = 0; j < rows; j++)
            share += simplex->inverse[i * rows + j] * capacity[j];
        if (share < 1e-6)
            continue;
        if (fabs(share - round(share)) < 1e-7)
            share = round(share);
        packed_add(result, &simplex->columns[simplex->basic[i] * simplex->n], share);
    }
    fit(simplex->problem, result, simplex->entering);
    find_prices(simplex);
    for (size_t i = 0; i < rows; i++)
        result->bound += fmax(simplex->price[i], 0) * capacity[i];
    result->bound = cheapest > 0 ? result->bound / fmin(cheapest, 1) : 0;
    return true;
}

bool packing_solve(const struct packing *problem, const struct packed *pool,
                   struct packed *result) {
    struct simplex simplex;
    double cheapest;
    if (!simplex_init(&simplex, problem, pool))
        return false;
    bool solved = optimize(&simplex, &cheapest) && collect(&simplex, cheapest, result);
    result->states = solved ? simplex.states : 0;
    simplex_free(&simplex);
    return solved;
}

void packing_free(struct packed *result) {
    free(result->cycles);
    free(result->shares);
    *result = (struct packed){.n = 0};
}

/* One level of the dive: the solution of what was left, and which of its cycles was taken. */
struct level {
    struct packed solution;
    int *order; /* of its cycles, largest share first */
    int next, taken, times;
};

static void sort_by_share(const struct packed *solution, int *order) {
    for (int i = 0; i < solution->count; i++) {
        int at = i;
        for (; at > 0 && solution->shares[order[at - 1]] < solution->shares[i] - TINY; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

static void use(const struct packing *problem, const int *cycle, int times) {
    for (int at = 0; at < problem->n; at++) {
        int row = arc_row(problem, cycle, at);
        if (row >= 0)
            problem->capacity[row] -= times;
    }
}

static bool level_open(const struct packing *problem, struct level *level, int wanted) {
    *level = (struct level){.taken = -1};
    if (!packing_solve(problem, NULL, &level->solution) || level->solution.bound < wanted - 1e-6)
        return false;
    level->order = malloc(((size_t)level->solution.count + 1) * sizeof(int));
    if (level->order != NULL)
        sort_by_share(&level->solution, level->order);
    return level->order != NULL;
}

static void level_close(struct level *level) {
    packing_free(&level->solution);
    free(level->order);
}

/* Takes the next cycle of the level; false when none is left. */
static bool level_take(const struct packing *problem, struct level *level, int wanted) {
    int n = problem->n;
    if (level->taken >= 0) {
        use(problem, &level->solution.cycles[level->taken * n], -level->times);
        level->taken = -1;
    }
    if (level->next == level->solution.count)
        return false;
    level->taken = level->order[level->next++];
    double share = level->solution.shares[level->taken];
    level->times = share < 1 ? 1 : (int)floor(share + TINY);
    level->times = level->times > wanted ? wanted : level->times;
    const int *cycle = &level->solution.cycles[level->taken * n];
    for (int at = 0; at < n; at++) { /* a share below 1 may stand on a link with less than 1 left */
        int row = arc_row(problem, cycle, at);
        if (row >= 0 && problem->capacity[row] < level->times - TINY) {
            level->times = 0;
            break;
        }
    }
    use(problem, cycle, level->times);
    return true;
}

static bool keep_whole(const struct packing *problem, const struct level *levels, int depth,
                       struct packed *result) {
    if (!packed_init(result, problem->n, (size_t)depth))
        return false;
    for (int i = 0; i < depth; i++) {
        packed_add(result, &levels[i].solution.cycles[levels[i].taken * problem->n],
                   levels[i].times);
        result->score += levels[i].times;
    }
    return true;
}

/* Solutions of linear programs that a dive may ask for. More find little more. */
#define MAX_SOLVES 120

bool packing_whole(const struct packing *problem, int wanted, struct packed *result) {
    struct packing left = *problem;
    struct level *levels = calloc((size_t)wanted + 1, sizeof(*levels));
    left.capacity = malloc(((size_t)problem->rows + 1) * sizeof(double));
    int depth = 0, got = 0, solves = 1;
    bool found = false;
    if (levels == NULL || left.capacity == NULL)
        goto done;
    for (int i = 0; i < problem->rows; i++)
        left.capacity[i] = floor(problem->capacity[i] + 1e-6);
    bool open = level_open(&left, &levels[0], wanted);
    double states = levels[0].solution.states;
    while (open && solves < MAX_SOLVES && states < PACKING_STATES) {
        struct level *level = &levels[depth];
        got -= level->taken >= 0 ? level->times : 0;
        if (!level_take(&left, level, wanted - got)) {
            level_close(level);
            if (depth-- == 0)
                break;
            continue;
        }
        if (level->times == 0)
            continue;
        got += level->times;
        if (got == wanted) {
            found = keep_whole(problem, levels, depth + 1, result);
            break;
        }
        solves++;
        bool deeper = level_open(&left, &levels[depth + 1], wanted - got);
        states += levels[depth + 1].solution.states;
        if (deeper)
            depth++;
        else
            level_close(&levels[depth + 1]);
    }
    for (; depth >= 0; depth--)
        level_close(&levels[depth]);
done:
    free(left.capacity);
    free(levels);
    return found;
}
