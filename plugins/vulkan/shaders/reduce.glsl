/* What a workgroup of LOCAL invocations finds together of SUMMED (a float or a vector of rows): by
 * subgroups where the kernel is built so, else through shared memory.  All of the workgroup calls. */
shared SUMMED part[LOCAL];
#ifdef SUBGROUPS
#define REDUCE(name, both, of_subgroup)                                                            \
    SUMMED name(SUMMED v)                                                                          \
    {                                                                                              \
        v = of_subgroup(v);                                                                        \
        if (gl_NumSubgroups == 1u) return v;                                                       \
        barrier(); /* what was found before has been read */                                       \
        if (subgroupElect()) part[gl_SubgroupID] = v;                                              \
        barrier();                                                                                 \
        SUMMED all = part[0];                                                                      \
        for (uint k = 1u; k < gl_NumSubgroups; k++) all = both(all, part[k]);                      \
        return all;                                                                                \
    }
#else
#define REDUCE(name, both, of_subgroup)                                                            \
    SUMMED name(SUMMED v)                                                                          \
    {                                                                                              \
        uint t = gl_LocalInvocationID.x;                                                           \
        barrier(); /* what was found before has been read */                                       \
        part[t] = v;                                                                               \
        barrier();                                                                                 \
        for (uint k = LOCAL / 2u; k > 0u; k >>= 1) {                                               \
            if (t < k) part[t] = both(part[t], part[t + k]);                                       \
            barrier();                                                                             \
        }                                                                                          \
        return part[0];                                                                            \
    }
#endif
#define PLUS(a, b) ((a) + (b))
REDUCE(sum_of, PLUS, subgroupAdd)
REDUCE(max_of, max, subgroupMax)
