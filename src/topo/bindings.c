/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which CPUs serve which NIC, in the syntax that TCPX users know:
 *
 *     bindings = binding *( ";" binding )
 *     binding  = name ":" range *( "," range )
 *     range    = cpu [ "-" cpu ]
 *
 * A mistake names its column and shows the text with the place between >> and <<: these lines are
 * long, are written by hand, and fail on the one host of many that is different.
 */
#include "topo/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parser {
    const char *setting, *text;
    const struct weft_topo_scope *scope;
    const char *at; /* what is read next */
};

static weft_status_t refuse(const struct parser *parser, const char *from, size_t len,
                            const char *fmt, ...) WEFT_PRINTF(4, 5);

static weft_status_t refuse(const struct parser *parser, const char *from, size_t len,
                            const char *fmt, ...)
{
    size_t before = (size_t)(from - parser->text);
    char what[160];
    va_list args;

    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    return weft_fail(WEFT_ERR_INVALID, "%s, column %zu: %s: %.*s>>%.*s<<%s", parser->setting,
                     before + 1, what, (int)before, parser->text, (int)len, from, from + len);
}

static weft_status_t refuse_name(const struct parser *parser, const char *name, size_t len)
{
    char there[80] = "";
    size_t used = 0;

    for (unsigned i = 0; i < parser->scope->iface_count && used < sizeof(there); i++) {
        used += (size_t)snprintf(there + used, sizeof(there) - used, "%s%s", used > 0 ? ", " : "",
                                 parser->scope->ifaces[i].name);
    }
    return refuse(parser, name, len, "there is no such interface here, only %s", there);
}

