/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft topo --svg: the host as boxes in boxes. Packages stand side by side and hold their NUMA
 * nodes; a node shows its PUs as squares (filled: ours) and its NICs and GPUs as cards. What is on
 * no node stands below. Heights are worked out before anything is drawn, because a box must be
 * written before what lies on it.
 */
#include "topo_svg.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_W 1000
#define MARGIN 24
#define PAD 12
#define GAP 8
#define HEAD_H 58 /* the title and the line below */
#define BOX_HEAD_H 28
#define PU_STEP 13
#define PU_SIDE 10
#define CARD_W 206 /* at least */
#define CARD_H 78
#define FOOT_LINE_H 19

/* Cards beside each other in a box of inner width w, and how wide they then are. */
static int cards_per_row(int w)
{
    int count = (w + GAP) / (CARD_W + GAP);

    return count > 0 ? count : 1;
}

static int card_width(int w)
{
    int count = cards_per_row(w);

    return (w - (count - 1) * GAP) / count;
}

static int count_devices(const struct topo_view *view, int place)
{
    int count = 0;

    for (unsigned i = 0; i < view->iface_count; i++) {
        count += weft_cli_topo_place(view, view->ifaces[i].node) == place;
    }
    for (unsigned i = 0; i < view->gpu_count; i++) {
        count += weft_cli_topo_place(view, view->gpus[i].node) == place;
    }
    return count;
}

static int rows_of(int count, int per_row)
{
    return (count + per_row - 1) / per_row;
}

/* Of all cards of a place, with the gap above each row. */
static int devices_height(const struct topo_view *view, int place, int w)
{
    return rows_of(count_devices(view, place), cards_per_row(w)) * (CARD_H + GAP);
}

static int pus_height(const struct weft_topo_node *node, int w)
{
    return rows_of(CPU_COUNT(&node->cpus), w / PU_STEP) * PU_STEP;
}

static int node_height(const struct topo_view *view, unsigned index, int w)
{
    int inner = w - 2 * PAD;

    return BOX_HEAD_H + pus_height(&view->machine->nodes[index], inner) +
           devices_height(view, (int)index, inner) + PAD;
}

static int package_height(const struct topo_view *view, int package, int w)
{
    int height = BOX_HEAD_H + PAD;

    for (unsigned i = 0; i < view->machine->node_count; i++) {
        if (view->machine->nodes[i].package == package) {
            height += node_height(view, i, w - 2 * PAD) + GAP;
        }
    }
    return height - GAP;
}

/* ---- drawing ---- */

static void draw_nic(struct weft_cli_pen *pen, int x, int y, int w,
                     const struct weft_topo_iface *iface)
{
    bool is_data = iface->use == WEFT_TOPO_USE_DATA;
    const struct weft_topo_addr *addr = is_data ? &iface->addr : &iface->addrs[0];
    char text[TOPO_WORDS_LEN], mtu[24] = "";

    weft_cli_pen_box(pen, x, y, w, CARD_H, is_data ? "data" : "card");
    weft_cli_pen_text(pen, x + 10, y + 19, w * 55 / 100 - 10, "b", "%s", iface->name);
    weft_cli_pen_text_end(pen, x + w - 10, y + 19, w * 45 / 100, is_data ? "b" : "s", "%s",
                          weft_cli_topo_speed(iface->speed_mbps, text));
    if (iface->mtu > 0) {
        snprintf(mtu, sizeof(mtu), ", mtu %u", iface->mtu);
    }
    weft_cli_pen_text(pen, x + 10, y + 36, w - 20, "s", "%s%s, %s", weft_cli_topo_state(iface), mtu,
                      iface->driver[0] != '\0' ? iface->driver : weft_topo_kind_name(iface->kind));
    weft_cli_pen_text(pen, x + 10, y + 52, w - 20, is_data ? "t" : "s", "%s",
                      is_data || iface->addr_count > 0 ? weft_cli_topo_addr(addr, text)
                                                       : "no address");
    if (is_data) {
        weft_cli_pen_text(pen, x + 10, y + 68, w - 20, "s", "data%s%s",
                          iface->pci[0] != '\0' ? ", PCI " : "", iface->pci);
    } else {
        const char *reason = weft_cli_topo_reason(iface, text);
        const char *half = strchr(reason, ','); /* "…, and there are others": seen beside it */
        weft_cli_pen_text(pen, x + 10, y + 68, w - 20, "i", "%.*s",
                          half != NULL ? (int)(half - reason) : (int)strlen(reason), reason);
    }
}

