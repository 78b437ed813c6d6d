/* SPDX-License-Identifier: Apache-2.0 */
/* weft SUBCOMMAND …: finds the subcommand and gets out of its way. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct subcommand {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
};

static const struct subcommand subcommands[] = {
    {"run", "start N ranks of a program on this host", weft_cli_run},
    {"bench",
     "measure: bootstrap (start-up), p2p (messages, puts), allreduce and other collectives",
     weft_cli_bench},
    {"tune", "find the fastest settings for tcp here, and keep them as a profile", weft_cli_tune},
    {"explain", "say which plan a collective runs, why, and what every rank does",
     weft_cli_explain},
    {"sim", "run collectives of any size in the cost model, without a network", weft_cli_sim},
    {"lab", "try a job on several hosts with several NICs: namespaces of this machine",
     weft_cli_lab},
    {"topo", "draw this host: cores, NUMA nodes, NICs, GPUs, and what data would go over",
     weft_cli_topo},
    {"inspect", "read flight recorders: which rank diverged, at which operation, since when",
     weft_cli_inspect},
    {"params", "list every setting: value, origin, meaning", weft_cli_params},
};

static void print_help(FILE *out)
{
    fprintf(out, "usage: weft SUBCOMMAND [options] [-- program args...]\n\n"
                 "Weft: communication for distributed AI.\n\nsubcommands:\n");
    for (size_t i = 0; i < WEFT_COUNT_OF(subcommands); i++) {
        fprintf(out, "  %-8s %s\n", subcommands[i].name, subcommands[i].summary);
    }
    fprintf(out, "\n`weft SUBCOMMAND --help` has options and examples; `weft --version`.\n"
                 "exit status: 0 fine, 1 ran and failed, 2 bad usage\n\nexamples:\n"
                 "  weft run -n 4 -- ./program\n"
                 "  weft bench bootstrap -n 8 --iters 20\n");
}

static int unknown(const char *word)
{
    const char *names[WEFT_COUNT_OF(subcommands)];

    for (size_t i = 0; i < WEFT_COUNT_OF(subcommands); i++) {
        names[i] = subcommands[i].name;
    }
    const char *near = weft_cli_nearest(word, names, WEFT_COUNT_OF(subcommands));
    if (near != NULL) {
        fprintf(stderr, "weft: there is no subcommand \"%s\"; did you mean \"%s\"?\n", word, near);
    } else {
        fprintf(stderr, "weft: there is no subcommand \"%s\"; see `weft --help`\n", word);
    }
    return WEFT_CLI_USAGE;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return WEFT_CLI_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        print_help(stdout);
        return WEFT_CLI_OK;
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("weft %s\n", weft_version());
        return WEFT_CLI_OK;
    }
    for (size_t i = 0; i < WEFT_COUNT_OF(subcommands); i++) {
        if (strcmp(word, subcommands[i].name) == 0) {
            return subcommands[i].run(argc - 1, argv + 1);
        }
    }
    return unknown(word);
}

/* A standard stream that is closed would become the next thing that is opened, and output would go there: its
 * place is taken by something that refuses it. */
static void hold_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0) {
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        }
    }
}

/* What was printed counts only once it has left: a full disk is seen here, not in printf. */
int main(int argc, char **argv)
{
    hold_standard_streams();
    errno = 0; /* an earlier flush may have failed: then its errno is still here */
    int status = dispatch(argc, argv);

    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "weft: cannot write: %s\n", strerror(errno != 0 ? errno : EIO));
        status = status == WEFT_CLI_OK ? WEFT_CLI_FAILED : status;
    }
    return status;
}
