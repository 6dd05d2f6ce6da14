/* The contract's exp and tanh (abi/README.md, "Arithmetic"), in its order of operations. */
bool is_nan(float x)
{
    return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u;
}
float exp_of(float x)
{
    if (is_nan(x)) return x;
    if (x < -87.33654) return 0.0;
    precise float top = min(x, 88.3);
    precise float k = top * uintBitsToFloat(0x3fb8aa3bu) + 12582912.0;
    precise float n = k - 12582912.0;
    precise float r = (top - n * uintBitsToFloat(0x3f317200u)) - n * uintBitsToFloat(0x35bfbe8eu);
    precise float q = uintBitsToFloat(0x3ab6da75u);
    q = q * r + uintBitsToFloat(0x3c091defu);
    q = q * r + uintBitsToFloat(0x3d2aaa2fu);
    q = q * r + uintBitsToFloat(0x3e2aaa47u);
    q = q * r + 0.5;
    precise float y = 1.0 + (r + (r * r) * q);
    return uintBitsToFloat(floatBitsToUint(y) + (floatBitsToUint(k) << 23));
}
float tanh_of(float z)
{
    precise float y = 1.0 - 2.0 / (exp_of(2.0 * z) + 1.0);
    return y;
}
float glu_of(float g, float u, uint act)
{
    precise float y;
    if (act == 0u) {
        y = (g / (1.0 + exp_of(-g))) * u;
    } else {
        precise float z = 0.7978845608 * (g + ((0.044715 * g) * g) * g);
        y = ((0.5 * g) * (1.0 + tanh_of(z))) * u;
    }
    return y;
}
float capped(float s, float cap)
{
    precise float y = cap * tanh_of(s / cap);
    return y;
}
