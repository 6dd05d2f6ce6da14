/* sample - picks the next id.  Greedy is the first maximum, computed on the device.  Otherwise it is
 * drawn from the logits, and the same seed draws the same ids on every machine: the order, exp, log
 * and the random numbers are our own, and every sum has one order.
 *
 *   1. Candidates stand in order: the higher logit first, of equals the lower id (-0 equals 0).
 *   2. w = exp(logit - highest) in float (ref_exp).  Sums of w run in that order, in double.
 *   3. Each filter keeps a beginning, the first one always: top-k the first k; of these top-p the
 *      shortest whose sum is at least p * (the sum of all that are left); of these min-p what stands
 *      before the first w < m.
 *   4. t = exp((logit - highest) / temperature) in float, u the next random number in [0, 1) with
 *      53 bits: the id is the first whose running sum of t is above u * (the sum of t).
 * This is llama.cpp's usual order: filters see the model's own distribution, temperature comes last. */
#ifndef SAMPLE_H
#define SAMPLE_H
#include "status.h"

typedef struct sampler_options {
    float temperature;    /* 0: greedy; the next four say nothing then */
    uint32_t top_k;       /* 0: all */
    float top_p, min_p;   /* 0..1; all with 1 and 0 */
    uint64_t seed;
    int logprobs;         /* sampler_logprobs will be asked */
} sampler_options;

typedef struct sampler {  /* all zero: greedy, and ready */
    sampler_options how;
    uint64_t random[4];
    uint32_t best, vocab; /* best: the answer of a greedy step */
    float *logits;        /* [vocab]; NULL when only the best is asked */
    uint64_t *order;      /* [vocab] sort key << 32 | id, in order after a pick */
    uint64_t *spare;      /* [vocab] */
} sampler;

/* FAK_E_MEMORY with a sentence.  sampler_close in any case. */
int32_t sampler_open(sampler *s, const sampler_options *how, uint32_t vocab, fak_error *e);
void sampler_close(sampler *s);

/* What a step must answer for this sampler, enum fak_want, and where to. */
uint32_t sampler_want(const sampler *s);
void *sampler_answer(sampler *s);
/* The id from that answer.  STATUS_NAN when the row had a NaN. */
int32_t sampler_pick(sampler *s, uint32_t *id, fak_error *e);

typedef struct sampler_logprob { uint32_t id; double logprob; } sampler_logprob;
/* After a pick with how.logprobs: out[0] of the id, out[1..top] of the most likely in order,
 * top <= vocab.  ln of the model's own probability, before filters and temperature: (logit - highest)
 * - ln(sum of w); -infinity for a logit of -infinity. */
void sampler_logprobs(const sampler *s, uint32_t id, uint32_t top, sampler_logprob *out);

/* splitmix64 fills the state; xoshiro256** (Blackman, Vigna 2018) goes on from it. */
void sampler_seed(uint64_t state[4], uint64_t seed);
uint64_t sampler_random(uint64_t state[4]);
#endif
