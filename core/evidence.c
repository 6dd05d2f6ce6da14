/* evidence - see evidence.h. */
#include "evidence.h"

#include "dtype.h"
#include "exec.h"
#include "json_out.h"
#include "port.h"

#include <errno.h>
#include <math.h>
#include <sha2.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STRING(x) #x
#define TEXT_OF(x) STRING(x)

/* ---- parts ---- */

/* Strings of files, plugins and command lines may be any bytes. */
static json_t *any(const char *s)
{
    return json_out_text(s ? s : "", s ? strlen(s) : 0);
}

int evidence_set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value); /* frees the value where it cannot be set */
}

json_t *evidence_number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *evidence_ops(const uint64_t *by_id)
{
    json_t *ops = json_object();
    for (uint32_t id = 0; id < EXEC_IDS; id++)
        if (by_id[id]) evidence_set(ops, ops_name(id), json_integer((json_int_t)by_id[id]));
    return ops;
}

int evidence_sha256(const char *path, char hex[65])
{
    enum { PIECE = 1 << 20 };
    uint8_t digest[SHA256_DIGEST_LENGTH];
    port_map map;
    SHA2_CTX sum;
    if (port_map_file(&map, path)) return -1;
    SHA256Init(&sum);
    for (uint64_t at = 0; at < map.bytes; at += PIECE)
        SHA256Update(&sum, map.data + at,
                     (size_t)(map.bytes - at < PIECE ? map.bytes - at : PIECE));
    SHA256Final(digest, &sum);
    port_unmap(&map);
    for (int i = 0; i < SHA256_DIGEST_LENGTH; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return 0;
}

static json_t *hash_of(const char *path)
{
    char hex[65];
    return path && !evidence_sha256(path, hex) ? json_string(hex) : json_null();
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void evidence_word(const char *word, char *out, size_t bytes)
{
    const char *slash = strchr(word, '/'), *equals = strchr(word, '=');
    size_t n = strlen(word), before = 0;
    if (slash && equals && equals < slash) before = (size_t)(equals - word) + 1;
    if (slash && !before && word[0] == '-' && word[1] && word[1] != '-' && slash > word + 1)
        before = 2; /* a letter and its value in one word */
    while (slash && n > before + 1 && word[n - 1] == '/') n--;
    size_t last = n;
    while (slash && last > before && word[last - 1] != '/') last--;
    if (!slash) last = 0;
    snprintf(out, bytes, "%.*s%.*s", (int)before, word, (int)(n - last), word + last);
}

/* The words, those with other signs than usual ones in quotes. */
json_t *evidence_command(int argc, char **argv)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_.,:=+@%/";
    size_t room = 16;
    for (int i = 0; i < argc; i++) room += 4 * strlen(argv[i]) + 4;
    char *text = malloc(room), *word = malloc(room), *at = text;
    json_t *value = NULL;
    if (text && word) {
        at += sprintf(at, "fakrun");
        for (int i = 0; i < argc; i++) {
            evidence_word(argv[i], word, room);
            int quoted = !*word || word[strspn(word, plain)];
            at += sprintf(at, quoted ? " '" : " ");
            for (const char *c = word; *c; c++) at += sprintf(at, *c == '\'' ? "'\\''" : "%c", *c);
            at += sprintf(at, quoted ? "'" : "");
        }
        value = any(text);
    }
    free(text);
    free(word);
    return value;
}

static json_t *date_now(void)
{
    char text[32];
    time_t now = time(NULL);
    struct tm utc = {0};
    gmtime_r(&now, &utc);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return json_string(text);
}

static json_t *machine_here(void)
{
    port_machine m;
    port_machine_look(&m);
    return json_pack("{s:o, s:o, s:I, s:I}", "system", any(m.system), "cpu", any(m.cpu), "cores",
                     (json_int_t)m.cores, "memory", (json_int_t)m.memory);
}

static json_t *describe_plugin(const plugin *p)
{
    char self[4096];
    int known = !p->path && !port_executable(self, sizeof self);
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:b}", "name", p->name, "version",
                     any(p->api.version), "vendor", any(p->api.vendor), "file",
                     p->path ? any(last_part(p->path)) : json_null(), "sha256",
                     hash_of(p->path ? p->path
                             : known ? self
                                     : NULL),
                     "linked_in", !p->path);
}

