/* machine - what this machine gives: machine read BYTES SECONDS reads a block of that size again
 * and again and prints the bytes a second of the best pass; machine spin keeps one core busy. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* 64 sums, so that no add waits for another; the compiler makes vectors of them. */
static uint64_t pass(const uint64_t *word, size_t count)
{
    uint64_t sum[64] = {0}, all = 0;
    for (size_t i = 0; i + 64 <= count; i += 64)
        for (size_t j = 0; j < 64; j++) sum[j] += word[i + j];
    for (size_t j = 0; j < 64; j++) all += sum[j];
    return all;
}

static int read_block(size_t bytes, double limit)
{
    uint64_t *block = malloc(bytes), sum = 0;
    if (!block) {
        fprintf(stderr, "no memory for a block of %zu bytes\n", bytes);
        return 1;
    }
    memset(block, 1, bytes);
    double best = 0, begin = seconds(), start, end;
    do {
        start = seconds();
        sum += pass(block, bytes / sizeof *block);
        end = seconds();
        if ((double)bytes / (end - start) > best) best = (double)bytes / (end - start);
    } while (end - begin < limit);
    printf("%.0f %llu\n", best, (unsigned long long)sum); /* the sum, so that it is not left out */
    free(block);
    return 0;
}

/* Ends when the process that started it has. */
static int spin(void)
{
    pid_t parent = getppid();
    volatile uint64_t x = 1;
    while (getppid() == parent)
        for (int i = 0; i < 1 << 20; i++) x = x * 6364136223846793005u + 1442695040888963407u;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "read"))
        return read_block(strtoull(argv[2], NULL, 10), atof(argv[3]));
    if (argc == 2 && !strcmp(argv[1], "spin")) return spin();
    fprintf(stderr, "usage: machine read BYTES SECONDS, or machine spin\n");
    return 2;
}
