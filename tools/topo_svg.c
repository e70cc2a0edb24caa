/* The topology as SVG, to be understood at a glance.
 *
 * Each host is a box of NUMA nodes; in each, GPUs stand in a row above the NICs, with boxes of PCI
 * switches around what they hold. Direct links are curves between GPUs, coloured by how many there
 * are and as wide; NVSwitches are one bar on top that GPUs are joined to. Rings are drawn
 * below, over the links in grey: one circle of GPUs, at the same places in each, for all rings that
 * pass them in the same order; hops that are no link are dashed and in the colour of their class.
 */
#include "tools/topo_view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    GPU_WIDTH = 84,
    GPU_HEIGHT = 46,
    GAP = 14,
    MARGIN = 24,
    PORT_HEIGHT = 22,
    PORT_WIDTH = 110,
    CURVE = 150,       /* height of the widest links, about */
    CIRCLE = 104,      /* radius of a ring of GPUs, at least */
    MOST_CIRCLES = 12, /* more say nothing new at a glance */
    MOST_GPUS = 64     /* more do not fit into a picture; text and JSON have them all */
};

/* Classes by colour, nearest green to farthest red (Okabe and Ito's palette: told apart by
 * colour-blind eyes too). */
static const char *const class_colors[] = {"#000000", "#009e73", "#56b4e9", "#0072b2",
                                           "#8a8a00", "#e69f00", "#d55e00", "#cc79a7"};
static const char *const class_words[] = {
    "",          "direct link or NVSwitch", "one PCI switch", "PCI switches", "host bridge",
    "NUMA node", "between NUMA nodes",      "network"};
/* Links of a pair of GPUs: few, some, many of the most that a pair has. */
static const char *const link_colors[] = {"#26a69a", "#0072b2", "#6a1b9a"};

struct drawing {
    const struct topo_view *view;
    FILE *out;
    double *x, *y; /* centres of GPUs; 0: not placed yet */
    bool *drawn;   /* per port */
    double *ends;  /* right ends of groups, per node */
    double right, bottom;
    unsigned used; /* bits of classes that rings have */
};

static void print_xml(const char *words, FILE *out) {
    for (; *words != '\0'; words++) {
        const char *escaped = *words == '&'   ? "&amp;"
                              : *words == '<' ? "&lt;"
                              : *words == '>' ? "&gt;"
                              : *words == '"' ? "&quot;"
                                              : NULL;
        if (escaped != NULL)
            fputs(escaped, out);
        else
            fputc(*words, out);
    }
}

static void text(struct drawing *drawing, double x, double y, int size, const char *anchor,
                 const char *style, const char *words) {
    fprintf(drawing->out, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%d\" text-anchor=\"%s\" %s>", x,
            y, size, anchor, style);
    print_xml(words, drawing->out);
    fputs("</text>\n", drawing->out);
}

static void box(struct drawing *drawing, double x, double y, double width, double height,
                const char *style) {
    fprintf(drawing->out,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"6\" %s/>\n", x, y,
            width, height, style);
}

/* The NUMA node, else package, else host that a device is shown in. */
static int group_of(const struct topo_view *view, int node) {
    int found = topo_view_above(view, node, ROTA_TOPO_NUMA);
    found = found >= 0 ? found : topo_view_above(view, node, ROTA_TOPO_PACKAGE);
    return found >= 0 ? found : topo_view_above(view, node, ROTA_TOPO_HOST);
}

/* The outermost PCI switch above a node, -1 none. */
static int top_switch(const struct topo_view *view, int node) {
    int found = -1;
    while ((node = view->nodes[node].parent) >= 0)
        if (view->nodes[node].kind == ROTA_TOPO_PCI)
            found = node;
    return found;
}

static void draw_gpu(struct drawing *drawing, int gpu) {
    const rota_topo_node *node = &drawing->view->nodes[drawing->view->gpus[gpu]];
    double x = drawing->x[gpu], y = drawing->y[gpu];
    char words[64];
    box(drawing, x - GPU_WIDTH / 2.0, y - GPU_HEIGHT / 2.0, GPU_WIDTH, GPU_HEIGHT,
        "fill=\"#e8f5e9\" stroke=\"#2e7d32\" stroke-width=\"1.5\"");
    snprintf(words, sizeof(words), "GPU %d", gpu);
    text(drawing, x, y - 2, 15, "middle", "font-weight=\"bold\" fill=\"#1b5e20\"", words);
    text(drawing, x, y + 14, 10, "middle", "fill=\"#555\"", node->bus_id);
}