static json_t *names_of(uint32_t mask, const char *(*name)(uint32_t))
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < 32; i++)
        if (mask >> i & 1 && name(i)) json_array_append_new(list, json_string(name(i)));
    return list;
}

static json_t *describe_device(const device *d)
{
    return json_pack("{s:I, s:o, s:o, s:s, s:o, s:s, s:o, s:o, s:o}", "index", (json_int_t)d->index,
                     "id", any(d->info.id), "name", any(d->info.name), "kind",
                     device_kind_name(d->info.kind), "tier", any(d->info.tier), "class",
                     device_class_name(d->facts.klass), "caps",
                     names_of(d->facts.caps, device_cap_name), "numerics",
                     names_of(d->facts.numerics, device_numerics_name), "upload_dtypes",
                     names_of(d->facts.upload_dtypes, dtype_name));
}

static json_t *list_settings(const arg_list *settings)
{
    json_t *list = json_array();
    char word[512];
    for (uint32_t i = 0; settings && i < settings->count; i++) {
        evidence_word(settings->at[i], word, sizeof word);
        json_array_append_new(list, any(word));
    }
    return list;
}

/* ---- whole ---- */

json_t *evidence_start(const char *kind, int argc, char **argv, const plugin *p,
                       const arg_list *settings)
{
    return json_pack("{s:s, s:i, s:{s:s, s:[i, i]}, s:o, s:o, s:o, s:o, s:o}", "evidence", kind,
                     "schema", 1, "fak", "version", TEXT_OF(FAK_VERSION), "abi", FAK_ABI_MAJOR,
                     FAK_ABI_MINOR, "date", date_now(), "command", evidence_command(argc, argv),
                     "machine", machine_here(), "plugin", describe_plugin(p), "settings",
                     list_settings(settings));
}

json_t *evidence_head(const char *kind, int argc, char **argv, const device *d,
                      const arg_list *settings)
{
    json_t *head = evidence_start(kind, argc, argv, d->from, settings);
    if (head) evidence_set(head, "device", describe_device(d));
    return head;
}

json_t *evidence_model(const char *path)
{
    return json_pack("{s:o, s:o}", "file", any(last_part(path)), "sha256", hash_of(path));
}

static int32_t cannot_write(const char *path, fak_error *e)
{
    return status_set(e, STATUS_BAD_FILE, "the evidence cannot be written to %.120s: %s", path,
                      errno ? strerror(errno) : "it is not clear why");
}

int32_t evidence_write(json_t *evidence, const char *path, fak_error *e)
{
    port_status there;
    int to_stdout = !strcmp(path, "-");
    char *text =
        evidence ? json_dumps(evidence, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(9))
                 : NULL;
    json_decref(evidence);
    if (!text) return status_set(e, FAK_E_MEMORY, "not enough memory for the evidence");
    size_t n = strlen(text);
    text[n] = '\n'; /* the end is written over: it is not asked for below */
    errno = 0;
    int rc;
    if (!to_stdout && (port_stat(path, &there) || there.file || there.folder)) {
        errno = 0;
        rc = port_replace_file(path, text, n + 1);
    } else { /* a pipe, a terminal: there is nothing to replace */
        FILE *out = to_stdout ? stdout : fopen(path, "w");
        rc = !out || fwrite(text, 1, n + 1, out) != n + 1;
        if (out && (to_stdout ? fflush(out) : fclose(out))) rc = 1;
    }
    int32_t s = rc ? cannot_write(to_stdout ? "standard output" : path, e) : FAK_OK;
    free(text);
    return s;
}
