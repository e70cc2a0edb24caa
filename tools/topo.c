/* `rota topo`: shows what a machine, or a file, looks like, and the rings and trees that it
 * carries.
 */
#include "cli/arguments.h"
#include "tools/command.h"
#include "tools/topo_view.h"

#include <rota/rota.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char command[] = "rota topo";

enum form { FORM_TEXT, FORM_JSON, FORM_SVG, FORM_NCCL, FORM_HWLOC };

struct topo_arguments {
    const char *xml, *against;
    unsigned parts;
    bool merge;
    enum form form;
};

enum {
    KEY_XML = 0x100,
    KEY_RINGS,
    KEY_TREES,
    KEY_NICS,
    KEY_MATRIX,
    KEY_EXPLAIN,
    KEY_AGAINST,
    KEY_MERGE
};

static const struct argp_option options[] = {
    {"xml", KEY_XML, "FILE", 0,
     "a file instead of this machine: NCCL, RCCL or hwloc XML, the table of nvidia-smi topo -m, or "
     "rota's text for clusters",
     0},
    {"rings", KEY_RINGS, NULL, 0, "as many rings as the links carry, and the bound", 0},
    {"trees", KEY_TREES, NULL, 0, "spanning trees, and the bound", 0},
    {"nics", KEY_NICS, NULL, 0, "the nearest NICs of each GPU", 0},
    {"matrix", KEY_MATRIX, NULL, 0, "how each pair of devices is connected", 0},
    {"explain", KEY_EXPLAIN, NULL, 0, "why: where numbers come from, what bounds the result", 0},
    {"against", KEY_AGAINST, "GRAPH.xml", 0, "compare with the rings of a NCCL graph file", 0},
    {"merge", KEY_MERGE, NULL, 0, "fill in from this machine what the file of --xml lacks", 0},
    {"format", 'f', "FORMAT", 0, "text (default), json, svg; nccl or hwloc: as such XML", 0},
    {0}};

static enum form format_parse(const char *value) {
    static const char *const names[] = {"text", "json", "svg", "nccl", "hwloc"};
    char quoted[CLI_QUOTED];
    for (int i = 0; i < 5; i++)
        if (strcmp(value, names[i]) == 0)
            return (enum form)i;
    cli_fail(command, "--format expects text, json, svg, nccl or hwloc, not %s",
             cli_quote(value, quoted));
}

static error_t option_parse(int key, char *value, struct argp_state *state) {
    struct topo_arguments *arguments = state->input;
    char quoted[CLI_QUOTED];
    switch (key) {
    case ARGP_KEY_INIT:
        cli_arguments_init(state);
        return 0;
    case KEY_XML:
        arguments->xml = value;
        return 0;
    case KEY_RINGS:
        arguments->parts |= TOPO_WITH_RINGS;
        return 0;
    case KEY_TREES:
        arguments->parts |= TOPO_WITH_TREES;
        return 0;
    case KEY_NICS:
        arguments->parts |= TOPO_WITH_NICS;
        return 0;
    case KEY_MATRIX:
        arguments->parts |= TOPO_WITH_MATRIX;
        return 0;
    case KEY_EXPLAIN:
        arguments->parts |= TOPO_WITH_REASONS;
        return 0;
    case KEY_MERGE:
        arguments->merge = true;
        return 0;
    case KEY_AGAINST:
        arguments->against = value;
        return 0;
    case 'f':
        arguments->form = format_parse(value);
        return 0;
    case ARGP_KEY_ARG:
        cli_fail(command, "unexpected argument %s: a file is given by --xml",
                 cli_quote(value, quoted));
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = options,
    .parser = option_parse,
    .doc =
        "Shows devices, links and distances of this machine or of a file, and searches the rings "
        "and trees that its links carry, with the proven upper bound beside them. What looks "
        "doubtful is named. Status 1 when the file cannot be read."};

static int failed(void) {
    rota_error error = ROTA_ERROR_INIT;
    rota_last_error(&error);
    fprintf(stderr, "%s: %s\n", command, error.message);
    return 1;
}

static void side_print(const char *who, const rota_topo_result *result, FILE *out) {
    fprintf(out, "  %-6s %d ring%s, ", who, result->count, result->count == 1 ? "" : "s");
    if (strcmp(result->bound_kind, "hops") == 0)
        fprintf(out, "the first with hops ");
    else
        fprintf(out, "together %.4g links (%.1f GB/s), the first with hops ", result->score,
                result->score_gbps);
    topo_view_print_hops(result->hops, out);
    fprintf(out, "\n");
}

/* Both ring sets by the same measure. Beside JSON or a picture it goes to stderr. */
static int against_print(rota_topo *topo, const struct topo_arguments *arguments) {
    rota_topo_result ours = ROTA_TOPO_RESULT_INIT, theirs = ROTA_TOPO_RESULT_INIT;
    FILE *out = arguments->form == FORM_TEXT ? stdout : stderr;
    if (rota_topo_find_rings(topo, &ours) != ROTA_OK ||
        rota_topo_judge(topo, arguments->against, &theirs) != ROTA_OK)
        return failed();
    fprintf(out, "\nAgainst %s\n", arguments->against);
    side_print("rota:", &ours, out);
    side_print("file:", &theirs, out);
    if (strcmp(ours.bound_kind, "hops") != 0)
        fprintf(out, "  proven bound: %.4g links\n", ours.bound);
    return 0;
}

static int show(rota_topo *topo, const struct topo_arguments *arguments) {
    struct topo_view view;
    if (arguments->form == FORM_NCCL || arguments->form == FORM_HWLOC)
        return rota_topo_write(
                   topo, arguments->form == FORM_NCCL ? ROTA_TOPO_NCCL_XML : ROTA_TOPO_HWLOC_XML,
                   stdout) == ROTA_OK
                   ? 0
                   : failed();
    rota_status status = topo_view_open(&view, topo, arguments->parts);
    bool fine = status == ROTA_OK;
    if (fine && arguments->form == FORM_JSON)
        topo_json_print(&view, stdout);
    else if (fine)
        fine = arguments->form == FORM_SVG ? topo_svg_print(&view, stdout)
                                           : topo_text_print(&view, stdout);
    topo_view_close(&view);
    if (status != ROTA_OK)
        return failed();
    fine = fflush(stdout) == 0 && ferror(stdout) == 0 && fine;
    if (!fine)
        fprintf(stderr, "%s: the topology cannot be written\n", command);
    return fine ? 0 : 1;
}

int command_topo(int argc, char **argv) {
    struct topo_arguments arguments = {.form = FORM_TEXT};
    rota_topo *topo = NULL;
    cli_arguments_parse(&parser, command, argc, argv, 0, &arguments);
    setenv("HWLOC_HIDE_ERRORS", "2", 0); /* hwloc's banners say nothing that our messages do not */
    if (arguments.merge && arguments.xml == NULL)
        cli_fail(command, "--merge needs --xml");
    if ((arguments.merge ? rota_topo_load_merged(arguments.xml, &topo)
                         : rota_topo_load(arguments.xml, &topo)) != ROTA_OK)
        return failed();
    int status = show(topo, &arguments);
    if (status == 0 && arguments.against != NULL)
        status = against_print(topo, &arguments);
    rota_topo_free(topo);
    return status;
}
