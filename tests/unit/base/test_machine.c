/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include "capture.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static char root[64];

static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/sys/%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(path, 0700);
        *at = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void put_nic(const char *name, const char *type, const char *flags, const char *speed)
{
    char path[128];
    snprintf(path, sizeof(path), "class/net/%s/type", name);
    put(path, type);
    snprintf(path, sizeof(path), "class/net/%s/flags", name);
    put(path, flags);
    snprintf(path, sizeof(path), "class/net/%s/speed", name);
    put(path, speed);
}

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/weft-machine-XXXXXX");
    if (mkdtemp(root) == NULL) {
        return -1;
    }
    put("devices/system/cpu/online", "0-3,8\n");
    put_nic("eth1", "1\n", "0x1003\n", "2500\n");
    put_nic("eth0", "1\n", "0x1003\n", "25000\n");
    put_nic("ib0", "32\n", "0x1003\n", "-1\n");
    put_nic("lo", "772\n", "0x9\n", "0\n");
    put_nic("veth12ab", "1\n", "0x1003\n", "10000\n");
    put_nic("off0", "1\n", "0x1002\n", "1000\n"); /* down, and no hardware behind it */
    return 0;
}

static int remove_entry(const char *entry, const struct stat *facts, int kind, struct FTW *where)
{
    (void)facts;
    (void)kind;
    (void)where;
    return remove(entry);
}

static int drop_root(void **state)
{
    (void)state;
    return nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void expect_difference(const char *line, const char *want)
{
    char what[256] = "";
    assert_true(weft_machine_differs(root, line, what, sizeof(what)));
    assert_string_equal(what, want);
}

static void the_line_names_cpu_count_and_nics(void **state)
{
    char text[WEFT_MACHINE_LEN], what[256];
    (void)state;
    weft_machine_print(root, text);
    const char *rest = strchr(text, ';');
    assert_non_null(rest);
    assert_true(rest > text);
    assert_string_equal(rest, "; 5 CPUs; eth0 25G, eth1 2.5G, ib0");
    assert_false(weft_machine_differs(root, text, what, sizeof(what)));
}

static void every_change_is_named(void **state)
{
    char text[WEFT_MACHINE_LEN];
    (void)state;
    weft_machine_print(root, text);
    put("devices/system/cpu/online", "0-3\n");
    expect_difference(text, "there are 4 CPUs, not 5 CPUs");
    put("devices/system/cpu/online", "0-3,8\n");
    put("class/net/eth1/speed", "1000\n");
    expect_difference(text, "NIC eth1 has 1G, not 2.5G");
    put("class/net/eth1/speed", "2500\n");
    put_nic("eth2", "1\n", "0x1003\n", "100\n");
    expect_difference(text, "NIC eth2 is new");
    put("class/net/eth2/flags", "0x1002\n"); /* nobody uses it */
    char what[256];
    assert_false(weft_machine_differs(root, text, what, sizeof(what)));
    char *nics = strstr(text, "eth0");
    assert_non_null(nics);
    snprintf(nics, 64, "eth0 25G, eth1 2.5G, eth7 1G, ib0");
    expect_difference(text, "there is no NIC eth7");
    snprintf(nics, 64, "../../devices 1G");
    assert_true(weft_machine_differs(root, text, what, sizeof(what)));
    snprintf(nics, 64, "a-name-that-no-interface-can-have 1G");
    expect_difference(text, "there is no NIC a-name-that-no-interface-can-have");
}

static void an_unknown_speed_is_no_difference(void **state)
{
    char text[WEFT_MACHINE_LEN], what[256];
    (void)state;
    weft_machine_print(root, text);
    put("class/net/eth0/speed", "-1\n"); /* the link is down just now */
    put("class/net/ib0/speed", "100000\n");
    assert_false(weft_machine_differs(root, text, what, sizeof(what)));
}

static void a_machine_without_nics_says_so(void **state)
{
    char text[WEFT_MACHINE_LEN], what[256];
    (void)state;
    weft_machine_print("/nowhere", text);
    assert_non_null(strstr(text, "; 0 CPUs; no NICs"));
    assert_false(weft_machine_differs("/nowhere", text, what, sizeof(what)));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_root, drop_root)
    const struct CMUnitTest tests[] = {
        TEST(the_line_names_cpu_count_and_nics),
        TEST(every_change_is_named),
        TEST(an_unknown_speed_is_no_difference),
        TEST(a_machine_without_nics_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
