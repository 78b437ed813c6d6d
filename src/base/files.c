/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

bool weft_file_read(const char *path, char *text, size_t room)
{
    int fd = weft_fd_own(open(path, O_RDONLY | O_CLOEXEC));
    size_t used = 0;
    ssize_t got = -1;

    if (fd < 0) {
        return false;
    }
    while (used < room - 1) {
        got = read(fd, text + used, room - 1 - used);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            break;
        }
        used += (size_t)got;
    }
    weft_fd_close(fd);
    text[used] = '\0';
    return got >= 0;
}

bool weft_file_exceeds_limit(size_t len)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
           len > limit.rlim_cur;
}
