/* SPDX-License-Identifier: Apache-2.0 */
/* Every version, as NCCL looks at it before the first byte. */
#include "plugin.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <string.h>

/* All members are pointers. `may_be_null`: their numbers as bits. */
static void check_members(const void *net, size_t size, uint32_t may_be_null)
{
    const void *const *members = net;
    assert_string_equal("Weft", members[0]);
    for (size_t i = 1; i < size / sizeof(void *); i++) {
        if (members[i] == NULL && (may_be_null >> i & 1) == 0) {
            fail_msg("member %zu is NULL", i);
        }
    }
}

enum {
    DMABUF = 1 << 8,
    DEVICE_MR = 1 << 17,
    CONSUMED = 1 << 18,
    VIRTUAL = 1 << 19,
    ATTRIBUTES = 1 << 21
};

static void all_members_are_there(void **state)
{
    static const size_t sizes[] = {152, 160, 160, 176, 176};
    (void)state;
    for (int version = PLUGIN_FIRST; version <= PLUGIN_LAST; version++) {
        struct plugin plugin;
        plugin_open(version, &plugin);
        check_members(plugin.net.symbol, sizes[version - PLUGIN_FIRST],
                      DMABUF | DEVICE_MR | CONSUMED | VIRTUAL | ATTRIBUTES);
    }
}

static void nothing_else_is_exported(void **state)
{
    void *library = dlopen(WEFT_NCCL_PATH, RTLD_NOW | RTLD_LOCAL);
    (void)state;
    assert_null(dlsym(library, "ncclNetPlugin_v7"));
    assert_null(dlsym(library, "weft_nccl_init"));
    assert_null(dlsym(library, "sodium_init"));
}

static void a_second_init_is_fine(void **state)
{
    struct plugin first, second;
    (void)state;
    for (int version = PLUGIN_FIRST; version <= PLUGIN_LAST; version++) {
        plugin_open(version, &first);
        plugin_open(version, &second);
        if (version >= 11) {
            assert_int_equal(0, second.net.v11->finalize(second.context));
            assert_int_equal(0, first.net.v11->finalize(first.context));
        }
    }
}

/* NCCL 2.28.3 to 2.29.7: after the last communicator the plugin is unloaded, and its name is forgotten. */
static void it_is_found_again_by_the_default_name(void **state)
{
    struct plugin plugin;
    struct pair pair;
    void *library = dlopen(WEFT_NCCL_PATH, RTLD_NOW | RTLD_LOCAL), *again;
    (void)state;
    plugin_open(11, &plugin);
    pair_open(&plugin, &pair);
    pair_move(&plugin, &pair, 300000);
    pair_close(&plugin, &pair);
    assert_int_equal(0, plugin.net.v11->finalize(plugin.context));
    assert_int_equal(
        0, dlclose(library)); /* ours, and the one of plugin_open: the first test, so that is all */
    assert_int_equal(0, dlclose(library));
    again = dlopen("libnccl-net.so", RTLD_NOW | RTLD_LOCAL);
    if (again == NULL) {
        fail_msg("%s", dlerror());
    }
    assert_ptr_equal(plugin.net.symbol, dlsym(again, "ncclNetPlugin_v11"));
    plugin_open(11, &plugin);
    pair_open(&plugin, &pair);
    pair_move(&plugin, &pair, 300000);
    pair_close(&plugin, &pair);
}

static void devices_have_names_and_speeds(void **state)
{
    struct plugin plugin;
    struct nccl_properties_v8 v8;
    struct nccl_properties_v9 v9;
    struct nccl_properties_v11 v11;
    struct nccl_properties_v12 v12;
    int count = 0;
    (void)state;
    for (int version = PLUGIN_FIRST; version <= PLUGIN_LAST; version++) {
        plugin_open(version, &plugin);
        assert_int_equal(0, plugin.net.v8->devices(&count));
        assert_true(count > 0);
    }
    plugin_open(8, &plugin);
    assert_int_equal(0, plugin.net.v8->get_properties(0, &v8));
    plugin_open(9, &plugin);
    assert_int_equal(0, plugin.net.v9->get_properties(0, &v9));
    plugin_open(11, &plugin);
    assert_int_equal(0, plugin.net.v11->get_properties(0, &v11));
    plugin_open(12, &plugin);
    assert_int_equal(0, plugin.net.v12->get_properties(0, &v12));
    assert_true(v8.name[0] != '\0' && v8.speed_mbps > 0 && v8.latency_us >= 0);
    assert_int_equal(NCCL_POINTER_HOST, v8.pointers);
    assert_true(v8.max_comms > 0 && v8.max_receives >= 1 && v8.device_type == 0);
    assert_true(v9.speed_mbps == v8.speed_mbps && v9.max_receives == v8.max_receives);
    assert_true(v9.virtual_device.count == 1 && v9.virtual_device.devices[0] == 0);
    assert_true(v9.max_p2p_len == INT32_MAX && v9.max_collective_len == INT32_MAX);
    assert_memory_equal(&v9, &v11.base, sizeof(v9));
    assert_int_equal(1, v11.max_multi_request);
    assert_true(v12.max_p2p_len == INT32_MAX && v12.rail == -1 && v12.plane == -1);
}

