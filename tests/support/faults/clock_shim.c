/* Preloaded into a broker: its time of day is the machine's plus the nanoseconds in a file of eight
 * bytes, STEPPED_CLOCK_FILE, which a test writes. Monotonic clocks are left alone, as they are where
 * a real clock is set. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NANOS 1000000000LL

static volatile const int64_t *step_ns;
static int (*machine)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void)
{
    machine = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("STEPPED_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        abort();
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED)
        abort();
    step_ns = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!machine)
        begin();
    int failed = machine(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t sum = now->tv_sec * NANOS + now->tv_nsec + *step_ns;
        now->tv_sec = sum / NANOS;
        now->tv_nsec = sum % NANOS;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *seconds)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (seconds)
        *seconds = exact.tv_sec;
    return exact.tv_sec;
}
