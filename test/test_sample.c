/* The next id: greedy is the first maximum, a NaN is nobody's maximum, and what is drawn is what the
 * header says, to the bit. */
#include "support.h"

#include "../core/sample.h"

#include <inttypes.h>
#include <math.h>

enum { V_MAX = 3000 };

static void open_well(sampler *s, const sampler_options *how, uint32_t vocab)
{
    fak_error e = {0};
    if (sampler_open(s, how, vocab, &e)) fail_msg("%s", e.message);
}

/* The id for a row of logits. */
static int32_t pick(sampler *s, const float *logits, uint32_t n, uint32_t *id, fak_error *e)
{
    *e = (fak_error){0};
    if (sampler_want(s) == FAK_WANT_LOGITS) {
        memcpy(sampler_answer(s), logits, n * sizeof *logits);
    } else { /* as a device answers */
        uint32_t best = 0;
        for (uint32_t i = 0; i < n; i++) {
            if (logits[i] > logits[best]) best = i;
            if (isnan(logits[i])) best = 0xffffffffu;
            if (isnan(logits[i])) break;
        }
        memcpy(sampler_answer(s), &best, sizeof best);
    }
    return sampler_pick(s, id, e);
}

static uint32_t pick_well(sampler *s, const float *logits, uint32_t n)
{
    uint32_t id = 0xffffffffu;
    fak_error e;
    if (pick(s, logits, n, &id, &e)) fail_msg("%s", e.message);
    assert_in_range(id, 0, n - 1);
    return id;
}

/* Uniform in [-range, range). */
static void random_logits(uint64_t *random, float range, float *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = range * ((float)(int32_t)random_next(random) * 0x1p-31f);
}

/* ---- greedy ---- */

static void test_want(void **state)
{
    static const sampler_options draws = {.temperature = 1, .top_p = 1}, tells = {.logprobs = 1};
    sampler s = {0};
    (void)state;
    assert_int_equal(sampler_want(&s), FAK_WANT_ARGMAX);
    open_well(&s, &(sampler_options){.top_k = 5, .seed = 9}, 10);
    assert_int_equal(sampler_want(&s), FAK_WANT_ARGMAX);
    sampler_close(&s);
    open_well(&s, &draws, 10);
    assert_int_equal(sampler_want(&s), FAK_WANT_LOGITS);
    sampler_close(&s);
    open_well(&s, &tells, 10);
    assert_int_equal(sampler_want(&s), FAK_WANT_LOGITS);
    sampler_close(&s);
}