static void devices_that_are_not_there_are_refused(void **state)
{
    struct plugin plugin;
    struct nccl_properties_v9 properties;
    char handle[NCCL_HANDLE_LEN];
    void *listener = NULL;
    (void)state;
    plugin_open(9, &plugin);
    assert_int_equal(NCCL_INVALID_ARGUMENT, plugin.net.v9->get_properties(99, &properties));
    assert_int_equal(NCCL_INVALID_ARGUMENT, plugin.net.v9->get_properties(-1, &properties));
    assert_int_equal(NCCL_INVALID_ARGUMENT, plugin.net.v9->listen(99, handle, &listener));
}

static void handles_of_others_are_refused(void **state)
{
    struct plugin plugin;
    char handle[NCCL_HANDLE_LEN];
    void *listener = NULL, *comm = NULL;
    (void)state;
    plugin_open(11, &plugin);
    memset(handle, 0, sizeof(handle));
    assert_int_equal(NCCL_INVALID_ARGUMENT, plugin_connect(&plugin, handle, &comm));
    assert_int_equal(0, plugin_listen(&plugin, handle, &listener));
    handle[5] = 100; /* how many addresses there are */
    assert_int_equal(NCCL_INVALID_ARGUMENT, plugin_connect(&plugin, handle, &comm));
    assert_null(comm);
    plugin_close_listen(&plugin, listener);
}

static void memory_is_registered_as_it_comes(void **state)
{
    struct plugin plugin;
    struct pair pair;
    char memory[64];
    void *regions[3];
    (void)state;
    for (int version = PLUGIN_FIRST; version <= PLUGIN_LAST; version++) {
        plugin_open(version, &plugin);
        pair_open(&plugin, &pair);
        assert_int_equal(0, plugin.net.v8->reg_mr(pair.sender, memory, 64, 1, &regions[0]));
        assert_int_equal(0, plugin.net.v8->reg_mr(pair.sender, memory + 8, 1, 1, &regions[1]));
        assert_int_equal(0, plugin.net.v8->reg_mr(pair.receiver, memory, 64, 1, &regions[2]));
        assert_int_not_equal(0, plugin.net.v8->reg_mr(pair.sender, memory, 64, 2, &regions[2]));
        assert_int_equal(0, plugin.net.v8->dereg_mr(pair.sender, regions[0]));
        assert_int_equal(0, plugin.net.v8->dereg_mr(pair.sender, regions[1]));
        assert_int_equal(0, plugin.net.v8->dereg_mr(pair.receiver, regions[2]));
        pair_close(&plugin, &pair);
    }
}

static void flushing_host_memory_takes_no_request(void **state)
{
    struct plugin plugin;
    struct pair pair;
    char memory[64];
    void *data = memory, *region = NULL, *request = memory;
    int len = sizeof(memory);
    (void)state;
    for (int version = PLUGIN_FIRST; version <= PLUGIN_LAST; version++) {
        plugin_open(version, &plugin);
        pair_open(&plugin, &pair);
        request = memory;
        assert_int_equal(0,
                         plugin.net.v8->iflush(pair.receiver, 1, &data, &len, &region, &request));
        assert_null(request);
        pair_close(&plugin, &pair);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_found_again_by_the_default_name),
        cmocka_unit_test(all_members_are_there),
        cmocka_unit_test(nothing_else_is_exported),
        cmocka_unit_test(a_second_init_is_fine),
        cmocka_unit_test(devices_have_names_and_speeds),
        cmocka_unit_test(devices_that_are_not_there_are_refused),
        cmocka_unit_test(handles_of_others_are_refused),
        cmocka_unit_test(memory_is_registered_as_it_comes),
        cmocka_unit_test(flushing_host_memory_takes_no_request),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
