/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include "capture.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static struct weft_params params; /* static: several KiB */
static char folder[64], path[128];

/* Every test has a folder, no WEFT_ variable but WEFT_PROFILE, and a name of its own for the file: a
 * warning comes once per process. */
static int set_up(void **state)
{
    static unsigned number;
    (void)state;
    for (unsigned i = 0; i < WEFT_PARAM_COUNT; i++) {
        unsetenv(weft_param_info(i)->env);
    }
    snprintf(folder, sizeof(folder), "/tmp/weft-profile-XXXXXX");
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    snprintf(path, sizeof(path), "%s/profile%u", folder, number++);
    setenv("WEFT_PROFILE", path, 1);
    return weft_log_configure("warn") == WEFT_OK ? 0 : -1;
}

static int remove_entry(const char *entry, const struct stat *facts, int kind, struct FTW *where)
{
    (void)facts;
    (void)kind;
    (void)where;
    return remove(entry);
}

static int tear_down(void **state)
{
    (void)state;
    return nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void write_bytes(const char *bytes, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), len);
    close(fd);
}

static void write_profile(const char *text)
{
    write_bytes(text, strlen(text));
}

static void load(char *text, size_t room)
{
    struct capture capture;
    memset(&params, 0xee, sizeof(params));
    capture_begin(&capture);
    weft_status_t status = weft_params_load(&params);
    capture_end(&capture, text, room);
    assert_int_equal(status, WEFT_OK);
}

static void assert_warned(const char *part)
{
    char text[2048];
    load(text, sizeof(text));
    if (strstr(text, part) == NULL || strstr(text, path) == NULL) {
        fail_msg("no \"%s\" in \"%s\"", part, text);
    }
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); /* one line */
    for (unsigned i = 0; i < WEFT_PARAM_COUNT; i++) {
        assert_int_not_equal(params.origin[i], WEFT_ORIGIN_PROFILE); /* all or nothing */
    }
    load(text, sizeof(text));
    assert_string_equal(text, ""); /* said once */
}

static void assert_silent(void)
{
    char text[2048];
    load(text, sizeof(text));
    assert_string_equal(text, "");
}

static void settings_come_from_the_profile_and_say_so(void **state)
{
    (void)state;
    write_profile("# a comment\n\nWEFT_CHUNK = 512K\n  WEFT_WINDOW=64  \r\n\tWEFT_STRATEGY\t=\trr\n"
                  "WEFT_LANES = 2\nWEFT_EAGER = 32K\nWEFT_TCP_CC = reno\nWEFT_SHM_POOL = 8M");
    assert_silent();
    assert_int_equal(params.number[WEFT_PARAM_CHUNK], 512 << 10);
    assert_int_equal(params.number[WEFT_PARAM_WINDOW], 64);
    assert_int_equal(params.number[WEFT_PARAM_LANES], 2);
    assert_int_equal(params.number[WEFT_PARAM_EAGER], 32 << 10);
    assert_int_equal(params.number[WEFT_PARAM_SHM_POOL], 8 << 20);
    assert_string_equal(params.text[WEFT_PARAM_STRATEGY], "rr");
    assert_string_equal(params.text[WEFT_PARAM_TCP_CC], "reno");
    assert_int_equal(params.origin[WEFT_PARAM_CHUNK], WEFT_ORIGIN_PROFILE);
    assert_int_equal(params.origin[WEFT_PARAM_RANK], WEFT_ORIGIN_DEFAULT);
}

static void the_environment_wins_over_the_profile(void **state)
{
    (void)state;
    write_profile("WEFT_CHUNK = 512K\nWEFT_WINDOW = 64\n");
    setenv("WEFT_CHUNK", "1M", 1);
    setenv("WEFT_WINDOW", "", 1); /* empty is unset */
    assert_silent();
    assert_int_equal(params.number[WEFT_PARAM_CHUNK], 1 << 20);
    assert_int_equal(params.origin[WEFT_PARAM_CHUNK], WEFT_ORIGIN_ENV);
    assert_int_equal(params.number[WEFT_PARAM_WINDOW], 64);
    assert_int_equal(params.origin[WEFT_PARAM_WINDOW], WEFT_ORIGIN_PROFILE);
}

