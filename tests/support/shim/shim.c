/* Preloaded into a process (LD_PRELOAD): a clock that differs, and a slow disk.
 *
 * SHIM_CONTROL names a file with two numbers, which another process changes while this one runs: what to add to the
 * real time, and how long each change of a file takes. Only files below SHIM_SLOW_BELOW are slow. The monotonic clock
 * is never changed. A wait until a real time is one until the true time, so that no wait becomes longer by the offset.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#ifdef __x86_64__
#define CONDITION_VERSION "GLIBC_2.3.2" /* the older version of the function has another layout */
#else
#define CONDITION_VERSION "GLIBC_2.17"
#endif
#define FIRST_REAL_SECOND 1000000000 /* below it, a time is one of the monotonic clock */

struct control {
    int64_t offset_ms;
    int64_t delay_ms;
};

typedef int clock_function(clockid_t, struct timespec *);
typedef int wait_function(void *, void *, const struct timespec *);

static const volatile struct control *control;
static const char *slow_below;
static clock_function *true_clock;
static wait_function *true_wait, *true_cnd_wait;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("SHIM_CONTROL");
    slow_below = getenv("SHIM_SLOW_BELOW");
    true_clock = (clock_function *)dlsym(RTLD_NEXT, "clock_gettime");
    true_wait = (wait_function *)dlvsym(RTLD_NEXT, "pthread_cond_timedwait", CONDITION_VERSION);
    true_cnd_wait = (wait_function *)dlsym(RTLD_NEXT, "cnd_timedwait");
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        void *found = mmap(NULL, sizeof(struct control), PROT_READ, MAP_SHARED, fd, 0);
        control = found == MAP_FAILED ? NULL : found;
        close(fd);
    }
}

static int64_t offset_ms(void) { return control ? control->offset_ms : 0; }

static void add_ms(struct timespec *at, int64_t ms)
{
    int64_t ns = at->tv_nsec + (ms % 1000) * 1000000;
    at->tv_sec += ms / 1000;
    if (ns >= 1000000000) { ns -= 1000000000; at->tv_sec++; }
    if (ns < 0) { ns += 1000000000; at->tv_sec--; }
    at->tv_nsec = ns;
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    int result = true_clock ? true_clock(clock, at) : (int)syscall(SYS_clock_gettime, clock, at);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) add_ms(at, offset_ms());
    return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

static int wait_until(wait_function *wait, void *condition, void *mutex, const struct timespec *at)
{
    struct timespec until = *at;
    if (at->tv_sec > FIRST_REAL_SECOND) add_ms(&until, -offset_ms());
    return wait(condition, mutex, &until);
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *at)
{
    return wait_until(true_wait, condition, mutex, at);
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict at)
{
    return wait_until(true_cnd_wait, condition, mutex, at);
}

static void delay(const char *path)
{
    int64_t ms = control ? control->delay_ms : 0;
    if (ms <= 0 || !slow_below || strncmp(path, slow_below, strlen(slow_below)) != 0) return;
    struct timespec pause = {ms / 1000, (ms % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

static void delay_file(int fd)
{
    char link[64], path[4096];
    if (!control || control->delay_ms <= 0) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return;
    path[length] = 0;
    delay(path);
}

static int open_file(const char *path, int flags, mode_t mode)
{
    if (flags & O_CREAT) delay(path);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

#define OPEN(name)                                  \
    int name(const char *path, int flags, ...)      \
    {                                               \
        va_list rest;                               \
        va_start(rest, flags);                      \
        mode_t mode = va_arg(rest, int);            \
        va_end(rest);                               \
        return open_file(path, flags, mode);        \
    }
OPEN(open)
OPEN(open64)

int rename(const char *from, const char *to)
{
    delay(to);
    return (int)syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
}

int fsync(int fd) { delay_file(fd); return (int)syscall(SYS_fsync, fd); }
int fdatasync(int fd) { delay_file(fd); return (int)syscall(SYS_fdatasync, fd); }
ssize_t write(int fd, const void *data, size_t size) { delay_file(fd); return syscall(SYS_write, fd, data, size); }
