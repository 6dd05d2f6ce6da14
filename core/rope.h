/* rope - the cos/sin tables of rotary embedding, made once by the core and given to backends as F32
 * constants.  In double, with own + - * / code: the same bits on every IEEE machine. */
#ifndef ROPE_H
#define ROPE_H
#include <stdint.h>

/* out[positions, rot]: row p holds cos(p*f[i]) then sin(p*f[i]) for i < rot/2, where
 * f[i] = theta^(-2i/rot) (Su et al. 2021).  rot even, theta > 0, positions < 2^20. */
void rope_table(uint32_t positions, uint32_t rot, double theta, float *out);

void rope_sincos(double x, double *sine, double *cosine); /* |x| < 2^20; error below 2^-50 */
double rope_exp2(double x);                               /* |x| < 1000 */
double rope_log2(double x);                               /* x > 0, normal */
#endif
