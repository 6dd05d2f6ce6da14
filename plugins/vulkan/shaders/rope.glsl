/* Column i of a head after rotation, of x from word `at`, by the table's row from word `tab`. */
float rotated(uint at, uint tab, uint i)
{
    uint n = p.rot_dim / 2u;
    if (i >= p.rot_dim) return x[at + i];
    uint lo = i < n ? i : i - n;
    float a = x[at + lo], b = x[at + n + lo], c = table[tab + lo], s = table[tab + n + lo];
    precise float v;
    if (i < n)
        v = a * c - b * s;
    else
        v = a * s + b * c;
    return v;
}
