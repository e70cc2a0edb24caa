/* Reader of the table that `nvidia-smi topo -m` prints.
 *
 * Its cells are path classes, which stand as they are, and NV#, a number of NVLinks. Whether # is
 * per pair or, behind NVSwitches, per GPU, the table does not say: where the sum over a GPU's cells
 * is more links than any GPU has, there must be switches. */
#include "base/error.h"
#include "topology/graph.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Links of the largest GPUs so far: 18, H100 and B200 (NVIDIA's H100 and Blackwell white papers).
 */
#define MOST_NVLINKS 18

#define MAX_COLUMNS 1024

struct table {
    struct topo *topo;
    int line;
    int gpus, nics;         /* columns of each, in the order of the head */
    int columns;            /* both */
    int nodes[MAX_COLUMNS]; /* of each column */
    bool is_gpu[MAX_COLUMNS];
    bool has_cpus, has_numa;
    int numa_nodes[MAX_COLUMNS]; /* NUMA number of each column, -1 unknown */
    char cpus[MAX_COLUMNS][256];
    uint8_t *classes; /* columns squared */
    int *links;       /* columns squared */
    bool *rows;       /* which rows were there */
};

struct line {
    const char *at, *end;
};

/* The next word, terminal escapes left out; false at the end of the line. */
static bool next_word(struct line *line, char word[64]) {
    size_t length = 0;
    while (line->at < line->end && isspace((unsigned char)*line->at))
        line->at++;
    while (line->at < line->end && !isspace((unsigned char)*line->at)) {
        if (*line->at == 0x1b) { /* "ESC [ 4 m": the head is underlined on terminals */
            while (line->at < line->end && !isalpha((unsigned char)*line->at))
                line->at++;
            line->at += line->at < line->end;
            continue;
        }
        if (length < 63)
            word[length++] = *line->at;
        line->at++;
    }
    word[length] = '\0';
    return length > 0;
}

static int column_named(const struct table *table, const char *name) {
    for (int i = 0; i < table->columns; i++)
        if (strcmp(table->topo->nodes[table->nodes[i]].name, name) == 0)
            return i;
    return -1;
}

static rota_status wrong(const struct table *table, const char *what, const char *word) {
    return error_raise(ROTA_ERR_FORMAT, "%.150s, line %d: %s '%.60s'", table->topo->source,
                       table->line, what, word);
}

static bool is_gpu_name(const char *word) {
    return strncmp(word, "GPU", 3) == 0 && isdigit((unsigned char)word[3]);
}

