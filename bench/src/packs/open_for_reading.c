/* PostgreSQL opens all its files for reading and writing, which a file system that cannot be
 * written refuses even where nothing will be written. Loaded before the C library, this opens
 * them for reading then: so that such file systems can be measured at all. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/types.h>

int open(const char *path, int flags, ...)
{
    int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    int file = next(path, flags, mode);
    if (file < 0 && errno == EROFS && (flags & O_ACCMODE) == O_RDWR
        && !(flags & (O_CREAT | O_TRUNC)))
        file = next(path, (flags & ~O_ACCMODE) | O_RDONLY);
    return file;
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));