static void draw_port(struct drawing *drawing, int port, double x, double y, double width) {
    const rota_topo_node *node = &drawing->view->nodes[drawing->view->ports[port]];
    char words[96];
    snprintf(words, sizeof(words), "%.40s", node->name);
    if (node->gbps > 0)
        snprintf(words, sizeof(words), "%.40s  %.0fG", node->name, node->gbps * 8);
    box(drawing, x, y, width, PORT_HEIGHT, "fill=\"#fff3e0\" stroke=\"#e65100\"");
    text(drawing, x + width / 2, y + 15, 11, "middle", "fill=\"#bf360c\"", words);
    drawing->drawn[port] = true;
    drawing->bottom = fmax(drawing->bottom, y + PORT_HEIGHT + 4);
}

/* The GPUs of a group that the switch holds (-1: GPU `first` alone), side by side, the switch
 * around them and its NICs below. Returns the right end. */
static double draw_switch_group(struct drawing *drawing, int group, int place, int first, double x,
                                double y) {
    const struct topo_view *view = drawing->view;
    double begin = x;
    for (int i = first; i < view->info.gpus; i++) {
        if (drawing->x[i] > 0 || group_of(view, view->gpus[i]) != group ||
            (i != first && (place < 0 || top_switch(view, view->gpus[i]) != place)))
            continue;
        drawing->x[i] = x + GPU_WIDTH / 2.0;
        drawing->y[i] = y + GPU_HEIGHT / 2.0;
        x += GPU_WIDTH + GAP;
    }
    drawing->bottom = fmax(drawing->bottom, y + GPU_HEIGHT + 22);
    if (place < 0)
        return x;
    double width = x - GAP - begin, port_y = y + GPU_HEIGHT + 22;
    box(drawing, begin - 5, y - 6, width + 10, GPU_HEIGHT + 22,
        "fill=\"none\" stroke=\"#90a4ae\" stroke-dasharray=\"4 3\"");
    text(drawing, begin + width / 2, y + GPU_HEIGHT + 12, 9, "middle", "fill=\"#607d8b\"",
         "PCI switch");
    for (int p = 0; p < view->info.ports; p++)
        if (!drawing->drawn[p] && top_switch(view, view->ports[p]) == place) {
            draw_port(drawing, p, begin - 3, port_y, width + 6);
            port_y += PORT_HEIGHT + 4;
        }
    return x;
}

/* One NUMA node: its GPUs in the order of their switches, then the NICs that stand beside them.
 * Returns the right end; `left` when there is nothing to show. */
static double draw_group(struct drawing *drawing, int group, double left, double top) {
    const struct topo_view *view = drawing->view;
    double x = left + GAP, y = top + 10, port_y = y;
    bool empty = true, loose = false;
    for (int i = 0; i < view->info.gpus; i++)
        if (drawing->x[i] <= 0 && group_of(view, view->gpus[i]) == group) {
            x = draw_switch_group(drawing, group, top_switch(view, view->gpus[i]), i, x, y);
            empty = false;
        }
    for (int p = 0; p < view->info.ports; p++)
        if (!drawing->drawn[p] && group_of(view, view->ports[p]) == group) {
            draw_port(drawing, p, x, port_y, PORT_WIDTH);
            port_y += PORT_HEIGHT + 4;
            loose = true;
        }
    x += loose ? PORT_WIDTH + GAP : 0;
    return empty && !loose ? left : x;
}

/* The more of both directions. */
static int links_between(const struct topo_view *view, int a, int b) {
    int there = rota_topo_links(view->topo, a, b), back = rota_topo_links(view->topo, b, a);
    return there > back ? there : back;
}

/* The most links of any pair of GPUs. */
static int most_links(const struct topo_view *view) {
    int most = 0;
    for (int i = 0; i < view->info.gpus; i++)
        for (int j = 0; j < i; j++)
            most = links_between(view, i, j) > most ? links_between(view, i, j) : most;
    return most;
}

static const char *link_color(int links, int most) {
    return link_colors[(links * 3 > most) + (links * 3 > most * 2)];
}

static double link_width(int links, int most) {
    return 1.2 + 4.0 * links / most;
}

