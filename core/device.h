/* device - an opened backend: its facts and op table, copied and proven to obey the ABI. */
#ifndef DEVICE_H
#define DEVICE_H
#include "float_mode.h"
#include "plugin.h"

typedef struct device {      /* zero-initialise */
    const plugin *from;
    uint32_t index;
    fak_backend api;         /* control functions */
    fak_opened facts;        /* class, caps, numerics, op table: what this device offers */
    fak_device_info info;
    fak_device *handle;
} device;

/* Opens device `index` of a loaded plugin.  STATUS_REFUSED with one sentence: no such device, an
 * unknown option, facts that contradict each other. */
int32_t device_open(device *d, const plugin *p, uint32_t index, const fak_setting *set, uint32_t sets,
                    fak_error *e);
void device_close(device *d); /* a zero device is fine */

/* Devices that can be seen; 0 and a sentence in *e when there are none: STATUS_REFUSED, or FAK_E_PROGRAM
 * where looking for them does what no call may. */
uint32_t device_count(const plugin *p, const fak_setting *set, uint32_t sets, fak_error *e);
int32_t device_describe(const plugin *p, uint32_t index, const fak_setting *set, uint32_t sets,
                        fak_device_info *info, fak_error *e);

/* The table's entry for an op at revision 1 or above; 0, or -1 when there is none. */
int device_find_op(const device *d, uint32_t id, fak_op_entry *entry);
/* With no op table but run: every core op is offered. */
int device_offers(const device *d, const fak_op *op);

/* What a call of the device answered: s, with *e completed where the device was silent; what: the call, for
 * the sentence.  A status that the ABI does not know is FAK_E_PROGRAM. */
int32_t device_answer(const device *d, int32_t s, const char *what, fak_error *e);

/* device_answer for a call in which a backend may load libraries: puts the floating-point mode back to what
 * it was before, too; FAK_E_PROGRAM where all was well but that. */
int32_t device_after(const device *d, int32_t s, const float_mode *before, const char *what,
                     fak_error *e);

const char *device_kind_name(uint32_t kind);  /* "cpu", "discrete", ... */
const char *device_class_name(uint32_t klass); /* "reference", "approx" */
/* Bit i of caps: "FusedAttn", ...; of numerics: "act_f32", ... for programs, "F32 activations", ... for
 * people.  NULL where the ABI has none; i < 32. */
const char *device_cap_name(uint32_t i);
const char *device_numerics_name(uint32_t i);
const char *device_numerics_title(uint32_t i);
#endif
