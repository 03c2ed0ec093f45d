/*
 * A disk and a clock that misbehave when a test says so, under the real binary: preloaded before the C library (LD_PRELOAD), through
 * which the gateway, its index and the runtime reach files and the wall clock.
 *
 * FAULTS names a control file, which `tests/support/faults.rs` writes and which is mapped here: eight-byte numbers, read anew with each
 * call. FAULTS_UNDER names the folder whose files are meant. What is not asked for goes straight on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The order is that of `Word` in faults.rs. */
struct control {
    int64_t wall_offset_us; /* added to the wall clock */
    int64_t sync_delay_ms;  /* a sync takes so long; one that waits goes on when this gets shorter */
    int64_t sync_errno;     /* a sync fails with this, 0: it does not */
    int64_t write_errno;    /* a write fails with this, after a half of it went through */
    int64_t read_errno;     /* a read fails with this */
    int64_t only_log;       /* not 0: only segments of the log are meant, not the index */
    int64_t syncs;          /* counted here: syncs that were delayed or failed ... */
    int64_t writes;         /* ... writes that failed ... */
    int64_t reads;          /* ... and reads */
};

static struct control none;
static struct control *control = &none;
static const char *under;
static size_t under_length;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULTS");
    under = getenv("FAULTS_UNDER");
    if (!path || !under) return;
    under_length = strlen(under);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) abort();
    void *mapped = mmap(0, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) abort();
    control = mapped;
    close(file);
}

static int64_t asked(int64_t *word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }
static void count(int64_t *word) { __atomic_fetch_add(word, 1, __ATOMIC_RELAXED); }

/* Whether the file is one of those that are meant. Only asked while a fault is on. */
static int is_meant(int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < (ssize_t)under_length || strncmp(path, under, under_length)) return 0;
    path[length] = 0;
    return !asked(&control->only_log) || strstr(path, ".seg");
}

static int sync_file(int file, long number) {
    int64_t delay = asked(&control->sync_delay_ms), error = asked(&control->sync_errno);
    if ((delay || error) && is_meant(file)) {
        count(&control->syncs);
        struct timespec step = {0, 1000000}, began, now;
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &began);
        do {
            nanosleep(&step, 0);
            syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
        } while ((now.tv_sec - began.tv_sec) * 1000 + (now.tv_nsec - began.tv_nsec) / 1000000 < asked(&control->sync_delay_ms));
        if (error) {
            errno = (int)error;
            return -1;
        }
    }
    return (int)syscall(number, file);
}

int fsync(int file) { return sync_file(file, SYS_fsync); }
int fdatasync(int file) { return sync_file(file, SYS_fdatasync); }

/* How many of the bytes go through: all, a half, or none, and then why. */
static size_t written(int file, size_t bytes, int *error) {
    static __thread int halved;
    *error = (int)asked(&control->write_errno);
    if (!*error || !is_meant(file)) {
        *error = 0;
        return bytes;
    }
    halved = !halved && bytes > 1;
    if (halved) {
        *error = 0;
        return bytes / 2;
    }
    count(&control->writes);
    return 0;
}

#define WRITE_OR_FAIL(file, bytes, call)                                                                                              \
    do {                                                                                                                               \
        int error;                                                                                                                     \
        size_t part = written(file, bytes, &error);                                                                                    \
        if (error) {                                                                                                                   \
            errno = error;                                                                                                             \
            return -1;                                                                                                                 \
        }                                                                                                                              \
        return call;                                                                                                                   \
    } while (0)

ssize_t write(int file, const void *from, size_t bytes) {
    WRITE_OR_FAIL(file, bytes, syscall(SYS_write, file, from, part));
}
ssize_t pwrite64(int file, const void *from, size_t bytes, off64_t at) {
    WRITE_OR_FAIL(file, bytes, syscall(SYS_pwrite64, file, from, part, at));
}
ssize_t pwrite(int file, const void *from, size_t bytes, off_t at) { return pwrite64(file, from, bytes, at); }
ssize_t writev(int file, const struct iovec *from, int pieces) {
    int error;
    if (pieces > 0 && (written(file, 1, &error), error)) {
        errno = error;
        return -1;
    }
    return syscall(SYS_writev, file, from, pieces);
}

static int fails_to_read(int file) {
    int error = (int)asked(&control->read_errno);
    if (!error || !is_meant(file)) return 0;
    count(&control->reads);
    errno = error;
    return 1;
}

ssize_t read(int file, void *to, size_t bytes) {
    return fails_to_read(file) ? -1 : syscall(SYS_read, file, to, bytes);
}
ssize_t pread64(int file, void *to, size_t bytes, off64_t at) {
    return fails_to_read(file) ? -1 : syscall(SYS_pread64, file, to, bytes, at);
}
ssize_t pread(int file, void *to, size_t bytes, off_t at) { return pread64(file, to, bytes, at); }

static int (*real_clock_gettime)(clockid_t, struct timespec *);

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real_clock_gettime) real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real_clock_gettime(clock, now);
    int64_t offset = asked(&control->wall_offset_us);
    if (result == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t nanos = now->tv_nsec + (offset % 1000000) * 1000;
        now->tv_sec += offset / 1000000;
        if (nanos < 0) nanos += 1000000000, now->tv_sec--;
        if (nanos >= 1000000000) nanos -= 1000000000, now->tv_sec++;
        now->tv_nsec = nanos;
    }
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    (void)zone;
    struct timespec exact;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return result;
}

time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}