static void without_a_name_it_is_found_in_the_config_folder(void **state)
{
    char name[256];
    (void)state;
    unsetenv("WEFT_PROFILE");
    setenv("XDG_CONFIG_HOME", folder, 1);
    assert_silent(); /* most people have none */
    assert_int_equal(params.number[WEFT_PARAM_WINDOW], 16);
    snprintf(name, sizeof(name), "%s/weft", folder);
    assert_int_equal(mkdir(name, 0700), 0);
    snprintf(path, sizeof(path), "%s/weft/profile", folder);
    write_profile("WEFT_WINDOW = 33\n");
    assert_silent();
    assert_int_equal(params.number[WEFT_PARAM_WINDOW], 33);
    setenv("WEFT_PROFILE", "off", 1);
    assert_silent();
    assert_int_equal(params.number[WEFT_PARAM_WINDOW], 16);

    unsetenv("WEFT_PROFILE");
    setenv("XDG_CONFIG_HOME", "relative", 1); /* as the standard says: to be ignored */
    const char *home = getenv("HOME");
    char *saved = home != NULL ? strdup(home) : NULL;
    setenv("HOME", folder, 1);
    snprintf(name, sizeof(name), "%s/.config", folder);
    assert_int_equal(mkdir(name, 0700), 0);
    snprintf(name, sizeof(name), "%s/.config/weft", folder);
    assert_int_equal(mkdir(name, 0700), 0);
    char moved[256];
    snprintf(moved, sizeof(moved), "%s/.config/weft/profile", folder);
    assert_int_equal(rename(path, moved), 0);
    assert_silent();
    assert_int_equal(params.number[WEFT_PARAM_WINDOW], 33);
    unsetenv("HOME");
    assert_silent();
    assert_int_equal(params.number[WEFT_PARAM_WINDOW], 16);
    if (saved != NULL) {
        setenv("HOME", saved, 1);
    }
    free(saved);
}

static void each_mistake_is_one_warning_with_its_line(void **state)
{
    static const struct {
        const char *text, *warning;
    } cases[] = {
        {"WEFT_CHUNK = 1M\nWEFT_CHUNK 512K\n",
         ", line 2, is not used: expected NAME = VALUE, not \"WEFT_CHUNK 512K\""},
        {"= 3\n", ", line 1, is not used: expected NAME = VALUE"},
        {"WEFT_WINDOW = 64\n\nWEFT_CHUNKS = 1M\n",
         ", line 3, is not used: there is no setting WEFT_CHUNKS; did you mean WEFT_CHUNK?"},
        {"WEFT_WINDOW = 64\nWEFT_WINDOW = 1000\n",
         ", line 2, is not used: WEFT_WINDOW=1000: expected a number between 1 and 128"},
        {"WEFT_CHUNK = 17M\n", "WEFT_CHUNK=17M: expected a size between"},
        {"WEFT_CHUNK =\n", "WEFT_CHUNK=: expected a size between"},
        {"WEFT_STRATEGY = best\n", "WEFT_STRATEGY=best: expected one of auto|split|rr"},
        {"WEFT_ROOT = evil:1\n", "WEFT_ROOT cannot come from a profile"},
        {"WEFT_SECRET_FILE = /tmp/x\n", "WEFT_SECRET_FILE cannot come from a profile"},
        {"WEFT_LOG = off\n", "WEFT_LOG cannot come from a profile"},
        {"WEFT_PROFILE = off\n", "WEFT_PROFILE cannot come from a profile"},
        {"\033[2J = 1\n", "there is no setting ?[2J"},
    };
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        snprintf(path, sizeof(path), "%s/mistake%zu", folder, i);
        setenv("WEFT_PROFILE", path, 1);
        write_profile(cases[i].text);
        assert_warned(cases[i].warning);
        assert_string_equal(params.text[WEFT_PARAM_WINDOW], "16");
    }
}

static void bytes_that_are_no_text_are_refused(void **state)
{
    static char big[9000];
    (void)state;
    write_bytes("WEFT_WINDOW = 64\nWEFT_CHUNK\0= 1M\n", 33);
    assert_warned(", line 2, is not used: this is not text");
    snprintf(path, sizeof(path), "%s/big", folder);
    setenv("WEFT_PROFILE", path, 1);
    memset(big, '#', sizeof(big));
    write_bytes(big, sizeof(big));
    assert_warned("longer than 8192 bytes");
}

static void any_bytes_at_all_leave_a_start_alive(void **state)
{
    uint64_t seed = 1;
    (void)state;
    setenv("WEFT_LOG", "off", 1);
    for (unsigned round = 0; round < 1000; round++) {
        static const char letters[] = "WEFT_CHUNKLAS=#; \n\0machine:19M,\t\r\xff";
        char bytes[96];
        for (size_t i = 0; i < sizeof(bytes); i++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
            bytes[i] = letters[(seed >> 33) % (sizeof(letters) - 1)];
        }
        memcpy(bytes, round % 2 ? "# machine:" : "WEFT_CHUNK", 10);
        write_bytes(bytes, sizeof(bytes));
        assert_int_equal(weft_params_load(&params), WEFT_OK);
    }
}

