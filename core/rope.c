/* rope - see rope.h. */
#include "rope.h"

#include <string.h>

static int64_t bits_of(double x)
{
    int64_t u;
    memcpy(&u, &x, 8);
    return u;
}

static double double_of(int64_t u)
{
    double x;
    memcpy(&x, &u, 8);
    return x;
}

static const double round_magic = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds */

/* x - n*pi/2 with pi/2 in three parts of 33 bits (fdlibm), then fdlibm's kernel polynomials. */
void rope_sincos(double x, double *sine, double *cosine)
{
    double n = x * 0.63661977236758134308 + round_magic;
    int64_t quadrant = bits_of(n) & 3;
    n = n - round_magic;
    double r = ((x - n * 1.57079632673412561417e+00) - n * 6.07710050630396597660e-11) -
               n * 2.02226624879595063154e-21;
    double z = r * r;
    double s = -2.50507602534068634195e-08 + z * 1.58969099521155010221e-10;
    s = 2.75573137070700676789e-06 + z * s;
    s = -1.98412698298579493134e-04 + z * s;
    s = 8.33333333332248946124e-03 + z * s;
    s = -1.66666666666666324348e-01 + z * s;
    s = r + r * z * s;
    double c = 2.08757232129817482790e-09 + z * -1.13596475577881948265e-11;
    c = -2.75573143513906633035e-07 + z * c;
    c = 2.48015872894767294178e-05 + z * c;
    c = -1.38888888888741095749e-03 + z * c;
    c = 4.16666666666666019037e-02 + z * c;
    c = 1.0 - (0.5 * z - z * z * c);
    double turned_s = quadrant & 1 ? c : s, turned_c = quadrant & 1 ? s : c;
    *sine = quadrant & 2 ? -turned_s : turned_s;
    *cosine = (quadrant + 1) & 2 ? -turned_c : turned_c;
}

/* 2^n * e^(f ln2), |f| <= 1/2: the Taylor series to the 14th power */
double rope_exp2(double x)
{
    double shifted = x + round_magic;
    int64_t n = bits_of(shifted) - bits_of(round_magic);
    double f = (x - (shifted - round_magic)) * 0.69314718055994530942;
    double p = 1.0;
    for (int i = 14; i > 0; i--) p = 1.0 + p * f / (double)i;
    return double_of(bits_of(p) + n * ((int64_t)1 << 52));
}

/* exponent + 2 atanh((m-1)/(m+1)) / ln2, m within [1/sqrt2, sqrt2] */
double rope_log2(double x)
{
    int64_t u = bits_of(x);
    int exponent = (int)(u >> 52) - 1023;
    double m = double_of((u & 0xfffffffffffff) | 0x3ff0000000000000);
    if (m > 1.4142135623730951) {
        m = m * 0.5;
        exponent++;
    }
    double t = (m - 1.0) / (m + 1.0), z = t * t, s = 0;
    for (int i = 41; i >= 1; i -= 2) s = s * z + 1.0 / (double)i;
    return (double)exponent + 2.0 * t * s * 1.44269504088896340736;
}

void rope_table(uint32_t positions, uint32_t rot, double theta, float *out)
{
    uint32_t half = rot / 2;
    double base = rope_log2(theta);
    for (uint32_t i = 0; i < half; i++) {
        double frequency = rope_exp2(-2.0 * (double)i / (double)rot * base);
        for (uint32_t p = 0; p < positions; p++) {
            double sine, cosine;
            rope_sincos((double)p * frequency, &sine, &cosine);
            out[(uint64_t)p * rot + i] = (float)cosine;
            out[(uint64_t)p * rot + half + i] = (float)sine;
        }
    }
}