static void draw_gpu(struct weft_cli_pen *pen, int x, int y, int w, unsigned number,
                     const struct weft_topo_gpu *gpu)
{
    weft_cli_pen_box(pen, x, y, w, CARD_H, "gpu");
    weft_cli_pen_text(pen, x + 10, y + 19, w - 20, "b", "GPU %u", number);
    weft_cli_pen_text(pen, x + 10, y + 36, w - 20, "t", "%s", gpu->name);
    weft_cli_pen_text(pen, x + 10, y + 52, w - 20, "s", "%s",
                      gpu->driver[0] != '\0' ? gpu->driver : "no driver");
    weft_cli_pen_text(pen, x + 10, y + 68, w - 20, "s", "PCI %s", gpu->pci);
}

/* Where the nth card of a box stands. */
static int card_x(int x, int w, int nth)
{
    return x + nth % cards_per_row(w) * (card_width(w) + GAP);
}

static int card_y(int y, int w, int nth)
{
    return y + nth / cards_per_row(w) * (CARD_H + GAP);
}

/* y is the top of the first row. */
static void draw_devices(struct weft_cli_pen *pen, const struct topo_view *view, int place, int x,
                         int y, int w)
{
    int nth = 0;

    for (unsigned i = 0; i < view->iface_count; i++) {
        if (weft_cli_topo_place(view, view->ifaces[i].node) == place) {
            draw_nic(pen, card_x(x, w, nth), card_y(y, w, nth), card_width(w), &view->ifaces[i]);
            nth++;
        }
    }
    for (unsigned i = 0; i < view->gpu_count; i++) {
        if (weft_cli_topo_place(view, view->gpus[i].node) == place) {
            draw_gpu(pen, card_x(x, w, nth), card_y(y, w, nth), card_width(w), i, &view->gpus[i]);
            nth++;
        }
    }
}

static void draw_pus(struct weft_cli_pen *pen, const struct topo_view *view, const cpu_set_t *cpus,
                     int x, int y, int w)
{
    int per_row = w / PU_STEP, nth = 0;

    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, cpus)) {
            continue;
        }
        weft_cli_pen_square(pen, x + nth % per_row * PU_STEP, y + nth / per_row * PU_STEP, PU_SIDE,
                            CPU_ISSET(cpu, &view->affinity) ? "ours" : "pu");
        nth++;
    }
}

static void draw_node(struct weft_cli_pen *pen, const struct topo_view *view, unsigned index, int x,
                      int y, int w)
{
    const struct weft_topo_node *node = &view->machine->nodes[index];
    char memory[TOPO_WORDS_LEN], cores[TOPO_WORDS_LEN];
    int inner = w - 2 * PAD;

    weft_cli_pen_box(pen, x, y, w, node_height(view, index, w), "node");
    weft_cli_pen_text(pen, x + PAD, y + 19, 90, "b", "NUMA %d", node->id);
    weft_cli_pen_text(pen, x + PAD + 66, y + 19, inner - 66, "s", "%s, %s",
                      weft_cli_topo_memory(node->memory_len, memory),
                      weft_cli_topo_cores(node->cores, &node->cpus, cores));
    draw_pus(pen, view, &node->cpus, x + PAD, y + BOX_HEAD_H, inner);
    draw_devices(pen, view, (int)index, x + PAD, y + BOX_HEAD_H + pus_height(node, inner) + GAP / 2,
                 inner);
}

/* package -1: nodes of no package, without a box of their own */
static void draw_nodes(struct weft_cli_pen *pen, const struct topo_view *view, int package, int x,
                       int y, int w)
{
    for (unsigned i = 0; i < view->machine->node_count; i++) {
        if (view->machine->nodes[i].package == package) {
            draw_node(pen, view, i, x, y, w);
            y += node_height(view, i, w) + GAP;
        }
    }
}

/* Two beside each other; returns where they end. */
static int draw_packages(struct weft_cli_pen *pen, const struct topo_view *view, int y)
{
    const struct weft_topo_machine *machine = view->machine;
    int columns = machine->package_count > 1 ? 2 : 1;
    int w = (PAGE_W - 2 * MARGIN - (columns - 1) * PAD) / columns;

    for (unsigned i = 0; i < machine->package_count; i += (unsigned)columns) {
        int tallest = 0;
        for (unsigned j = i; j < i + (unsigned)columns && j < machine->package_count; j++) {
            int height = package_height(view, (int)j, w);
            tallest = height > tallest ? height : tallest;
        }
        for (unsigned j = i; j < i + (unsigned)columns && j < machine->package_count; j++) {
            const struct weft_topo_package *package = &machine->packages[j];
            int x = MARGIN + (int)(j - i) * (w + PAD);
            weft_cli_pen_box(pen, x, y, w, tallest, "package");
            weft_cli_pen_text(pen, x + PAD, y + 19, w - 2 * PAD, "b", "package %d%s%s", package->id,
                              package->model[0] != '\0' ? ": " : "", package->model);
            draw_nodes(pen, view, (int)j, x + PAD, y + BOX_HEAD_H, w - 2 * PAD);
        }
        y += tallest + PAD;
    }
    return y;
}

