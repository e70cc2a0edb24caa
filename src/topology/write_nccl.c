/* Writer of NCCL's topology XML, so that what was merged or planned here can be given to NCCL
 * (NCCL_TOPO_FILE). Elements nest as the tree does and are closed on the way back up. */
#include "base/error.h"
#include "topology/walk.h"

#include <stdlib.h>
#include <string.h>

void topo_print_xml(const char *text, FILE *out) {
    for (; *text != '\0'; text++)
        switch (*text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*text, out);
        }
}

static void attribute(const char *name, const char *value, FILE *out) {
    fprintf(out, " %s=\"", name);
    topo_print_xml(value, out);
    fputc('"', out);
}

static void open_nccl_cpu(const struct topo *topo, int index, FILE *out) {
    const struct topo_node *node = &topo->nodes[index];
    int host = topo_above(topo, index, TOPO_HOST);
    fputs("  <cpu", out);
    if (host >= 0 && topo->nodes[host].name[0] != '\0')
        attribute("host_hash", topo->nodes[host].name, out);
    fprintf(out, " numaid=\"%d\" affinity=\"", node->numa);
    int last = node->cpus == NULL ? -1 : hwloc_bitmap_last(node->cpus);
    for (int word = last < 0 ? 0 : last / 32; word >= 0; word--)
        fprintf(out, "%s%08lx", word == (last < 0 ? 0 : last / 32) ? "" : ",",
                node->cpus == NULL ? 0
                                   : (hwloc_bitmap_to_ith_ulong(node->cpus, (unsigned)word / 2) >>
                                      (word % 2 * 32)) &
                                         0xffffffffUL);
    fputc('"', out);
    attribute("arch", node->arch_name[0] ? node->arch_name : "x86_64", out);
    attribute("vendor", node->vendor_name, out);
    fprintf(out, " familyid=\"%u\" modelid=\"%u\">\n", node->family, node->model);
}

static uint32_t class_of(const struct topo_node *node) {
    if (node->pci_class != 0)
        return node->pci_class;
    return node->kind == TOPO_PCI ? 0x060400 : node->kind == TOPO_GPU ? 0x030200 : 0x020000;
}

static void open_nccl_pci(const struct topo_node *node, FILE *out) {
    fputs("<pci", out);
    attribute("busid", node->busid, out);
    fprintf(out,
            " class=\"0x%06x\" vendor=\"0x%04x\" device=\"0x%04x\" link_speed=\"%.1f GT/s "
            "PCIe\" link_width=\"%d\">\n",
            class_of(node), node->vendor, node->device, node->gts, node->lanes);
}

static void nccl_links(const struct topo *topo, const struct topo_node *gpu, FILE *out) {
    const char *name = topo->brand == TOPO_XGMI ? "xgmi" : "nvlink";
    int index = topo->gpus[gpu->id];
    for (int i = 0; i < topo->link_count; i++) {
        const struct topo_node *to = &topo->nodes[topo->links[i].to];
        if (topo->links[i].from != index || (to->kind != TOPO_GPU && to->kind != TOPO_NVSWITCH))
            continue;
        fprintf(out, "<%s", name);
        attribute("target", to->busid[0] != '\0' ? to->busid : "fffffff:ff:ff.0", out);
        fprintf(out, " count=\"%d\" tclass=\"0x%06x\"/>\n", topo->links[i].count,
                to->kind == TOPO_GPU ? class_of(to) : 0x068000);
    }
}

/* A package that nothing hangs on says nothing in NCCL's terms. */
static bool is_bare(const struct topo *topo, int index) {
    bool bare = topo->nodes[index].kind == TOPO_PACKAGE;
    for (int i = index + 1; i < topo->node_count && bare; i++)
        bare = topo->nodes[i].parent != index || topo->nodes[i].kind != TOPO_ROOT;
    return bare;
}

static void open_nccl(const struct topo *topo, int index, void *context) {
    FILE *out = context;
    const struct topo_node *node = &topo->nodes[index];
    switch (node->kind) {
    case TOPO_NUMA:
    case TOPO_PACKAGE:
        if (!is_bare(topo, index))
            open_nccl_cpu(topo, index, out);
        break;
    case TOPO_PCI:
        open_nccl_pci(node, out);
        break;
    case TOPO_GPU:
        open_nccl_pci(node, out);
        fprintf(out, "<gpu dev=\"%d\" rank=\"%d\" %s=\"%d\" gdr=\"1\">\n",
                node->dev >= 0 ? node->dev : node->id, node->rank >= 0 ? node->rank : node->id,
                topo->brand == TOPO_XGMI ? "gcn" : "sm", node->arch);
        nccl_links(topo, node, out);
        fputs("</gpu>\n", out);
        break;
    case TOPO_NIC:
        if (node->busid[0] != '\0')
            open_nccl_pci(node, out);
        fputs("<nic>\n", out);
        break;
    case TOPO_PORT:
        fputs("<net", out);
        attribute("name", node->name, out);
        fprintf(out, " dev=\"%d\" speed=\"%.0f\" port=\"1\" gdr=\"1\"/>\n",
                node->dev >= 0 ? node->dev : node->id, node->gbps * 8000);
        break;
    default:
        break;
    }
}

static void close_nccl(const struct topo *topo, int index, void *context) {
    FILE *out = context;
    const struct topo_node *node = &topo->nodes[index];
    if (node->kind == TOPO_NUMA || node->kind == TOPO_PACKAGE)
        fputs(is_bare(topo, index) ? "" : "</cpu>\n", out);
    else if (node->kind == TOPO_NIC)
        fputs(node->busid[0] != '\0' ? "</nic>\n</pci>\n" : "</nic>\n", out);
    else if (node->kind == TOPO_PCI || node->kind == TOPO_GPU)
        fputs("</pci>\n", out);
}

/* NUMA nodes stand beside their packages, not in them. */
static int nccl_parent(const struct topo *topo, int index) {
    int parent = topo->nodes[index].parent;
    return topo->nodes[index].kind == TOPO_NUMA || topo->nodes[index].kind == TOPO_PACKAGE
               ? topo_above(topo, parent, TOPO_HOST)
               : parent;
}

rota_status topo_write_nccl(const struct topo *topo, FILE *out) {
    for (int i = 0; i < topo->node_count; i++) {
        const struct topo_node *node = &topo->nodes[i];
        bool placed = topo_above(topo, node->parent, TOPO_NUMA) >= 0 ||
                      topo_above(topo, node->parent, TOPO_PACKAGE) >= 0;
        if (node->kind == TOPO_GPU && (node->busid[0] == '\0' || !placed))
            return error_raise(
                ROTA_ERR_UNSUPPORTED,
                "%.150s: GPU %d has no bus id or no NUMA node, which NCCL's XML needs",
                topo->source, node->id);
    }
    fprintf(out, "<system version=\"%d\">\n", topo->brand == TOPO_XGMI ? 2 : 1);
    rota_status status = topo_walk(topo, out, nccl_parent, open_nccl, close_nccl);
    fputs("</system>\n", out);
    return status != ROTA_OK ? status : topo_printed(out);
}