static void test_first_maximum(void **state)
{
    static const struct {
        float logits[5];
        uint32_t id;
    } row[] = {
        {{1, 2, 3, 4, 5}, 4},
        {{-1, -2, -3, -4, -5}, 0},
        {{0, 7, 7, 7, 0}, 1},
        {{-0.0f, 0, 0, 0, 0}, 0},
        {{-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY}, 0},
        {{1, INFINITY, 2, INFINITY, 3}, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int logprobs = 0; logprobs < 2; logprobs++) { /* from argmax, and from logits */
            sampler s;
            open_well(&s, &(sampler_options){.logprobs = logprobs}, 5);
            assert_int_equal(pick_well(&s, row[i].logits, 5), row[i].id);
            sampler_close(&s);
        }
}

static void test_nan(void **state)
{
    static const sampler_options how[] = {
        {0}, {.logprobs = 1}, {.temperature = 1, .top_p = 1}, {.temperature = 1, .top_k = 1}};
    (void)state;
    for (uint32_t at = 0; at < 5 * 2 * 4; at++) {
        float logits[5] = {1, INFINITY, 3, -INFINITY, 2};
        uint32_t id = 99;
        sampler s;
        fak_error e;
        open_well(&s, &how[at % 4], 5);
        logits[at / 8] = at / 4 % 2 ? -NAN : NAN;
        assert_int_equal(pick(&s, logits, 5, &id, &e), STATUS_NAN);
        assert_int_equal(e.code, STATUS_NAN);
        assert_int_equal(id, 99);
        assert_message(&e, "NaN");
        sampler_close(&s);
    }
}

/* ---- random numbers ---- */

/* The authors' own programs give these. */
static void test_random(void **state)
{
    static const uint64_t seeded[4] = {UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
                                       UINT64_C(9817491932198370423),
                                       UINT64_C(4593380528125082431)};
    static const uint64_t next[6] = {11520,
                                     0,
                                     1509978240,
                                     UINT64_C(1215971899390074240),
                                     UINT64_C(1216172134540287360),
                                     UINT64_C(607988272756665600)};
    uint64_t s[4];
    (void)state;
    sampler_seed(s, 1234567);
    assert_memory_equal(s, seeded, sizeof s);
    memcpy(s, (uint64_t[4]){1, 2, 3, 4}, sizeof s);
    for (int i = 0; i < 6; i++) assert_int_equal(sampler_random(s), next[i]);
}

/* ---- order ---- */

static const float *sorted_logits;

static int before(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    float x = sorted_logits[i], y = sorted_logits[j];
    return x > y ? -1 : x < y ? 1 : i < j ? -1 : 1;
}

/* Higher first, then the lower id; 0 and -0, infinities and tiny numbers among them. */
static void test_order(void **state)
{
    static const float odd[] = {0, -0.0f, INFINITY, -INFINITY, 1e-45f, -1e-45f, 1e38f, -1e38f, 1};
    static float logits[V_MAX];
    static sampler_logprob out[V_MAX + 1];
    uint64_t random = random_begin();
    (void)state;
    for (uint32_t round = 0; round < 60; round++) {
        uint32_t n = 1 + random_below(&random, V_MAX), order[V_MAX];
        float range = round % 3 ? 20 : 1e-3f;
        sampler s;
        random_logits(&random, range, logits, n);
        for (uint32_t i = 0; i < n; i++) {
            if (round % 2) logits[i] = floorf(logits[i]); /* ties */
            if (round % 4 == 0 && random_below(&random, 8) == 0)
                logits[i] = odd[random_below(&random, sizeof odd / sizeof *odd)];
            order[i] = i;
        }
        sorted_logits = logits;
        qsort(order, n, sizeof *order, before);
        open_well(&s, &(sampler_options){.logprobs = 1}, n);
        assert_int_equal(pick_well(&s, logits, n), order[0]);
        sampler_logprobs(&s, order[0], n, out);
        for (uint32_t i = 0; i < n; i++)
            if (out[1 + i].id != order[i])
                fail_msg("place %u of %u has id %u, not %u", i, n, out[1 + i].id, order[i]);
        sampler_close(&s);
    }
}

/* ---- draws ---- */

/* Equal logits: the id is floor(u * n). */
static void test_equal_logits(void **state)
{
    static const float value[] = {0, -3.5f, 88, INFINITY, -INFINITY};
    (void)state;
    for (uint32_t v = 0; v < 5; v++)
        for (uint32_t n = 1; n <= 64; n += 7) {
            float logits[64];
            sampler s;
            uint64_t random[4];
            sampler_seed(random, n);
            for (uint32_t i = 0; i < n; i++) logits[i] = value[v];
            open_well(&s, &(sampler_options){.temperature = 0.7f, .top_p = 1, .seed = n}, n);
            for (int i = 0; i < 50; i++) {
                double u = (double)(sampler_random(random) >> 11) * 0x1p-53;
                assert_int_equal(pick_well(&s, logits, n), (uint32_t)(u * n));
            }
            sampler_close(&s);
        }
}

/* Every way of leaving one candidate takes the first maximum, at any temperature. */
static void test_one_left(void **state)
{
    static const sampler_options how[] = {{.temperature = 1, .top_k = 1, .top_p = 1},
                                          {.temperature = 90, .top_p = 0},
                                          {.temperature = 90, .top_p = 1e-30f},
                                          {.temperature = 90, .top_p = 1, .min_p = 1},
                                          {.temperature = 1e-40f, .top_p = 1},
                                          {.temperature = 1e-6f, .top_p = 1},
                                          {.temperature = 5, .top_k = 1, .top_p = 0, .min_p = 1}};
    static float logits[V_MAX];
    uint64_t random = random_begin();
    (void)state;
    for (uint32_t round = 0; round < 70; round++) {
        uint32_t n = 2 + random_below(&random, V_MAX - 1), best = random_below(&random, n);
        sampler_options o = how[round % 7];
        sampler s;
        o.seed = round;
        random_logits(&random, 10, logits, n);
        logits[best] = 11;
        open_well(&s, &o, n);
        for (int i = 0; i < 5; i++) assert_int_equal(pick_well(&s, logits, n), best);
        sampler_close(&s);
    }
    float ties[4] = {3, 7, 7, 7}; /* k and p leave one of equals, the lowest id */
    for (int i = 0; i < 3; i++) {
        sampler s;
        open_well(&s, &how[i], 4);
        for (int j = 0; j < 50; j++) assert_int_equal(pick_well(&s, ties, 4), 1);
        sampler_close(&s);
    }
}

/* The ids that are ever drawn of probabilities .4 .3 .2 .1, which stand at ids 2 0 3 1. */
static void test_filters(void **state)
{
    static const struct {
        sampler_options how;
        unsigned ids; /* a bit each */
    } row[] = {
        {{.top_p = 1}, 0xf},
        {{.top_p = 1, .top_k = 4}, 0xf},
        {{.top_p = 1, .top_k = 99}, 0xf},
        {{.top_p = 1, .top_k = 3}, 0xd},
        {{.top_p = 1, .top_k = 2}, 0x5},
        {{.top_p = 0.39f}, 0x4},
        {{.top_p = 0.41f}, 0x5},
        {{.top_p = 0.69f}, 0x5},
        {{.top_p = 0.71f}, 0xd},
        {{.top_p = 0.91f}, 0xf},
        {{.top_p = 0.76f, .top_k = 3}, 0x5}, /* of .9: .44 .78 1 */
        {{.top_p = 0.79f, .top_k = 3}, 0xd},
        {{.top_p = 1, .min_p = 0.24f}, 0xf},
        {{.top_p = 1, .min_p = 0.26f}, 0xd},
        {{.top_p = 1, .min_p = 0.51f}, 0x5},
        {{.top_p = 1, .min_p = 0.76f}, 0x4},
        {{.top_p = 0.41f, .min_p = 0.26f}, 0x5},
        {{.top_p = 0.95f, .top_k = 3, .min_p = 0.7f}, 0x5},
    };
    static const float temperature[] = {0.5f, 1, 3}; /* filters do not see it */
    const float logits[4] = {logf(0.3f), logf(0.1f), logf(0.4f), logf(0.2f)};
    (void)state;
    for (size_t i = 0; i < 3 * sizeof row / sizeof *row; i++) {
        sampler_options how = row[i / 3].how;
        unsigned seen = 0;
        sampler s;
        how.temperature = temperature[i % 3];
        how.seed = i;
        open_well(&s, &how, 4);
        for (int j = 0; j < 2000; j++) seen |= 1u << pick_well(&s, logits, 4);
        if (seen != row[i / 3].ids)
            fail_msg("row %zu: ids %x, not %x", i / 3, seen, row[i / 3].ids);
        sampler_close(&s);
    }
}

/* Exactly p is enough for top-p, and exactly u is not enough for a draw. */
static void test_edges(void **state)
{
    static const float even[4] = {5, 5, 5, 5};
    static const float top_p[] = {0.25f, 0.5f, 0.75f, 1};
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        unsigned seen = 0;
        sampler s;
        open_well(&s, &(sampler_options){.temperature = 1, .top_p = top_p[i], .seed = 1}, 4);
        for (int j = 0; j < 200; j++) seen |= 1u << pick_well(&s, even, 4);
        assert_int_equal(seen, (2u << i) - 1);
        s.random[1] = UINT64_C(0xcd) << 56; /* the next number is 2^63: u = 1/2 */
        assert_int_equal(pick_well(&s, even, 4), (i + 1) / 2);
        sampler_close(&s);
    }
}

