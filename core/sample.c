/* sample - see sample.h. */
#include "sample.h"

#include "ref.h"
#include "rope.h"

#include <stdlib.h>
#include <string.h>

/* ---- random numbers ---- */

void sampler_seed(uint64_t state[4], uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        uint64_t z = seed += UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
        state[i] = z ^ z >> 31;
    }
}

static uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

uint64_t sampler_random(uint64_t s[4])
{
    uint64_t result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

/* ---- open ---- */

int32_t sampler_open(sampler *s, const sampler_options *how, uint32_t vocab, fak_error *e)
{
    *s = (sampler){.how = *how, .vocab = vocab};
    sampler_seed(s->random, how->seed);
    if (how->temperature <= 0 && !how->logprobs) return FAK_OK;
    s->logits = malloc(vocab * sizeof *s->logits);
    s->order = malloc(vocab * sizeof *s->order);
    s->spare = malloc(vocab * sizeof *s->spare);
    return s->logits && s->order && s->spare ? FAK_OK
                                             : status_memory(e, "the logits", vocab * 20ull);
}

void sampler_close(sampler *s)
{
    free(s->logits);
    free(s->order);
    free(s->spare);
    *s = (sampler){0};
}

uint32_t sampler_want(const sampler *s)
{
    return s->logits ? FAK_WANT_LOGITS : FAK_WANT_ARGMAX;
}

void *sampler_answer(sampler *s)
{
    return s->logits ? (void *)s->logits : (void *)&s->best;
}

/* ---- candidates ---- */

/* Smaller for a higher logit. */
static uint32_t sort_key(float logit)
{
    float x = logit + 0.0f; /* -0 becomes 0 */
    uint32_t u;
    memcpy(&u, &x, 4);
    return u >> 31 ? u : u ^ 0x7fffffffu;
}

/* Stable, three digits of 11 bits from the lowest: ids of equal keys stay in their order. */
static void sort(sampler *s)
{
    for (uint32_t i = 0; i < s->vocab; i++)
        s->order[i] = (uint64_t)sort_key(s->logits[i]) << 32 | i;
    for (int shift = 32; shift < 64; shift += 11) {
        uint32_t place[2049] = {0};
        for (uint32_t i = 0; i < s->vocab; i++) place[(s->order[i] >> shift & 2047) + 1]++;
        for (uint32_t d = 1; d < 2048; d++) place[d] += place[d - 1];
        for (uint32_t i = 0; i < s->vocab; i++)
            s->spare[place[s->order[i] >> shift & 2047]++] = s->order[i];
        uint64_t *sorted = s->spare;
        s->spare = s->order;
        s->order = sorted;
    }
}

static float logit_at(const sampler *s, uint32_t i)
{
    return s->logits[(uint32_t)s->order[i]];
}

/* Of candidate i; equal logits weigh the same, infinite ones too. */
static float weight(const sampler *s, uint32_t i, float temperature)
{
    float x = logit_at(s, i), most = logit_at(s, 0);
    return ref_exp(x == most ? 0.0f : (x - most) / temperature);
}

static double total(const sampler *s, uint32_t count, float temperature)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) sum = sum + (double)weight(s, i, temperature);
    return sum;
}

/* How many candidates the filters leave. */
static uint32_t filter(const sampler *s)
{
    uint32_t count = s->vocab;
    if (s->how.top_k && s->how.top_k < count) count = s->how.top_k;
    if (s->how.top_p < 1) {
        double enough = (double)s->how.top_p * total(s, count, 1), sum = weight(s, 0, 1);
        uint32_t i = 1;
        while (i < count && sum < enough) sum = sum + (double)weight(s, i++, 1);
        count = i;
    }
    if (s->how.min_p > 0) {
        uint32_t i = 1;
        while (i < count && weight(s, i, 1) >= s->how.min_p) i++;
        count = i;
    }
    return count;
}

static uint32_t draw(sampler *s)
{
    uint32_t count = filter(s), i = 0;
    float temperature = s->how.temperature;
    double u = (double)(sampler_random(s->random) >> 11) * 0x1p-53;
    double point = u * total(s, count, temperature), sum = weight(s, 0, temperature);
    while (i + 1 < count && sum <= point) sum = sum + (double)weight(s, ++i, temperature);
    return (uint32_t)s->order[i];
}

/* ---- the id ---- */

int32_t sampler_pick(sampler *s, uint32_t *id, fak_error *e)
{
    if (s->logits) s->best = ref_argmax(s->vocab, s->logits);
    if (s->best == 0xffffffffu)
        return status_set(e, STATUS_NAN,
                          "the logits hold a NaN: the model or the backend is broken");
    if (s->logits) sort(s);
    *id = s->how.temperature > 0 ? draw(s) : s->best;
    return FAK_OK;
}

static double logprob(float logit, float most, double ln_total)
{
    return (logit == most ? 0.0 : (double)logit - (double)most) - ln_total;
}

void sampler_logprobs(const sampler *s, uint32_t id, uint32_t top, sampler_logprob *out)
{
    float most = logit_at(s, 0);
    double ln_total = rope_log2(total(s, s->vocab, 1)) * 0.69314718055994530942;
    out[0] = (sampler_logprob){id, logprob(s->logits[id], most, ln_total)};
    for (uint32_t i = 0; i < top; i++)
        out[1 + i] =
            (sampler_logprob){(uint32_t)s->order[i], logprob(logit_at(s, i), most, ln_total)};
}