/* Nodes and devices that belong to no package; returns where they end. */
static int draw_rest(struct weft_cli_pen *pen, const struct topo_view *view, int y)
{
    int w = PAGE_W - 2 * MARGIN;

    for (unsigned i = 0; i < view->machine->node_count; i++) {
        if (view->machine->nodes[i].package < 0) {
            draw_node(pen, view, i, MARGIN, y, w);
            y += node_height(view, i, w) + PAD;
        }
    }
    if (count_devices(view, -1) > 0) {
        weft_cli_pen_text(pen, MARGIN, y + 12, w, "s", "on no NUMA node, or on an unknown one");
        draw_devices(pen, view, -1, MARGIN, y + 20, w);
        y += 20 + devices_height(view, -1, w) + PAD - GAP;
    }
    return y;
}

static int draw_distances(struct weft_cli_pen *pen, const struct topo_view *view, int y)
{
    unsigned count = view->machine->node_count;
    char text[256] = "";
    size_t used = 0;

    for (unsigned i = 0; i < count; i++) {
        for (unsigned j = i + 1; j < count && used < sizeof(text); j++) {
            unsigned distance = view->distances[i * count + j];
            if (distance > 0) {
                used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%d to %d: %u",
                                         used > 0 ? ", " : "", view->machine->nodes[i].id,
                                         view->machine->nodes[j].id, distance);
            }
        }
    }
    if (used == 0) {
        return y;
    }
    weft_cli_pen_text(pen, MARGIN, y + 13, PAGE_W - 2 * MARGIN, "s",
                      "NUMA distances (10 is local): %s", text);
    return y + FOOT_LINE_H;
}

static int draw_foot(struct weft_cli_pen *pen, const struct topo_view *view, int y)
{
    char lines[4][TOPO_WORDS_LEN];
    unsigned count = weft_cli_topo_process(view, lines);

    y = draw_distances(pen, view, y);
    for (unsigned i = 0; i < count; i++) {
        /* first a word, then its sentence: two columns */
        size_t word = strcspn(lines[i], " ");
        weft_cli_pen_text(pen, MARGIN, y + 13, 80, "b", "%.*s", (int)word, lines[i]);
        weft_cli_pen_text(pen, MARGIN + 72, y + 13, 600, "s", "%s",
                          lines[i] + word + strspn(lines[i] + word, " "));
        y += FOOT_LINE_H;
    }
    int legend_y = y - (int)count * FOOT_LINE_H + 4;
    weft_cli_pen_square(pen, PAGE_W - 190, legend_y, PU_SIDE, "ours");
    weft_cli_pen_text(pen, PAGE_W - 172, legend_y + 9, 150, "s", "PU of this process");
    weft_cli_pen_square(pen, PAGE_W - 190, legend_y + FOOT_LINE_H, PU_SIDE, "pu");
    weft_cli_pen_text(pen, PAGE_W - 172, legend_y + FOOT_LINE_H + 9, 150, "s", "PU of others");
    weft_cli_pen_square(pen, PAGE_W - 190, legend_y + 2 * FOOT_LINE_H, PU_SIDE, "data");
    weft_cli_pen_text(pen, PAGE_W - 172, legend_y + 2 * FOOT_LINE_H + 9, 150, "s",
                      "NIC that carries data");
    return y;
}

void weft_cli_topo_svg(const struct topo_view *view, FILE *out)
{
    const struct weft_topo_machine *machine = view->machine;
    struct weft_cli_pen *pen = weft_cli_pen_open();
    char memory[TOPO_WORDS_LEN];
    int y = MARGIN + HEAD_H;

    weft_cli_pen_text(pen, MARGIN, MARGIN + 18, PAGE_W - 2 * MARGIN, "title", "%s", view->host);
    weft_cli_pen_text(pen, MARGIN, MARGIN + 40, PAGE_W - 2 * MARGIN, "s",
                      "%u package%s, %u cores, %d PUs, %s", machine->package_count,
                      machine->package_count == 1 ? "" : "s", machine->cores,
                      CPU_COUNT(&machine->cpus), weft_cli_topo_memory(machine->memory_len, memory));
    y = draw_packages(pen, view, y);
    y = draw_rest(pen, view, y);
    y = draw_foot(pen, view, y + GAP);
    weft_cli_pen_close(pen, PAGE_W, y + MARGIN - GAP, view->host, out);
}