static void draw_links(struct drawing *drawing, int host) {
    const struct topo_view *view = drawing->view;
    int most = most_links(view);
    double widest = 1;
    for (int i = 0; i < view->info.gpus; i++)
        for (int j = 0; j < i; j++)
            if (links_between(view, i, j) > 0)
                widest = fmax(widest, fabs(drawing->x[i] - drawing->x[j]));
    for (int i = 0; i < view->info.gpus; i++)
        for (int j = 0; j < i; j++) {
            int links = links_between(view, i, j);
            if (links == 0 || view->nodes[view->gpus[i]].host != host)
                continue;
            double span = fabs(drawing->x[i] - drawing->x[j]);
            double from_y = drawing->y[j] - GPU_HEIGHT / 2.0,
                   to_y = drawing->y[i] - GPU_HEIGHT / 2.0;
            double lift = 18 + span * fmin(0.22, CURVE / widest);
            fprintf(drawing->out,
                    "<path d=\"M%.1f %.1f C%.1f %.1f %.1f %.1f %.1f %.1f\" fill=\"none\" "
                    "stroke=\"%s\" stroke-width=\"%.1f\" opacity=\"0.75\"><title>GPU %d - GPU %d: "
                    "%d link%s</title></path>\n",
                    drawing->x[j], from_y, drawing->x[j], from_y - lift, drawing->x[i], to_y - lift,
                    drawing->x[i], to_y, link_color(links, most), link_width(links, most), j, i,
                    links, links == 1 ? "" : "s");
        }
}

static void draw_switch(struct drawing *drawing, int host, double top, double left, double right) {
    const struct topo_view *view = drawing->view;
    int count = 0;
    for (int i = 0; i < view->info.nodes; i++)
        count += view->nodes[i].kind == ROTA_TOPO_NVSWITCH && view->nodes[i].host == host;
    char words[96];
    box(drawing, left, top, right - left, 28,
        "fill=\"#ede7f6\" stroke=\"#4527a0\" stroke-width=\"1.5\"");
    snprintf(words, sizeof(words), "%d NVSwitch%s", count, count == 1 ? "" : "es");
    text(drawing, (left + right) / 2, top + 19, 13, "middle", "fill=\"#311b92\"", words);
    for (int i = 0; i < view->info.gpus; i++) {
        double y = drawing->y[i] - GPU_HEIGHT / 2.0;
        if (view->nodes[view->gpus[i]].host != host)
            continue;
        if (!(view->gpu[i].switch_links > 0)) {
            text(drawing, drawing->x[i], y - 6, 10, "middle", "fill=\"#d55e00\"", "no link");
            continue;
        }
        fprintf(drawing->out,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#6a1b9a\" "
                "stroke-width=\"%.1f\" opacity=\"0.8\"/>\n",
                drawing->x[i], top + 28, drawing->x[i], y, 1 + view->gpu[i].switch_links / 3.0);
        snprintf(words, sizeof(words), "%d", view->gpu[i].switch_links);
        text(drawing, drawing->x[i] + 10, (top + 28 + y) / 2 + 4, 11, "start", "fill=\"#4a148c\"",
             words);
    }
}

static bool has_switch(const struct topo_view *view) {
    for (int i = 0; i < view->info.gpus; i++)
        if ((view->gpu[i].switch_links > 0))
            return true;
    return false;
}

/* Room above the GPUs for the highest curve of links. */
static double link_room(const struct topo_view *view) {
    int widest = 0;
    for (int i = 0; i < view->info.gpus; i++)
        for (int j = 0; j < i; j++)
            if (rota_topo_links(view->topo, i, j) > 0 && i - j > widest)
                widest = i - j;
    if (has_switch(view))
        return 84;
    return widest == 0 ? 0 : 0.75 * fmin(18 + CURVE, 18 + 0.22 * widest * (GPU_WIDTH + PORT_WIDTH));
}

/* Below what the group holds, so that no link crosses it. */
static void draw_group_name(struct drawing *drawing, int group, double left, double right,
                            double bottom) {
    const struct topo_view *view = drawing->view;
    int host = topo_view_above(view, group, ROTA_TOPO_HOST);
    bool several = view->info.hosts > 1 && host >= 0 && host != group;
    char words[192];
    snprintf(words, sizeof(words), "%.80s%s%.80s", several ? view->nodes[host].label : "",
             several ? ", " : "", view->nodes[group].label);
    box(drawing, left, bottom, right - left, 22, "fill=\"#eceff1\"");
    text(drawing, (left + right) / 2, bottom + 16, 12, "middle",
         "fill=\"#37474f\" font-weight=\"bold\"", words);
}