static rota_status read_head(struct table *table, struct line line) {
    char word[64];
    int host = topo_host_named(table->topo, "");
    while (next_word(&line, word)) {
        if (strcmp(word, "CPU") == 0) {
            table->has_cpus = true;
            char rest[256];
            size_t length = (size_t)(line.end - line.at) < 255 ? (size_t)(line.end - line.at) : 255;
            memcpy(rest, line.at, length);
            rest[length] = '\0';
            table->has_numa = strstr(rest, "NUMA Affinity") != NULL;
            break;
        }
        if (table->columns == MAX_COLUMNS)
            return wrong(table, "more than 1024 columns, at", word);
        if (column_named(table, word) >= 0)
            return wrong(table, "a second column", word);
        bool gpu = is_gpu_name(word);
        int nic = gpu ? -1 : topo_add_node(table->topo, TOPO_NIC, host);
        int node = topo_add_node(table->topo, gpu ? TOPO_GPU : TOPO_PORT, gpu ? host : nic);
        if (node < 0 || (!gpu && nic < 0))
            return error_raise(ROTA_ERR_MEMORY, "no memory for a table");
        struct topo_node *made = &table->topo->nodes[node];
        topo_copy_text(made->name, sizeof(made->name), word);
        if (gpu)
            made->dev = (int)strtol(word + 3, NULL, 10) & 0xffffff;
        else
            made->dev = topo_trailing_number(word);
        table->is_gpu[table->columns] = gpu;
        table->numa_nodes[table->columns] = -1;
        table->nodes[table->columns++] = node;
        *(gpu ? &table->gpus : &table->nics) += 1;
    }
    size_t cells = (size_t)table->columns * (size_t)table->columns + 1;
    table->classes = calloc(cells, 1);
    table->links = calloc(cells, sizeof(int));
    table->rows = calloc((size_t)table->columns + 1, sizeof(bool));
    if (table->classes == NULL || table->links == NULL || table->rows == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a table");
    memset(table->classes, ROTA_PATH_COUNT, cells);
    return ROTA_OK;
}

static rota_status read_cell(struct table *table, size_t at, const char *word) {
    bool diagonal = at / (size_t)table->columns == at % (size_t)table->columns;
    if (diagonal != (strcmp(word, "X") == 0))
        return wrong(table, "expected X on the diagonal and nowhere else, not", word);
    if (diagonal) {
        table->classes[at] = ROTA_PATH_LOC;
        return ROTA_OK;
    }
    if (strncmp(word, "NV", 2) == 0 && isdigit((unsigned char)word[2])) {
        long count = strtol(word + 2, NULL, 10);
        if (count < 1 || count > 1024)
            return wrong(table, "not a number of NVLinks:", word);
        table->links[at] = (int)count;
        table->classes[at] = ROTA_PATH_LNK;
        return ROTA_OK;
    }
    for (int class = ROTA_PATH_PIX; class <= ROTA_PATH_SYS; class ++)
        if (strcmp(word, rota_path_name((rota_path) class)) == 0) {
            table->classes[at] = (uint8_t) class;
            return ROTA_OK;
        }
    if (strcmp(word, "SOC") == 0) { /* what SYS was called before driver 384 */
        table->classes[at] = ROTA_PATH_SYS;
        return ROTA_OK;
    }
    return wrong(table, "expected X, NV#, PIX, PXB, PHB, NODE or SYS instead of", word);
}

static rota_status read_row(struct table *table, int row, struct line line) {
    char word[64];
    if (table->rows[row])
        return wrong(table, "a second row", table->topo->nodes[table->nodes[row]].name);
    table->rows[row] = true;
    for (int column = 0; column < table->columns; column++) {
        if (!next_word(&line, word))
            return wrong(table, "too few cells in row", table->topo->nodes[table->nodes[row]].name);
        rota_status status =
            read_cell(table, (size_t)row * (size_t)table->columns + (size_t)column, word);
        if (status != ROTA_OK)
            return status;
    }
    if (table->has_cpus && next_word(&line, word))
        topo_copy_text(table->cpus[row], sizeof(table->cpus[row]), word);
    if (table->has_numa && next_word(&line, word) && isdigit((unsigned char)word[0]))
        table->numa_nodes[row] = (int)strtol(word, NULL, 10) & 0xffff;
    return ROTA_OK;
}

/* "  NIC0: mlx5_0" below the table: beside the name, which rows and columns go by. */
static void read_legend(struct table *table, const char *name, struct line line) {
    char key[64], word[64];
    size_t length = strlen(name);
    if (length < 2 || name[length - 1] != ':' || !next_word(&line, word))
        return;
    memcpy(key, name, length - 1);
    key[length - 1] = '\0';
    int column = column_named(table, key);
    if (column >= 0 && !table->is_gpu[column])
        topo_copy_text(table->topo->nodes[table->nodes[column]].vendor_name, 32, word);
}

static rota_status read_lines(struct table *table, const char *bytes, size_t length) {
    const char *end = bytes + length;
    for (const char *at = bytes; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop == NULL ? end : stop;
        struct line line = {at, stop}, whole = line;
        char word[64];
        table->line++;
        at = stop + 1;
        if (!next_word(&line, word))
            continue;
        rota_status status = ROTA_OK;
        int row = column_named(table, word);
        if (table->columns == 0 && is_gpu_name(word))
            status = read_head(table, whole);
        else if (row >= 0)
            status = read_row(table, row, line);
        else if (table->columns > 0)
            read_legend(table, word, line);
        if (status != ROTA_OK)
            return status;
    }
    return ROTA_OK;
}

/* A row that is missing is the mirror image of its column. */
static void mirror(struct table *table) {
    size_t columns = (size_t)table->columns;
    for (size_t i = 0; i < columns; i++)
        for (size_t j = 0; j < columns; j++) {
            size_t at = i * columns + j, other = j * columns + i;
            if (table->classes[at] != ROTA_PATH_COUNT)
                continue;
            table->classes[at] = table->classes[other];
            table->links[at] = table->links[other];
            if (table->classes[at] == ROTA_PATH_COUNT)
                table->classes[at] = i == j ? ROTA_PATH_LOC : ROTA_PATH_SYS;
        }
    for (size_t i = 0; i < columns; i++)
        if (table->is_gpu[i] && !table->rows[i])
            topo_warn(table->topo, "the table has no row for %s: taken from its column",
                      table->topo->nodes[table->nodes[i]].name);
}

static int row_links(const struct table *table, int row) {
    int sum = 0;
    for (int j = 0; j < table->columns; j++)
        sum += table->is_gpu[row] && table->is_gpu[j] ? table->links[row * table->columns + j] : 0;
    return sum;
}

static void add_links(struct table *table) {
    struct topo *topo = table->topo;
    int columns = table->columns, most = 0, nvswitch = -1, sums[MAX_COLUMNS];
    for (int i = 0; i < columns; i++) {
        sums[i] = row_links(table, i);
        most = sums[i] > most ? sums[i] : most;
    }
    if (most > MOST_NVLINKS)
        nvswitch = topo_add_node(topo, TOPO_NVSWITCH, topo_host_named(topo, ""));
    for (int i = 0; i < columns; i++) {
        int widest = 0;
        for (int j = 0; j < columns; j++) {
            int count = table->is_gpu[i] && table->is_gpu[j] ? table->links[i * columns + j] : 0;
            widest = count > widest ? count : widest;
            if (nvswitch < 0)
                topo_add_link(topo, table->nodes[i], table->nodes[j], count);
        }
        if (nvswitch >= 0 && table->is_gpu[i])
            topo_add_link(topo, table->nodes[i], nvswitch, widest);
    }
    if (nvswitch < 0)
        return;
    topo_warn(topo,
              "a GPU's cells add up to %d NVLinks, more than a GPU has: NV# is taken as links "
              "per GPU to NVSwitches",
              most);
    for (int i = 0; i < columns; i++)
        for (int j = 0; j < i; j++)
            if (table->links[i * columns + j] == 0 && table->is_gpu[i] && table->is_gpu[j] &&
                sums[i] > 0 && sums[j] > 0)
                topo_warn(topo, "%s and %s have NVLinks to switches, but none between them",
                          topo->nodes[table->nodes[i]].name, topo->nodes[table->nodes[j]].name);
}

/* "0-3,8-11"; nothing of a list that is none, or that names CPUs which no machine has. */
static void read_cpus(hwloc_bitmap_t cpus, const char *text) {
    enum { MOST_CPUS = 65536 };
    while (isdigit((unsigned char)*text)) {
        char *end;
        unsigned long first = strtoul(text, &end, 10), last = first;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        if (last < first || last >= MOST_CPUS || (*end != ',' && *end != '\0'))
            break;
        hwloc_bitmap_set_range(cpus, (unsigned)first, (int)last);
        if (*end == '\0')
            return;
        text = end + 1;
    }
    hwloc_bitmap_zero(cpus);
}

/* NUMA nodes from the affinity columns; the classes of the cells stay what they are. */
static void add_numa(struct table *table) {
    struct topo *topo = table->topo;
    for (int i = 0; i < table->columns; i++) {
        if (table->numa_nodes[i] < 0 || !table->is_gpu[i])
            continue;
        int numa = -1, host = topo_host_named(topo, "");
        for (int j = 0; j < topo->node_count && numa < 0; j++)
            if (topo->nodes[j].kind == TOPO_NUMA && topo->nodes[j].numa == table->numa_nodes[i])
                numa = j;
        if (numa < 0 && (numa = topo_add_node(topo, TOPO_NUMA, host)) >= 0) {
            topo->nodes[numa].numa = table->numa_nodes[i];
            topo->nodes[numa].cpus = hwloc_bitmap_alloc();
            if (topo->nodes[numa].cpus == NULL)
                topo->no_memory = true;
            else
                read_cpus(topo->nodes[numa].cpus, table->cpus[i]);
        }
        topo->nodes[table->nodes[i]].parent = numa;
        topo->nodes[table->nodes[i]].numa = table->numa_nodes[i];
    }
    if (!table->has_numa)
        topo_warn(topo, "the table has no NUMA affinity: NUMA nodes are unknown");
}

static void keep_classes(struct table *table) {
    struct topo *topo = table->topo;
    for (int i = 0; i < table->columns; i++)
        topo->nodes[table->nodes[i]].column = i;
    topo->given_width = table->columns;
    topo->given_classes = table->classes;
    table->classes = NULL;
}

rota_status topo_read_matrix(struct topo *topo, const char *bytes, size_t length) {
    struct table *table = calloc(1, sizeof(*table));
    if (table == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a table");
    table->topo = topo;
    rota_status status = read_lines(table, bytes, length);
    if (status == ROTA_OK && table->gpus == 0)
        status = error_raise(ROTA_ERR_FORMAT, "%.150s: the table has no GPU column", topo->source);
    if (status == ROTA_OK) {
        mirror(table);
        add_links(table);
        add_numa(table);
        keep_classes(table);
    }
    free(table->classes);
    free(table->links);
    free(table->rows);
    free(table);
    return status;
}
