/* elfnote - see elfnote.h.  Offsets are those of the ELF specification. */
#include "elfnote.h"

#include "port.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#if defined __x86_64__
enum { MACHINE = 62 };
#elif defined __aarch64__
enum { MACHINE = 183 };
#elif defined __riscv
enum { MACHINE = 243 };
#elif defined __s390x__
enum { MACHINE = 22 };
#else
enum { MACHINE = 0 }; /* any */
#endif

enum { WIDE = sizeof(void *) == 8, BIG = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ };
enum { PT_NOTE_TYPE = 4, ET_DYN_TYPE = 3 };

static const char *machine_name(uint32_t machine)
{
    switch (machine) {
    case 3:
        return "i386";
    case 22:
        return "s390x";
    case 40:
        return "arm";
    case 62:
        return "x86-64";
    case 183:
        return "aarch64";
    case 243:
        return "riscv";
    default:
        return "another machine";
    }
}

/* A number of 1, 2, 4 or 8 bytes in this machine's order; 0 past the end. */
static uint64_t number(const port_map *map, uint64_t at, unsigned bytes)
{
    uint64_t n = 0;
    if (at > map->bytes || bytes > map->bytes - at) return 0;
    for (unsigned i = 0; i < bytes; i++)
        n |= (uint64_t)map->data[at + i] << 8 * (BIG ? bytes - 1 - i : i);
    return n;
}

static int32_t check_header(const port_map *map, fak_error *e)
{
    if (map->bytes == 0) return status_set(e, STATUS_REFUSED, "it is empty");
    if (map->bytes < (WIDE ? 64 : 52) || memcmp(map->data, "\177ELF", 4))
        return status_set(e, STATUS_REFUSED, "it is not an ELF file");
    uint32_t machine = (uint32_t)number(map, 18, 2);
    if (map->data[4] != (WIDE ? 2 : 1))
        return status_set(e, STATUS_REFUSED, "it is an ELF file of %s bits; this program has %d",
                          map->data[4] == 2 ? "64" : "32", WIDE ? 64 : 32);
    if (map->data[5] != (BIG ? 2 : 1))
        return status_set(e, STATUS_REFUSED, "it is an ELF file of the other byte order");
    if (MACHINE != 0 && machine != MACHINE)
        return status_set(e, STATUS_REFUSED, "it is for %s (ELF machine %" PRIu32 "); this is %s",
                          machine_name(machine), machine, machine_name(MACHINE));
    if (number(map, 16, 2) != ET_DYN_TYPE)
        return status_set(e, STATUS_REFUSED, "it is an ELF file, but not a shared object");
    return FAK_OK;
}

static int32_t take_note(elfnote *note, const port_map *map, uint64_t at, fak_error *e)
{
    const uint64_t desc = at + 16;
    note->there = 1;
    note->major = (uint32_t)number(map, desc, 4);
    note->minor = (uint32_t)number(map, desc + 4, 4);
    note->klass = (uint32_t)number(map, desc + 8, 4);
    memcpy(note->backend, map->data + desc + 16, 32);
    memcpy(note->cpu, map->data + desc + 48, 32);
    if (note->major != FAK_ABI_MAJOR)
        return status_set(e, STATUS_REFUSED,
                          "it is built for ABI %" PRIu32 ".%" PRIu32 "; this program has %u.%u",
                          note->major, note->minor, FAK_ABI_MAJOR, FAK_ABI_MINOR);
    if (note->klass > FAK_REFERENCE)
        return status_set(e, STATUS_REFUSED, "its note claims the unknown class %" PRIu32,
                          note->klass);
    return FAK_OK;
}

/* Looks for the note of owner "fak" among those of one segment. */
static int32_t scan_notes(elfnote *note, const port_map *map, uint64_t at, uint64_t bytes,
                          fak_error *e)
{
    if (at > map->bytes || bytes > map->bytes - at)
        return status_set(e, STATUS_REFUSED, "its notes lie outside the file");
    uint64_t end = at + bytes;
    while (!note->there && end - at >= 12) {
        uint64_t name = number(map, at, 4), desc = number(map, at + 4, 4);
        uint64_t size = 12 + (name + 3) / 4 * 4 + (desc + 3) / 4 * 4;
        if (size > end - at) break; /* padding of another alignment: no note of ours */
        if (name == 4 && !memcmp(map->data + at + 12, "fak", 4) && number(map, at + 8, 4) == 1) {
            if (desc < sizeof(fak_note) - 16)
                return status_set(e, STATUS_REFUSED,
                                  "its note has %" PRIu64 " bytes; %zu are needed", desc,
                                  sizeof(fak_note) - 16);
            return take_note(note, map, at, e);
        }
        at += size;
    }
    return FAK_OK;
}

static int32_t scan(elfnote *note, const port_map *map, fak_error *e)
{
    uint64_t table = number(map, WIDE ? 32 : 28, WIDE ? 8 : 4);
    uint64_t size = number(map, WIDE ? 54 : 42, 2), count = number(map, WIDE ? 56 : 44, 2);
    if (size < (WIDE ? 56 : 32) || table > map->bytes || count * size > map->bytes - table)
        return status_set(e, STATUS_REFUSED,
                          "its program headers lie outside the file: it is cut short");
    int32_t s = FAK_OK;
    for (uint64_t i = 0; !s && i < count; i++) {
        uint64_t at = table + i * size;
        uint64_t offset = number(map, at + (WIDE ? 8 : 4), WIDE ? 8 : 4);
        uint64_t bytes = number(map, at + (WIDE ? 32 : 16), WIDE ? 8 : 4);
        uint32_t type = (uint32_t)number(map, at, 4);
        if (type == 1 && (offset > map->bytes || bytes > map->bytes - offset)) /* PT_LOAD */
            s = status_set(e, STATUS_REFUSED,
                           "a segment ends at byte %" PRIu64 " of %" PRIu64 ": it is cut short",
                           offset + bytes, map->bytes);
        if (!s && type == PT_NOTE_TYPE) s = scan_notes(note, map, offset, bytes, e);
    }
    return s;
}

int32_t elfnote_read(elfnote *note, const char *path, fak_error *e)
{
    port_map map;
    *note = (elfnote){0};
    if (port_map_file(&map, path)) return status_set(e, STATUS_REFUSED, "%s", strerror(errno));
    int32_t s = check_header(&map, e);
    if (!s) s = scan(note, &map, e);
    port_unmap(&map);
    return s;
}
