/* check_load - R0: what happens before anything is computed, and what is left when all is over. */
#include "check.h"
#include "float_mode.h"
#include "watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static watch_state at_start;

/* ---- load ---- */

static int load(check *c, fak_error *e)
{
    check_begin(c, R0, "load", "%s", "");
    int32_t s = plugin_load(c->all, c->plugin, e);
    if (!s && c->plugin->path && !c->plugin->note.there) {
        check_end(c, CHECK_PASS, "it has no note: it is loaded only where it is named");
        return 0;
    }
    check_answer(c, s, e);
    return s;
}

static int devices(check *c, fak_error *e)
{
    fak_device_info info;
    uint32_t n;
    check_begin(c, R0, "devices", "%s", "");
    int32_t s = (n = device_count(c->plugin, c->set, c->sets, e)) ? FAK_OK : STATUS_REFUSED;
    for (uint32_t i = 0; !s && i < n; i++) {
        s = device_describe(c->plugin, i, c->set, c->sets, &info, e);
        c->row.cases++;
        if (!s && info.id[0] == 0)
            s = status_set(e, STATUS_GATE,
                           "device %" PRIu32 " has no id, by which it could be told from others",
                           i);
    }
    check_answer(c, s, e);
    return s;
}

static int open_device(check *c, fak_error *e)
{
    check_begin(c, R0, "open", "device %" PRIu32, c->index);
    int32_t s = check_open(c, NULL, NULL, e);
    if (!s && c->on_open) c->on_open(c->self, &c->dev);
    check_answer(c, s, e);
    return s;
}

/* An option that nobody has is refused with ARGUMENT and its index. */
static void unknown_option(check *c, fak_error *e)
{
    fak_setting set[33];
    fak_device *opened = NULL;
    const fak_opened *facts = NULL;
    uint32_t n = c->sets < 32 ? c->sets : 32;
    for (uint32_t i = 0; i < n; i++) set[i] = c->set[i];
    set[n] = (fak_setting){"fak-no-such-option", "1"};
    check_begin(c, R0, "unknown option", "%s", "");
    *e = (fak_error){.index = FAK_NO_INDEX};
    device_close(&c->dev);
    int32_t s = c->plugin->api.open(c->index, set, n + 1, &opened, &facts, e);
    if (!s && opened && c->plugin->api.close) c->plugin->api.close(opened);
    if (s == FAK_E_ARGUMENT && e->index == n)
        check_end(c, CHECK_PASS, NULL);
    else if (!s)
        check_end(c, CHECK_FAIL, "it opens its device with an option that it does not have");
    else {
        status_set(e, STATUS_GATE,
                   "it refuses an unknown option with %" PRId32 " and index %" PRIu32
                   "; ARGUMENT (%d) and its index, %" PRIu32 ", say which",
                   s, e->index, FAK_E_ARGUMENT, n);
        check_end(c, CHECK_FAIL, e->message);
    }
}

void check_load(check *c)
{
    fak_error e = {0};
    at_start = watch_look();
    if (load(c, &e) || devices(c, &e) || open_device(c, &e)) {
        c->stopped = "it does not open";
        return;
    }
    unknown_option(c, &e);
    if (check_open(c, NULL, NULL, &e)) c->stopped = "it does not open again";
}

/* ---- manners ---- */

static void state_is(check *c, enum watch_what what, const watch_state *now)
{
    fak_error e;
    check_begin(c, R0, "manners", "%s", watch_name[what]);
    if (!now->there) {
        check_end(c, CHECK_ABSTAIN, "cannot be seen on this system");
    } else if (now->of[what] == at_start.of[what] ||
               (what >= WATCH_CHILDREN && now->of[what] < at_start.of[what])) {
        check_end(c, CHECK_PASS, NULL);
    } else {
        if (what >= WATCH_CHILDREN)
            status_set(&e, STATUS_GATE,
                       "%" PRIu64 " before it was loaded, %" PRIu64 " after it was shut down",
                       at_start.of[what], now->of[what]);
        else
            status_set(&e, STATUS_GATE, "not what it was before it was loaded");
        check_end(c, CHECK_FAIL, e.message);
    }
}

void check_manners(check *c)
{
    device_close(&c->dev);
    if (c->plugin->state == PLUGIN_LOADED && c->plugin->api.shutdown) c->plugin->api.shutdown();
    c->plugin->api.shutdown = NULL; /* plugins_close would do it once more */
    if (c->plugin->state != PLUGIN_LOADED) return;
    watch_state now = watch_look();
    if (now.there) now.of[WATCH_THREADS] = watch_threads(at_start.of[WATCH_THREADS]);
    for (int i = 0; i < WATCH_STATES; i++) state_is(c, (enum watch_what)i, &now);
    check_begin(c, R0, "manners", "%s", "floating-point mode");
    check_end(c, float_mode_ok() ? CHECK_PASS : CHECK_FAIL,
              float_mode_ok() ? NULL : "not what it was before it was loaded");
}
