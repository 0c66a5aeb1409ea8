/* What the link gives to plain sockets: two ends send each other BYTES at once, one stream a direction.
 *
 *   stream listen ADDRESS PORT BYTES[,BYTES..] BUDGET_MS [memory]
 *   stream call   ADDRESS PORT BYTES[,BYTES..] BUDGET_MS [memory]
 *
 * Without `memory` the same mebibyte goes and comes, which stays in the cache: the link's limit. With it, values come from and
 * go to memory of their own, as an allreduce's must: what is left of that limit for who has so many of them. An allreduce between two ranks must move as much: half out and half back, each way. The caller prints mpi.c's lines. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { TRIES = 5, LEAST = 7, MOST = 2000, PIECE = 1 << 20 };

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void die(const char *what) { perror(what); exit(1); }

static int prepared(int fd) {
    int one = 1;
    if (fd < 0) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* What goes and what comes; `stride` is 1 where each byte has a place of its own, else 0. */
static char *going, *coming;
static size_t stride;

/* Sends and receives `bytes`, both at once, whichever is ready. */
static void exchange(int out, int in, size_t bytes) {
    size_t sent = 0, received = 0;
    while (sent < bytes || received < bytes) {
        int moved = 0;
        if (sent < bytes) {
            size_t want = bytes - sent < PIECE ? bytes - sent : PIECE;
            ssize_t n = send(out, going + stride * sent, want, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n > 0) sent += n, moved = 1;
            else if (errno != EAGAIN) die("send");
        }
        if (received < bytes) {
            size_t want = bytes - received < PIECE ? bytes - received : PIECE;
            ssize_t n = recv(in, coming + stride * received, want, MSG_DONTWAIT);
            if (n > 0) received += n, moved = 1;
            else if (n == 0) { fprintf(stderr, "the other end is gone\n"); exit(1); }
            else if (errno != EAGAIN) die("recv");
        }
        if (!moved) {
            struct pollfd fds[2] = { { in, received < bytes ? POLLIN : 0, 0 }, { out, sent < bytes ? POLLOUT : 0, 0 } };
            poll(fds, 2, -1);
        }
    }
}

int main(int argc, char **argv) {
    if (argc < 6) {
        fprintf(stderr, "usage: stream listen|call ADDRESS PORT BYTES[,BYTES..] BUDGET_MS [memory]\n");
        return 2;
    }
    stride = argc > 6 && !strcmp(argv[6], "memory");
    int calls_out = !strcmp(argv[1], "call"), fds[2], one = 1;
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[3])) };
    inet_pton(AF_INET, argv[2], &at.sin_addr);
    if (calls_out) {
        for (int i = 0; i < 2; i++) {
            double until = now_us() + 10e6;
            for (;;) {
                fds[i] = socket(AF_INET, SOCK_STREAM, 0);
                if (!connect(fds[i], (struct sockaddr *)&at, sizeof at)) break;
                close(fds[i]);
                if (now_us() > until) die("connect");
                usleep(20000);
            }
            prepared(fds[i]);
        }
    } else {
        int door = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(door, (struct sockaddr *)&at, sizeof at) || listen(door, 2)) die("listen");
        for (int i = 0; i < 2; i++) fds[i] = prepared(accept(door, NULL, NULL));
    }
    int out = fds[calls_out], in = fds[!calls_out];
    static double times[MOST];
    double budget = atof(argv[5]) * 1e3;
    for (char *size = strtok(argv[4], ","); size; size = strtok(NULL, ",")) {
        size_t bytes = strtoull(size, NULL, 10), room = stride && bytes > PIECE ? bytes : PIECE;
        going = realloc(going, room), coming = realloc(coming, room);
        if (!going || !coming) die("malloc");
        memset(going, 1, room), memset(coming, 1, room);
        for (int i = 0; i < TRIES; i++) {
            double t = now_us();
            exchange(out, in, bytes);
            times[i] = now_us() - t;
        }
        qsort(times, TRIES, sizeof *times, ascending);
        int calls = (int)(budget / (times[TRIES / 2] + 0.01));
        calls = calls < LEAST ? LEAST : calls > MOST ? MOST : calls;
        if (calls_out) { if (send(out, &calls, sizeof calls, 0) != sizeof calls) die("send"); }
        else if (recv(in, &calls, sizeof calls, MSG_WAITALL) != sizeof calls) die("recv");
        for (int i = 0; i < calls / 2; i++) exchange(out, in, bytes);
        double start = now_us(), total;
        for (int i = 0; i < calls; i++) {
            double t = now_us();
            exchange(out, in, bytes);
            times[i] = now_us() - t;
        }
        total = now_us() - start;
        qsort(times, calls, sizeof *times, ascending);
        if (calls_out) {
            printf("%zu %d %.3f %.3f %.3f\n", bytes, calls, times[calls / 2], times[0], total / calls);
            fflush(stdout);
        }
    }
    return 0;
}
