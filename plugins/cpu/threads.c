/* threads - how many cores this process may use; see pool.h. */
#include "pool.h"

#if defined __linux__
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The lowest hyperthread of the core that a processor belongs to. */
static unsigned core_of(unsigned cpu)
{
    char path[96];
    unsigned first = cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
    FILE *in = fopen(path, "re");
    if (in && fscanf(in, "%u", &first) != 1) first = cpu;
    if (in) fclose(in);
    return first;
}

static uint32_t cores(void)
{
    cpu_set_t may, seen;
    uint32_t n = 0;
    CPU_ZERO(&seen);
    if (sched_getaffinity(0, sizeof may, &may)) return 1;
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &may)) continue;
        unsigned core = core_of(cpu);
        if (core >= CPU_SETSIZE || CPU_ISSET(core, &seen)) continue;
        CPU_SET(core, &seen);
        n++;
    }
    return n ? n : 1;
}

/* Whole processors of a file "quota period" (v2), or of two files with one number each (v1). */
static double quota_of(const char *folder, const char *group)
{
    char path[512];
    double quota = 0, period = 0;
    snprintf(path, sizeof path, "%s%s/cpu.max", folder, group);
    FILE *in = fopen(path, "re");
    if (in) {
        int n = fscanf(in, "%lf %lf", &quota, &period);
        fclose(in);
        return n == 2 && period > 0 ? quota / period : 0; /* "max": no number */
    }
    snprintf(path, sizeof path, "%s/cpu%s/cpu.cfs_quota_us", folder, group);
    if ((in = fopen(path, "re"))) {
        if (fscanf(in, "%lf", &quota) != 1) quota = 0;
        fclose(in);
    }
    snprintf(path, sizeof path, "%s/cpu%s/cpu.cfs_period_us", folder, group);
    if ((in = fopen(path, "re"))) {
        if (fscanf(in, "%lf", &period) != 1) period = 0;
        fclose(in);
    }
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* The smallest quota of the process's group and those above it; 0: none. */
static double quota(void)
{
    char line[512], group[256] = "";
    double least = 0;
    FILE *in = fopen("/proc/self/cgroup", "re");
    while (in && fgets(line, sizeof line, in)) {
        const char *controllers = strchr(line, ':');
        const char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path || (controllers[1] != ':' && !strstr(controllers, "cpu"))) continue;
        snprintf(group, sizeof group, "%.*s", (int)strcspn(path + 1, "\n"), path + 1);
    }
    if (in) fclose(in);
    for (;;) {
        double q = quota_of("/sys/fs/cgroup", strcmp(group, "/") ? group : "");
        if (q > 0 && (least <= 0 || q < least)) least = q;
        char *slash = strrchr(group, '/');
        if (!slash) return least;
        *slash = 0;
    }
}

uint32_t pool_default_threads(void)
{
    uint32_t n = cores();
    double q = quota();
    if (q > 0 && q < n) n = q < 1 ? 1 : (uint32_t)q;
    return n;
}
#else
uint32_t pool_default_threads(void)
{
    return 1;
}
#endif