static void a_file_of_others_is_refused(void **state)
{
    (void)state;
    write_profile("WEFT_WINDOW = 64\n");
    assert_int_equal(chmod(path, 0620), 0);
    assert_warned("it has mode 0620, others may write it: chmod go-w");
    assert_int_equal(chmod(path, 0602), 0);
    assert_warned("it has mode 0602");
    assert_int_equal(chmod(path, 0644), 0); /* reading is no harm */
    assert_silent();
    assert_int_equal(params.number[WEFT_PARAM_WINDOW], 64);
    if (geteuid() != 0) {
        return;
    }
    assert_int_equal(chown(path, 12345, 0), 0);
    assert_warned("it belongs to user 12345, not to us (user 0) or root");
}

static void what_is_no_file_is_refused_without_waiting(void **state)
{
    (void)state;
    assert_warned("No such file"); /* it was asked for by name */
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_warned("it is not a regular file");
    setenv("WEFT_PROFILE", "/dev/zero", 1);
    snprintf(path, sizeof(path), "/dev/zero");
    assert_warned("it is not a regular file");
}

static void a_warning_obeys_the_log_setting(void **state)
{
    (void)state;
    write_profile("nonsense\n");
    setenv("WEFT_LOG", "off", 1);
    assert_silent();
    assert_int_equal(unsetenv("WEFT_LOG"), 0);
    assert_int_equal(weft_log_configure("warn"), WEFT_OK);
    assert_warned("nonsense");
}

static void a_refused_profile_leaves_the_error_text_alone(void **state)
{
    char text[2048];
    (void)state;
    assert_int_equal(weft_fail(WEFT_ERR_BUSY, "what the user saw last"), WEFT_ERR_BUSY);
    write_profile("WEFT_WINDOW = 1000\n");
    load(text, sizeof(text));
    assert_string_equal(weft_error_text(), "what the user saw last");
}

static void write_for(const char *machine)
{
    char *text = NULL;
    assert_true(asprintf(&text, "# machine: %s\nWEFT_WINDOW = 64\n", machine) > 0);
    write_profile(text);
    free(text);
}

static void a_profile_of_this_machine_fits(void **state)
{
    char machine[WEFT_MACHINE_LEN];
    (void)state;
    weft_machine_print("", machine);
    write_for(machine);
    assert_silent();
    assert_int_equal(params.number[WEFT_PARAM_WINDOW], 64);
}

static void a_profile_of_another_machine_is_stale_and_says_what_differs(void **state)
{
    char machine[WEFT_MACHINE_LEN], other[WEFT_MACHINE_LEN + 64];
    char *cpus, *nics;
    (void)state;
    write_for("Zilog Z80; 1 CPUs; no NICs");
    assert_warned("is stale and not used: the CPU is ");
    weft_machine_print("", machine);
    cpus = strstr(machine, "; ");
    assert_non_null(cpus);
    nics = strstr(cpus + 2, "; ");
    assert_non_null(nics);
    snprintf(path, sizeof(path), "%s/cpus", folder);
    setenv("WEFT_PROFILE", path, 1);
    snprintf(other, sizeof(other), "%.*s; 12345 CPUs%s", (int)(cpus - machine), machine, nics);
    write_for(other);
    assert_warned(" CPUs, not 12345 CPUs");
    snprintf(path, sizeof(path), "%s/nics", folder);
    setenv("WEFT_PROFILE", path, 1);
    snprintf(other, sizeof(other), "%s, eth99 10G", machine);
    write_for(other);
    assert_warned("there is no NIC eth99");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(settings_come_from_the_profile_and_say_so),
        TEST(the_environment_wins_over_the_profile),
        TEST(without_a_name_it_is_found_in_the_config_folder),
        TEST(each_mistake_is_one_warning_with_its_line),
        TEST(bytes_that_are_no_text_are_refused),
        TEST(any_bytes_at_all_leave_a_start_alive),
        TEST(a_file_of_others_is_refused),
        TEST(what_is_no_file_is_refused_without_waiting),
        TEST(a_warning_obeys_the_log_setting),
        TEST(a_refused_profile_leaves_the_error_text_alone),
        TEST(a_profile_of_this_machine_fits),
        TEST(a_profile_of_another_machine_is_stale_and_says_what_differs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
