/* Shifts the wall clock of one process, for tests: LD_PRELOAD this, and CLOCK_SHIFT names a file with the seconds as a
 * 64-bit integer, or the compiler is told it (-DCLOCK_SHIFT="\"FILE\""). It may change at any time. The monotonic clock stays as
 * it is. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int64_t shift(void) {
#ifdef CLOCK_SHIFT
    const char *path = CLOCK_SHIFT;
#else
    const char *path = getenv("CLOCK_SHIFT");
#endif
    int64_t seconds = 0;
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        if (read(file, &seconds, sizeof seconds) != sizeof seconds) seconds = 0;
        close(file);
    }
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += shift();
    return result;
}