static bool is_interface(const struct weft_topo_scope *scope, const char *name)
{
    for (unsigned i = 0; i < scope->iface_count; i++) {
        if (strcmp(scope->ifaces[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static weft_status_t read_name(struct parser *parser, const struct weft_topo_bindings *before,
                               char name[IF_NAMESIZE])
{
    const char *from = parser->at;
    size_t len = strcspn(from, ":;,");

    if (len == 0) {
        return refuse(parser, from, 0, "the name of a NIC is missing");
    }
    if (len >= IF_NAMESIZE) {
        return refuse_name(parser, from, len);
    }
    memcpy(name, from, len);
    name[len] = '\0';
    if (!is_interface(parser->scope, name)) {
        return refuse_name(parser, from, len);
    }
    if (weft_topo_bindings_find(before, name)) {
        return refuse(parser, from, len, "this NIC is named twice");
    }
    if (from[len] != ':') {
        return refuse(parser, from, len, "CPUs are missing, as in %s:0-3", name);
    }
    parser->at = from + len + 1;
    return WEFT_OK;
}

/* Digits, at most 6 of them; what follows in *rest_p. */
static bool read_cpu(const char *text, unsigned *cpu_p, const char **rest_p)
{
    unsigned cpu = 0;
    size_t len = strspn(text, "0123456789");

    if (len == 0 || len > 6) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        cpu = cpu * 10 + (unsigned)(text[i] - '0');
    }
    *cpu_p = cpu;
    *rest_p = text + len;
    return true;
}

static weft_status_t add_cpus(const struct parser *parser, size_t len, unsigned first,
                              unsigned last, cpu_set_t *cpus)
{
    char list[64];

    for (unsigned cpu = first; cpu <= last; cpu++) {
        if (cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &parser->scope->online)) {
            weft_topo_cpulist_print(&parser->scope->online, list, sizeof(list));
            return refuse(parser, parser->at, len, "this host has no CPU %u, only %s", cpu, list);
        }
        if (!CPU_ISSET(cpu, &parser->scope->affinity)) {
            weft_topo_cpulist_print(&parser->scope->affinity, list, sizeof(list));
            return refuse(parser, parser->at, len, "CPU %u is outside our affinity, %s", cpu, list);
        }
        CPU_SET(cpu, cpus);
    }
    return WEFT_OK;
}

static weft_status_t read_range(struct parser *parser, cpu_set_t *cpus)
{
    size_t len = strcspn(parser->at, ",;");
    const char *rest;
    unsigned first, last;
    weft_status_t status;

    if (len == 0) {
        return refuse(parser, parser->at, 0, "a CPU or a range such as 8-21 is missing");
    }
    if (!read_cpu(parser->at, &first, &rest)) {
        return refuse(parser, parser->at, len, "expected a CPU or a range such as 8-21");
    }
    last = first;
    if ((*rest == '-' && !read_cpu(rest + 1, &last, &rest)) || rest != parser->at + len) {
        return refuse(parser, parser->at, len, "expected a CPU or a range such as 8-21");
    }
    if (last < first) {
        return refuse(parser, parser->at, len, "the range runs backwards, write %u-%u", last,
                      first);
    }
    status = add_cpus(parser, len, first, last, cpus);
    if (status == WEFT_OK) {
        parser->at += len;
    }
    return status;
}

static weft_status_t read_binding(struct parser *parser, struct weft_topo_bindings *bindings)
{
    struct weft_topo_binding *binding = &bindings->binding[bindings->count];
    weft_status_t status = read_name(parser, bindings, binding->nic);

    while (status == WEFT_OK) {
        status = read_range(parser, &binding->cpus);
        if (status == WEFT_OK && *parser->at != ',') {
            bindings->count++;
            return WEFT_OK;
        }
        parser->at++;
    }
    return status;
}

weft_status_t weft_topo_bindings_parse(const char *setting, const char *text,
                                       const struct weft_topo_scope *scope,
                                       struct weft_topo_bindings **bindings_p)
{
    struct parser parser = {setting, text, scope, text};
    struct weft_topo_bindings *bindings;
    weft_status_t status = WEFT_OK;
    size_t room = 1;

    for (const char *at = text; *at != '\0'; at++) {
        room += *at == ';';
    }
    bindings = calloc(1, sizeof(*bindings) + room * sizeof(bindings->binding[0]));
    if (!bindings) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for %zu bindings", room);
    }
    while (*text != '\0') {
        status = read_binding(&parser, bindings);
        if (status != WEFT_OK || *parser.at == '\0') {
            break;
        }
        parser.at++; /* the semicolon; a binding must follow */
    }
    if (status != WEFT_OK) {
        free(bindings);
        return status;
    }
    *bindings_p = bindings;
    return WEFT_OK;
}

const cpu_set_t *weft_topo_bindings_find(const struct weft_topo_bindings *bindings, const char *nic)
{
    for (unsigned i = 0; i < bindings->count; i++) {
        if (strcmp(bindings->binding[i].nic, nic) == 0) {
            return &bindings->binding[i].cpus;
        }
    }
    return NULL;
}

weft_status_t weft_topo_scope_cpus(struct weft_topo_scope *scope)
{
    cpu_set_t affinity;
    weft_status_t status = weft_topo_affinity(&affinity);

    if (status != WEFT_OK) {
        return status;
    }
    if (!weft_topo_online("", &scope->online)) {
        scope->online = affinity; /* without sysfs we know of no others */
    }
    scope->affinity = affinity;
    return WEFT_OK;
}

/* ---- without bindings ---- */

/* Hardware threads of one core share what a thread needs. */
static bool is_one_core(const char *root, const cpu_set_t *cpus)
{
    char text[256];
    cpu_set_t core, both;
    int first = 0;

    while (first < CPU_SETSIZE - 1 && !CPU_ISSET((size_t)first, cpus)) {
        first++;
    }
    CPU_ZERO(&core);
    if (!weft_topo_sysfs_text(text, sizeof(text),
                              "%s/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", root,
                              first) ||
        !weft_topo_cpulist_read(text, &core)) {
        CPU_SET((size_t)first, &core);
    }
    CPU_AND(&both, cpus, &core);
    return CPU_EQUAL(&both, cpus);
}

bool weft_topo_common_cpus(const char *root, const struct weft_topo_iface *nics, unsigned count,
                           const cpu_set_t *affinity, cpu_set_t *cpus_p)
{
    cpu_set_t cpus;

    for (unsigned i = 0; i < count; i++) {
        if (nics[i].node < 0 || nics[i].node != nics[0].node) {
            return false;
        }
    }
    if (count == 0) {
        return false;
    }
    weft_topo_near_cpus(root, nics[0].node, affinity, &cpus);
    if (CPU_EQUAL(&cpus, affinity) || is_one_core(root, &cpus)) {
        return false;
    }
    *cpus_p = cpus;
    return true;
}