/* Pearson's statistic of draws at one temperature against probabilities at another, 20 ids. */
static double chi_square(float temperature, double expected_temperature, uint64_t seed)
{
    enum { N = 20, DRAWS = 20000 };
    float logits[N];
    double p[N], sum = 0, chi = 0;
    uint32_t count[N] = {0};
    uint64_t random = seed;
    sampler s;
    random_logits(&random, 1.2f, logits, N);
    for (int i = 0; i < N; i++) sum += p[i] = exp((double)logits[i] / expected_temperature);
    open_well(&s, &(sampler_options){.temperature = temperature, .top_p = 1, .seed = seed}, N);
    for (int i = 0; i < DRAWS; i++) count[pick_well(&s, logits, N)]++;
    sampler_close(&s);
    for (int i = 0; i < N; i++) {
        double want = DRAWS * p[i] / sum;
        assert_true(want > 10);
        chi += (count[i] - want) * (count[i] - want) / want;
    }
    return chi;
}

/* 19 degrees of freedom: below 43.8 in 999 of 1000 runs.  The seeds are fixed, so are the answers. */
static void test_distribution(void **state)
{
    static const float temperature[] = {0.5f, 1, 2};
    (void)state;
    for (int i = 0; i < 6; i++) {
        double chi = chi_square(temperature[i % 3], temperature[i % 3], 100 + (uint64_t)i);
        print_message("chi-square %.1f\n", chi);
        assert_true(chi < 43.8 && chi > 4.9); /* 1 in 1000 is below 5.4: too good */
    }
    assert_true(chi_square(1, 1.1, 100) > 43.8); /* it tells a tenth apart */
}