static void draw_host(struct drawing *drawing, int host, double top) {
    const struct topo_view *view = drawing->view;
    double left = MARGIN, gpu_top = top + link_room(view), bottom = 0;
    drawing->bottom = gpu_top;
    for (int pass = 0; pass < 2; pass++) { /* devices, then the names of groups, in one row */
        left = MARGIN;
        bottom = drawing->bottom + 6;
        for (int group = 0; group < view->info.nodes; group++) {
            rota_topo_kind kind = view->nodes[group].kind;
            if (view->nodes[group].host != host ||
                (kind != ROTA_TOPO_NUMA && kind != ROTA_TOPO_PACKAGE && kind != ROTA_TOPO_HOST))
                continue;
            if (pass == 0)
                drawing->ends[group] = draw_group(drawing, group, left, gpu_top);
            if (drawing->ends[group] <= left)
                continue;
            if (pass == 1)
                draw_group_name(drawing, group, left, drawing->ends[group], bottom);
            left = drawing->ends[group] + 10;
        }
    }
    drawing->bottom = bottom + 22;
    if (has_switch(view))
        draw_switch(drawing, host, top + 20, MARGIN, left - 10);
    else
        draw_links(drawing, host);
    drawing->right = fmax(drawing->right, left);
}

/* Radius that leaves room for each GPU. */
static double radius_of(const struct topo_view *view) {
    return fmax(CIRCLE, 4.6 * view->info.gpus);
}

/* The place of a GPU in all circles. */
static void place_on_circle(const struct topo_view *view, int gpu, double *x, double *y) {
    double angle = 2 * M_PI * gpu / view->info.gpus - M_PI / 2;
    *x += radius_of(view) * cos(angle);
    *y += radius_of(view) * sin(angle);
}

/* A hop, drawn to the edge of the next disc; two GPUs get two curves. */
static void draw_hop(struct drawing *drawing, int from, int to, double disc, double x, double y) {
    const struct topo_view *view = drawing->view;
    rota_path class = rota_topo_gpu_path(view->topo, from, to);
    double ax = x, ay = y, bx = x, by = y;
    place_on_circle(view, from, &ax, &ay);
    place_on_circle(view, to, &bx, &by);
    double length = hypot(bx - ax, by - ay), bend = view->info.gpus == 2 ? 30 : 0;
    double middle_x = (ax + bx) / 2 + bend * (by - ay) / length,
           middle_y = (ay + by) / 2 - bend * (bx - ax) / length;
    double rest = hypot(bx - middle_x, by - middle_y), trim = (disc + 4) / rest;
    fprintf(drawing->out,
            "<path d=\"M%.1f %.1f Q%.1f %.1f %.1f %.1f\" fill=\"none\" stroke=\"%s\" "
            "stroke-width=\"3\" %smarker-end=\"url(#tip%d)\"><title>%d to %d: %s</title></path>\n",
            ax, ay, middle_x, middle_y, bx + (middle_x - bx) * trim, by + (middle_y - by) * trim,
            class_colors[class], class == ROTA_PATH_LNK ? "" : "stroke-dasharray=\"6 4\" ",
            (int)class, from, to, rota_path_name(class));
    drawing->used |= 1u << class;
}

/* The links that all rings share, behind them. */
static void draw_chords(struct drawing *drawing, double x, double y) {
    const struct topo_view *view = drawing->view;
    int most = most_links(view);
    for (int i = 0; i < view->info.gpus; i++)
        for (int j = 0; j < i; j++) {
            double ax = x, ay = y, bx = x, by = y;
            int links = links_between(view, i, j);
            place_on_circle(view, i, &ax, &ay);
            place_on_circle(view, j, &bx, &by);
            if (links > 0)
                fprintf(drawing->out,
                        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                        "stroke=\"#d9d9d9\" stroke-width=\"%.1f\"/>\n",
                        ax, ay, bx, by, link_width(links, most));
        }
}

