// minimal_cpp - what plugins/template is, in C++20 with its library: vectors, exceptions kept inside, a
// static object made on first use.  Weights are taken whole, values and ops read through fak_get.
#include "fak_backend.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <span>
#include <string_view>
#include <vector>

struct fak_device {
    std::vector<fak_program *> programs;
};
struct fak_program {
    fak_device *of;
    std::vector<fak_value> value;
    std::vector<fak_op> op;
    std::vector<std::vector<float>> at; // [values] what its ops touch
    uint32_t rows, wanted;              // of the step
};

namespace {

int32_t fail(fak_error *e, int32_t code, std::string_view sentence) noexcept
{
    *e = fak_error{};
    e->code = code;
    e->index = FAK_NO_INDEX;
    std::copy_n(sentence.begin(), std::min(sentence.size(), sizeof e->message - 1), e->message);
    return code;
}

void release(fak_program *p) noexcept
{
    if (p) std::erase(p->of->programs, p);
    delete p;
}

size_t floats_of(const fak_value &v, const fak_limits &l)
{
    uint32_t rows = v.rows == FAK_STEP_ROWS     ? l.rows
                    : v.rows == FAK_WANTED_ROWS ? l.wanted
                                                : v.rows;
    return size_t{rows} * v.cols;
}

int32_t prepare(fak_device *d, const fak_plan *plan, const fak_limits *theirs, fak_program *,
                uint32_t flags, uint32_t *verdict, fak_report *report, fak_program **out,
                fak_error *e) noexcept
try {
    fak_limits l;
    fak_report r{};
    *out = nullptr;
    fak_take(&l, sizeof l, theirs);
    d->programs.push_back(new fak_program{});
    fak_program *p = d->programs.back();
    p->of = d;
    p->value.resize(plan->values.count);
    p->op.resize(plan->ops.count);
    p->at.resize(plan->values.count);
    for (uint32_t i = 0; i < plan->values.count; i++) FAK_GET(&p->value[i], plan, values, i);
    for (uint32_t i = 0; i < plan->ops.count; i++) {
        FAK_GET(&p->op[i], plan, ops, i);
        const fak_op &o = p->op[i];
        if (o.id != FAK_OP_MATMUL) verdict[i] = FAK_HOST;
        if (verdict[i] == FAK_HOST) continue;
        for (uint32_t v : std::array{o.in[0], o.in[1], o.out[0]}) {
            size_t n = floats_of(p->value[v], l);
            (v == o.in[1] ? r.weight_bytes : r.scratch_bytes) += n * 4;
            if (!(flags & FAK_DRY_RUN)) p->at[v].resize(n);
        }
    }
    fak_put(report, &r, sizeof r);
    if (flags & FAK_DRY_RUN)
        release(p);
    else
        *out = p;
    return FAK_OK;
} catch (const std::bad_alloc &) {
    if (!d->programs.empty() && !*out) release(d->programs.back());
    return fail(e, FAK_E_MEMORY, "minimal-cpp: the plan does not fit into host memory");
}

int32_t load(fak_program *p, const uint32_t *id, uint32_t n, const fak_source *theirs,
             fak_error *e) noexcept
{
    fak_source s;
    fak_take(&s, sizeof s, theirs);
    for (uint32_t v : std::span{id, n}) {
        auto &to = p->at[v];
        if (int32_t rc = s.read(s.self, v, FAK_AS_F32, 0, p->value[v].rows, to.data(),
                                to.size() * 4, e))
            return rc;
    }
    return FAK_OK;
}

int32_t begin(fak_program *p, const fak_step *step, fak_error *) noexcept
{
    p->rows = step->rows;
    p->wanted = step->wanted.count;
    return FAK_OK;
}

int32_t matmul(fak_program *p, uint32_t op, fak_error *) noexcept
{
    const fak_op &o = p->op[op];
    const fak_value &x = p->value[o.in[0]], &w = p->value[o.in[1]];
    uint32_t rows = x.rows == FAK_STEP_ROWS ? p->rows : p->wanted;
    float *y = p->at[o.out[0]].data();
    for (size_t t = 0; t < rows; t++)
        for (size_t r = 0; r < w.rows; r++) {
            std::span a{p->at[o.in[0]].data() + t * w.cols, w.cols};
            std::span b{p->at[o.in[1]].data() + r * w.cols, w.cols};
            std::array<float, 8> s{};
            for (size_t i = 0; i < w.cols; i++) s[i & 7] = s[i & 7] + a[i] * b[i];
            *y++ = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
        }
    return FAK_OK;
}

int32_t read_rows(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, void *dst,
                  uint64_t *ticket, fak_error *) noexcept
{
    size_t n = p->value[value].cols;
    std::memcpy(dst, p->at[value].data() + first * n, rows * n * 4);
    *ticket = 0;
    return FAK_OK;
}

int32_t write_rows(fak_program *p, uint32_t value, uint32_t first, uint32_t rows, const void *src,
                   fak_error *) noexcept
{
    size_t n = p->value[value].cols;
    std::memcpy(p->at[value].data() + first * n, src, rows * n * 4);
    return FAK_OK;
}

constexpr fak_op_entry table[] = {{FAK_OP_MATMUL, 1, matmul}};

int32_t device_info(uint32_t, const fak_setting *, uint32_t, fak_device_info *out,
                    fak_error *) noexcept
{
    fak_device_info info{};
    info.kind = FAK_CPU;
    std::strcpy(info.id, "uuid:minimal-cpp-0");
    std::strcpy(info.name, "minimal-cpp");
    fak_put(out, &info, sizeof info);
    return FAK_OK;
}

int32_t open_device(uint32_t, const fak_setting *, uint32_t n, fak_device **out,
                    const fak_opened **facts, fak_error *e) noexcept
{
    static const fak_opened opened = [] {
        fak_opened o{};
        o.struct_size = sizeof o;
        o.numerics = FAK_ACT_F32;
        o.ops = 1;
        o.op_stride = sizeof *table;
        o.op = table;
        return o;
    }();
    if (n) return fail(e, FAK_E_ARGUMENT, "it has no options");
    *out = new (std::nothrow) fak_device;
    *facts = &opened;
    return *out ? FAK_OK : fail(e, FAK_E_MEMORY, "minimal-cpp: no host memory for a device");
}

void close_device(fak_device *d) noexcept
{
    delete d;
}

const fak_backend &backend()
{
    static const fak_backend made = [] {
        fak_backend b{};
        b.struct_size = sizeof b;
        b.numerics = FAK_ACT_F32;
        b.ops = 1;
        b.op_stride = sizeof *table;
        b.name = "minimal-cpp";
        b.version = "1";
        b.vendor = "you";
        b.op = table;
        b.device_info = device_info;
        b.open = open_device;
        b.close = close_device;
        b.prepare = prepare;
        b.release = release;
        b.load = load;
        b.begin = begin;
        b.read = read_rows;
        b.write = write_rows;
        return b;
    }();
    return made;
}

} // namespace

FAK_NOTE("minimal-cpp", FAK_APPROX, "");

int32_t FAK_ENTRY(const fak_host *, const fak_backend **out, fak_error *)
{
    *out = &backend();
    return FAK_OK;
}
