/*
 * The wall clock of a server under a test's control. Loaded with LD_PRELOAD.
 *
 * FAIRLOCK_CLOCK names a file of 32 bytes, in the machine's byte order, which the test writes:
 *
 *   0  u32  sequence  odd while the test is writing
 *   4  u32  mode      0 true time, 1 true time + value, 2 exactly value, 3 true at `since`, and from
 *                     there on faster by value
 *   8  i64  value     microseconds (mode 2: since the epoch; mode 3: millionths)
 *  16  u64  reads     how often the clock was asked; ours, the test only looks
 *  24  i64  since     mode 3: microseconds since the epoch
 *
 * Only the wall clock is replaced. The monotonic clock stays true, so that timeouts and the event
 * loop of the server go on while its wall clock stands still or jumps.
 *
 * Valkey asks for the wall clock at most once a millisecond and adds up the processor's cycle
 * counter in between, which would run on while we stand still. It does so only when /proc/cpuinfo
 * tells it how that counter runs, so we hide this file; then it asks every time.
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
#include <time.h>
#include <unistd.h>

struct control {
    uint32_t sequence;
    uint32_t mode;
    int64_t value_us;
    uint64_t reads;
    int64_t since_us;
};

/* A writer takes two system calls between odd and even; one that died in between must not hang us. */
#define MAX_SPINS 1000000

static struct control *control;

__attribute__((constructor)) static void open_control(void) {
    const char *path = getenv("FAIRLOCK_CLOCK");
    if (path == NULL) return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) _exit(97);
    void *memory = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED) _exit(98);
    control = memory;
}

/* Through the system call, since the functions of the C library are the ones we replace. */
static int true_time(clockid_t clock, struct timespec *now) {
    return (int)syscall(SYS_clock_gettime, clock, now);
}

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b != 0 && (a % b < 0));
}

/* The time to show. Frozen time is exact to the microsecond, shifted time to the nanosecond. */
static int shown_time(clockid_t clock, struct timespec *now) {
    uint32_t mode = 0;
    int64_t value_us = 0;
    int64_t since_us = 0;
    if (control != NULL) {
        __atomic_add_fetch(&control->reads, 1, __ATOMIC_RELAXED);
        for (int spin = 0; spin < MAX_SPINS; spin++) {
            uint32_t before = __atomic_load_n(&control->sequence, __ATOMIC_ACQUIRE);
            mode = __atomic_load_n(&control->mode, __ATOMIC_RELAXED);
            value_us = __atomic_load_n(&control->value_us, __ATOMIC_RELAXED);
            since_us = __atomic_load_n(&control->since_us, __ATOMIC_RELAXED);
            __atomic_thread_fence(__ATOMIC_ACQUIRE);
            uint32_t after = __atomic_load_n(&control->sequence, __ATOMIC_RELAXED);
            if (before == after && before % 2 == 0) break;
        }
    }
    if (mode == 2) {
        now->tv_sec = (time_t)floor_div(value_us, 1000000);
        now->tv_nsec = (long)(value_us - (int64_t)now->tv_sec * 1000000) * 1000;
        return 0;
    }
    int result = true_time(clock, now);
    if (result == 0 && mode == 3) {
        /* Divided in two steps, so that nothing overflows: microseconds times millionths would. */
        int64_t true_us = (int64_t)now->tv_sec * 1000000 + now->tv_nsec / 1000;
        value_us = (true_us - since_us) / 1000 * value_us / 1000;
        mode = 1;
    }
    if (result == 0 && mode == 1) {
        int64_t seconds = floor_div(value_us, 1000000);
        int64_t nanoseconds = now->tv_nsec + (value_us - seconds * 1000000) * 1000;
        now->tv_sec += (time_t)(seconds + nanoseconds / 1000000000);
        now->tv_nsec = (long)(nanoseconds % 1000000000);
    }
    return result;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) return shown_time(clock, now);
    return true_time(clock, now);
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone; /* obsolete, and no server asks for it */
    struct timespec shown;
    int result = shown_time(CLOCK_REALTIME, &shown);
    now->tv_sec = shown.tv_sec;
    now->tv_usec = shown.tv_nsec / 1000;
    return result;
}

time_t time(time_t *out) {
    struct timespec shown;
    if (shown_time(CLOCK_REALTIME, &shown) != 0) return (time_t)-1;
    if (out != NULL) *out = shown.tv_sec;
    return shown.tv_sec;
}

static FILE *open_unless_hidden(const char *name, const char *path, const char *mode) {
    if (control != NULL && strcmp(path, "/proc/cpuinfo") == 0) {
        errno = ENOENT;
        return NULL;
    }
    union {
        void *address; /* how POSIX lets a function's address come out of dlsym */
        FILE *(*function)(const char *, const char *);
    } next = {dlsym(RTLD_NEXT, name)};
    if (next.address == NULL) _exit(99);
    return next.function(path, mode);
}

FILE *fopen(const char *restrict path, const char *restrict mode) {
    return open_unless_hidden("fopen", path, mode);
}

FILE *fopen64(const char *restrict path, const char *restrict mode) {
    return open_unless_hidden("fopen64", path, mode);
}
