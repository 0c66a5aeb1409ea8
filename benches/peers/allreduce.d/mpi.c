/* The loop of benches/peers/allreduce for any MPI: allreduce of floats, each call timed.
 *
 *   mpi BYTES[,BYTES..] BUDGET_MS [in|out] [thp]
 *
 * The middle one of five calls tells how long one takes; then as many are timed as fit the budget, at least LEAST of
 * them, after half as many to warm up. Rank 0 prints a line a size: bytes, calls, p50, min, mean in microseconds. p50 and min are those of
 * the slowest rank. `out` uses two buffers; `thp` puts the buffers on huge pages. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { TRIES = 5, LEAST = 7, MOST = 2000 };

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static float *memory(size_t bytes, int thp) {
    size_t huge = 2u << 20, whole = (bytes + 2 * huge) & ~(huge - 1);
    char *at = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) { perror("mmap"); MPI_Abort(MPI_COMM_WORLD, 1); }
    at = (char *)(((size_t)at + huge - 1) & ~(huge - 1));
    if (madvise(at, bytes < huge ? huge : bytes, thp ? MADV_HUGEPAGE : MADV_NOHUGEPAGE)) perror("madvise");
    memset(at, 0, bytes);
    return (float *)at;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    if (argc < 3) { fprintf(stderr, "usage: mpi BYTES[,BYTES..] BUDGET_MS [in|out] [thp]\n"); return 2; }
    int rank, world, in_place = 1, thp = 0;
    double budget = atof(argv[2]) * 1e3;
    for (int i = 3; i < argc; i++) {
        if (!strcmp(argv[i], "out")) in_place = 0;
        if (!strcmp(argv[i], "thp")) thp = 1;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    static double times[MOST];
    for (char *size = strtok(argv[1], ","); size; size = strtok(NULL, ",")) {
        size_t bytes = strtoull(size, NULL, 10);
        int count = (int)(bytes / 4);
        float *data = memory(bytes, thp);
        float *from = in_place ? NULL : memory(bytes, thp);
        const void *send = in_place ? MPI_IN_PLACE : (const void *)from;
        /* one that is checked */
        float *own = in_place ? data : from;
        for (int i = 0; i < count; i++) own[i] = (float)(rank + i % 1000);
        MPI_Allreduce(send, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < count; i++) {
            float right = (float)(world * (world - 1) / 2 + world * (i % 1000));
            if (data[i] != right) {
                fprintf(stderr, "rank %d: value %d is %g, not %g\n", rank, i, data[i], right);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
        memset(own, 0, bytes); /* sums of zeros stay finite in place */
        memset(data, 0, bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; i < TRIES; i++) {
            double t = now_us();
            MPI_Allreduce(send, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            times[i] = now_us() - t;
        }
        qsort(times, TRIES, sizeof *times, ascending);
        int calls = (int)(budget / (times[TRIES / 2] + 0.01));
        calls = calls < LEAST ? LEAST : calls > MOST ? MOST : calls;
        MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
        for (int i = 0; i < calls / 2; i++) MPI_Allreduce(send, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        double start = now_us(), total;
        for (int i = 0; i < calls; i++) {
            double t = now_us();
            MPI_Allreduce(send, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            times[i] = now_us() - t;
        }
        total = now_us() - start;
        qsort(times, calls, sizeof *times, ascending);
        double own_figures[3] = { times[calls / 2], times[0], total / calls }, figures[3];
        MPI_Reduce(own_figures, figures, 3, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0) {
            printf("%zu %d %.3f %.3f %.3f\n", bytes, calls, figures[0], figures[1], figures[2]);
            fflush(stdout);
        }
        munmap(data, bytes);
        if (from) munmap(from, bytes);
    }
    MPI_Finalize();
    return 0;
}