static void draw_circle(struct drawing *drawing, const rota_topo_ring *ring, double share, int same,
                        double x, double y) {
    const struct topo_view *view = drawing->view;
    int count = view->info.gpus;
    double disc = count > 24 ? 9 : 12;
    char words[96];
    draw_chords(drawing, x, y);
    for (int i = 0; i < count; i++)
        draw_hop(drawing, ring->gpus[i], ring->gpus[(i + 1) % count], disc, x, y);
    for (int i = 0; i < count; i++) {
        double at_x = x, at_y = y;
        place_on_circle(view, i, &at_x, &at_y);
        fprintf(drawing->out,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.0f\" fill=\"#e8f5e9\" "
                "stroke=\"#2e7d32\"/>\n",
                at_x, at_y, disc);
        snprintf(words, sizeof(words), "%d", i);
        text(drawing, at_x, at_y + 4, count > 24 ? 9 : 11, "middle", "fill=\"#1b5e20\"", words);
    }
    if (view->info.link_gbps > 0 && strcmp(view->rings.bound_kind, "hops") != 0)
        snprintf(words, sizeof(words), "%d ring%s, %.4g link%s", same, same == 1 ? "" : "s", share,
                 share > 0.999 && share < 1.001 ? "" : "s");
    else
        snprintf(words, sizeof(words), "%d ring%s", same, same == 1 ? "" : "s");
    text(drawing, x, y + radius_of(view) + 34, 13, "middle", "font-weight=\"bold\"", words);
}

static void draw_rings(struct drawing *drawing, double top) {
    const struct topo_view *view = drawing->view;
    const rota_topo_result *rings = &view->rings;
    double circle = radius_of(view), width = 2 * circle + 56, height = 2 * circle + 80;
    int drawn = 0, row = (int)fmax(1, floor((drawing->right - MARGIN) / width));
    char words[160];
    if (strcmp(rings->bound_kind, "hops") == 0)
        snprintf(words, sizeof(words),
                 "Links carry no ring (%s): the ring with the fewest far hops", rings->kind);
    else
        snprintf(words, sizeof(words),
                 "%d ring%s together fill%s %.4g of at most %.4g links: %.0f GB/s", rings->count,
                 rings->count == 1 ? "" : "s", rings->count == 1 ? "s" : "", rings->score,
                 rings->bound, rings->score_gbps);
    text(drawing, MARGIN, top + 16, 15, "start", "font-weight=\"bold\"", words);
    for (int r = 0; r < rings->count; r++) {
        double share = 0;
        int same = 0;
        if (topo_view_first_alike(view, r) != r)
            continue;
        if (drawn == MOST_CIRCLES) {
            text(drawing, MARGIN, drawing->bottom + 14, 12, "start", "",
                 "... and further orders (see the text form)");
            drawing->bottom += 24;
            break;
        }
        for (int q = r; q < rings->count; q++)
            if (topo_view_same_order(view, r, q)) {
                share += topo_view_ring(view, q).share;
                same++;
            }
        double x = MARGIN + circle + 20 + drawn % row * width;
        double y = top + 44 + circle + drawn / row * height;
        rota_topo_ring ring = topo_view_ring(view, r);
        draw_circle(drawing, &ring, share, same, x, y);
        drawing->right = fmax(drawing->right, x + circle + 30);
        drawing->bottom = fmax(drawing->bottom, y + circle + 40);
        drawn++;
    }
}

static void draw_sample(struct drawing *drawing, double *x, double y, const char *color,
                        double width, bool dashed, const char *words) {
    fprintf(drawing->out,
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
            "stroke-width=\"%.1f\"%s/>\n",
            *x, y, *x + 26, y, color, width, dashed ? " stroke-dasharray=\"6 4\"" : "");
    text(drawing, *x + 32, y + 4, 11, "start", "fill=\"#444\"", words);
    *x += 50 + 6.4 * (double)strlen(words);
    drawing->right = fmax(drawing->right, *x);
}

/* Only what is in the picture: numbers of links, classes of hops. */
static void draw_legend(struct drawing *drawing, double top) {
    const struct topo_view *view = drawing->view;
    double x = MARGIN, y = top;
    int most = has_switch(view) ? 0 : most_links(view);
    char words[96];
    for (int links = 1; links <= most; links++) {
        bool there = false;
        for (int i = 0; i < view->info.gpus; i++)
            for (int j = 0; j < i; j++)
                there = there || links_between(view, i, j) == links;
        snprintf(words, sizeof(words), "%d link%s", links, links == 1 ? "" : "s");
        if (there)
            draw_sample(drawing, &x, y, link_color(links, most), link_width(links, most), false,
                        words);
    }
    if (x > MARGIN && drawing->used != 0) {
        x = MARGIN;
        y += 20;
    }
    for (int class = ROTA_PATH_LNK; class < ROTA_PATH_COUNT; class ++) {
        snprintf(words, sizeof(words), "%s: %s", rota_path_name((rota_path) class),
                 class_words[class]);
        if ((drawing->used >> class & 1) != 0)
            draw_sample(drawing, &x, y, class_colors[class], 3, class != ROTA_PATH_LNK, words);
    }
    drawing->bottom = x > MARGIN ? y + 20 : top;
}

