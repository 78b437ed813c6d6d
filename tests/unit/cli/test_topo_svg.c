/* SPDX-License-Identifier: Apache-2.0 */
#include "topo_hosts.h"

struct rect {
    char class[16];
    double x, y, w, h;
};

static double attribute(const char *element, const char *name)
{
    const char *at = strstr(element, name);
    char *end;

    assert_non_null(at);
    double value = strtod(at + strlen(name), &end);
    assert_int_equal(*end, '"');
    return value;
}

static unsigned read_rects(const char *text, struct rect *rects, unsigned room)
{
    unsigned count = 0;

    for (const char *at = text; (at = strstr(at, "<rect class")) != NULL; at++) {
        struct rect *rect = &rects[count++];
        assert_true(count <= room);
        size_t len = strcspn(at + strlen("<rect class=\""), "\"");
        assert_true(len < sizeof(rect->class));
        snprintf(rect->class, sizeof(rect->class), "%.*s", (int)len, at + strlen("<rect class=\""));
        rect->x = attribute(at, " x=\"");
        rect->y = attribute(at, " y=\"");
        rect->w = attribute(at, " width=\"");
        rect->h = attribute(at, " height=\"");
    }
    return count;
}

static bool is_inside(const struct rect *in, const struct rect *out)
{
    return in->x >= out->x && in->y >= out->y && in->x + in->w <= out->x + out->w &&
           in->y + in->h <= out->y + out->h;
}

static bool is_apart(const struct rect *a, const struct rect *b)
{
    return a->x + a->w < b->x || b->x + b->w < a->x || a->y + a->h < b->y || b->y + b->h < a->y;
}

/* Boxes nest or stand apart, and all are on the page. */
static void assert_boxes_are_tidy(const char *text)
{
    static struct rect rects[1024];
    unsigned count = read_rects(text, rects, WEFT_COUNT_OF(rects));

    assert_string_equal(rects[0].class, "ground");
    for (unsigned i = 1; i < count; i++) {
        if (!is_inside(&rects[i], &rects[0])) {
            fail_msg("%s %u is off the page", rects[i].class, i);
        }
        for (unsigned j = 1; j < i; j++) {
            if (!is_apart(&rects[i], &rects[j]) && !is_inside(&rects[i], &rects[j])) {
                fail_msg("%s %u overlaps %s %u", rects[i].class, i, rects[j].class, j);
            }
        }
    }
}

static void boxes_of_every_host_are_tidy(void **state)
{
    static const unsigned shapes[][3] = {{1, 1, 1},  {1, 1, 64}, {2, 1, 32},
                                         {1, 4, 16}, {2, 4, 12}, {4, 2, 40}};

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(shapes); i++) {
        forget_view(state);
        assert_int_equal(make_view(state), 0);
        make_large_host();
        machine.memory_len = 0;
        make_machine(shapes[i][0], shapes[i][1], shapes[i][2]);
        char *text = printed(weft_cli_topo_svg);
        assert_boxes_are_tidy(text);
        assert_int_equal(support_count(text, "class=\"gpu\""), 8);
        assert_int_equal(support_count(text, "<rect class=\"card\""), 4);
        assert_int_equal(support_count(text, "<rect class=\"data\""), 8 + 1); /* and the legend */
        free(text);
    }
}

static void nodes_of_no_package_are_drawn_too(void **state)
{
    (void)state;
    make_machine(2, 1, 4);
    nodes[1].package = -1;
    char *text = printed(weft_cli_topo_svg);
    assert_boxes_are_tidy(text);
    assert_int_equal(support_count(text, "class=\"node\""), 2);
    free(text);
}

/* Names come from others; the file must stay XML. */
static void names_cannot_break_the_picture(void **state)
{
    (void)state;
    make_machine(1, 1, 1);
    add_nic("<a&b>\"\033\xff", -1, "10.0.0.7", WEFT_TOPO_USE_DATA);
    strcpy(view.host, "</svg>&\x01");
    char *text = printed(weft_cli_topo_svg);
    assert_has(text, "&lt;a&amp;b&gt;\"?\?<");
    assert_has(text, "&lt;/svg&gt;&amp;?");
    assert_int_equal(support_count(text, "</svg>"), 1);
    for (const char *at = text; *at != '\0'; at++) {
        assert_true(*at == '\n' || (*at >= 0x20 && *at < 0x7f));
    }
    free(text);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_view, forget_view)
    const struct CMUnitTest tests[] = {
        TEST(boxes_of_every_host_are_tidy),
        TEST(nodes_of_no_package_are_drawn_too),
        TEST(names_cannot_break_the_picture),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