/* A setting that drops nothing changes nothing; a seed is a text. */
static void test_seeds(void **state)
{
    static const sampler_options how[] = {{.temperature = 1, .top_p = 1, .seed = 3},
                                          {.temperature = 1, .top_p = 1, .seed = 3, .top_k = 500},
                                          {.temperature = 1, .top_p = 1, .seed = 3, .logprobs = 1},
                                          {.temperature = 1, .top_p = 1, .seed = 4}};
    float logits[500];
    uint32_t id[4][100], differ = 0;
    uint64_t random = 1;
    (void)state;
    random_logits(&random, 3, logits, 500);
    for (int h = 0; h < 4; h++) {
        sampler s;
        open_well(&s, &how[h], 500);
        for (int i = 0; i < 100; i++) id[h][i] = pick_well(&s, logits, 500);
        sampler_close(&s);
    }
    assert_memory_equal(id[0], id[1], sizeof id[0]);
    assert_memory_equal(id[0], id[2], sizeof id[0]);
    for (int i = 0; i < 100; i++) differ += id[0][i] != id[3][i];
    assert_true(differ > 50);
}

/* Pinned: every machine and compiler draws these. */
static void test_golden(void **state)
{
    static const uint32_t want[16] = {1669, 2573, 2031, 164,  723, 1407, 2213, 1020,
                                      1900, 1896, 2663, 2739, 823, 2012, 2764, 323};
    static const sampler_options how = {
        .temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.02f, .seed = 42};
    static float logits[V_MAX];
    uint64_t random = 7;
    sampler s;
    (void)state;
    open_well(&s, &how, V_MAX);
    for (int i = 0; i < 16; i++) {
        random_logits(&random, 12, logits, V_MAX);
        for (uint32_t j = 0; j < V_MAX; j++) /* a few stand out */
            logits[j] = logits[j] * logits[j] * logits[j] * 0.01f;
        uint32_t id = pick_well(&s, logits, V_MAX);
        if (id != want[i]) fail_msg("draw %d is %u, not %u", i, id, want[i]);
    }
    sampler_close(&s);
}

/* ---- log-probabilities ---- */

static void test_logprobs(void **state)
{
    static float logits[V_MAX];
    static sampler_logprob out[V_MAX + 1];
    uint64_t random = random_begin();
    (void)state;
    for (uint32_t round = 0; round < 40; round++) {
        uint32_t n = 1 + random_below(&random, V_MAX), id = random_below(&random, n);
        float range = round % 2 ? 30 : 0.5f;
        double sum = 0, most = -INFINITY, all = 0;
        sampler s;
        random_logits(&random, range, logits, n);
        for (uint32_t i = 0; i < n; i++) /* gcc 12 for arm64 dies of fmax here */
            most = (double)logits[i] > most ? (double)logits[i] : most;
        for (uint32_t i = 0; i < n; i++) sum += exp((double)logits[i] - most);
        open_well(&s, &(sampler_options){.temperature = round % 3 ? 2 : 0, .logprobs = 1}, n);
        pick_well(&s, logits, n);
        sampler_logprobs(&s, id, n, out);
        assert_int_equal(out[0].id, id);
        for (uint32_t i = 0; i <= n; i++) {
            double want = (double)logits[out[i].id] - most - log(sum);
            if (!(fabs(out[i].logprob - want) < 1e-6))
                fail_msg("id %u: %.9g, not %.9g", out[i].id, out[i].logprob, want);
            if (i > 1) assert_true(out[i].logprob <= out[i - 1].logprob);
            if (i) all += exp(out[i].logprob);
        }
        assert_true(fabs(all - 1) < 1e-6);
        sampler_close(&s);
    }
}

static void test_logprobs_of_infinities(void **state)
{
    static const float logits[2][4] = {{-INFINITY, 2, -INFINITY, 2}, {INFINITY, 2, INFINITY, 5}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        sampler_logprob out[5];
        sampler s;
        open_well(&s, &(sampler_options){.logprobs = 1}, 4);
        assert_int_equal(pick_well(&s, logits[i], 4), i ? 0 : 1);
        sampler_logprobs(&s, 3, 4, out);
        assert_true(fabs(out[1].logprob - log(0.5)) < 1e-9);
        assert_true(fabs(out[2].logprob - log(0.5)) < 1e-9);
        assert_true(isinf(out[3].logprob) && out[3].logprob < 0);
        assert_true(isinf(out[4].logprob) && out[4].logprob < 0);
        assert_int_equal(isinf(out[0].logprob) != 0, i);
        sampler_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_want),     cmocka_unit_test(test_first_maximum),
        cmocka_unit_test(test_nan),      cmocka_unit_test(test_random),
        cmocka_unit_test(test_order),    cmocka_unit_test(test_equal_logits),
        cmocka_unit_test(test_one_left), cmocka_unit_test(test_filters),
        cmocka_unit_test(test_edges),    cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_seeds),    cmocka_unit_test(test_golden),
        cmocka_unit_test(test_logprobs), cmocka_unit_test(test_logprobs_of_infinities),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