static void draw_tips(FILE *out) {
    fputs("<defs>\n", out);
    for (int class = 0; class < ROTA_PATH_COUNT; class ++)
        fprintf(
            out,
            "<marker id=\"tip%d\" viewBox=\"0 0 8 8\" refX=\"5\" refY=\"4\" markerWidth=\"3.4\" "
            "markerHeight=\"3.4\" orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" fill=\"%s\"/>"
            "</marker>\n",
            class, class_colors[class]);
    fputs("</defs>\n", out);
}

/* Everything below the head, whose size it finds. */
static void draw_body(struct drawing *drawing) {
    const struct topo_view *view = drawing->view;
    char words[320];
    double top = 36;
    draw_tips(drawing->out);
    snprintf(words, sizeof(words), "%.200s: %d GPUs", view->info.source, view->info.gpus);
    text(drawing, MARGIN, 24, 16, "start", "font-weight=\"bold\"", words);
    if (view->info.link_gbps > 0) {
        snprintf(words, sizeof(words), "one %s: %.4g GB/s per direction", view->info.link_name,
                 view->info.link_gbps);
        text(drawing, MARGIN, 42, 11, "start", "fill=\"#555\"", words);
    }
    if (view->info.gpus > MOST_GPUS) {
        snprintf(words, sizeof(words), "%d GPUs are too many for a picture: see the text form",
                 view->info.gpus);
        text(drawing, MARGIN, 66, 13, "start", "", words);
        drawing->right = 560;
        drawing->bottom = 90;
        return;
    }
    for (int host = 0; host < view->info.hosts; host++) {
        draw_host(drawing, host, top + 16);
        top = drawing->bottom + 20;
    }
    for (int i = 0; i < view->info.gpus; i++)
        draw_gpu(drawing, i);
    if ((view->parts & TOPO_WITH_RINGS) != 0 && view->rings.count > 0) {
        draw_rings(drawing, top);
        top = drawing->bottom;
    }
    draw_legend(drawing, top + 16);
    for (int i = 0; i < view->info.warnings && i < 8; i++) {
        drawing->bottom += 16;
        snprintf(words, sizeof(words), "! %.300s", rota_topo_warning(view->topo, i));
        text(drawing, MARGIN, drawing->bottom, 11, "start", "fill=\"#b71c1c\"", words);
        drawing->right = fmax(drawing->right, MARGIN + 6.0 * (double)strlen(words));
    }
}

bool topo_svg_print(const struct topo_view *view, FILE *out) {
    struct drawing drawing = {.view = view, .right = 3.0 * 280};
    char *body = NULL;
    size_t length = 0;
    drawing.x = calloc((size_t)view->info.gpus + 1, sizeof(double));
    drawing.y = calloc((size_t)view->info.gpus + 1, sizeof(double));
    drawing.drawn = calloc((size_t)view->info.ports + 1, sizeof(bool));
    drawing.ends = calloc((size_t)view->info.nodes + 1, sizeof(double));
    drawing.out = open_memstream(&body, &length); /* the size stands before and is known after */
    bool fine = drawing.x != NULL && drawing.y != NULL && drawing.drawn != NULL &&
                drawing.ends != NULL && drawing.out != NULL;
    if (fine)
        draw_body(&drawing);
    fine = drawing.out != NULL && fclose(drawing.out) == 0 && fine;
    if (fine) {
        fprintf(out,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
                "viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\">\n<rect width=\"100%%\" "
                "height=\"100%%\" fill=\"white\"/>\n",
                drawing.right + MARGIN, drawing.bottom + MARGIN, drawing.right + MARGIN,
                drawing.bottom + MARGIN);
        fwrite(body, 1, length, out);
        fputs("</svg>\n", out);
    }
    free(body);
    free(drawing.x);
    free(drawing.y);
    free(drawing.drawn);
    free(drawing.ends);
    return fine;
}
