/* driver_calls - the driver's functions, once they are found (driver.c). */
#ifndef DRIVER_CALLS_H
#define DRIVER_CALLS_H
#include "driver.h"

#define MEMBER(name, parameters) cu_result (*name) parameters;
typedef struct driver { DRIVER_CALLS(MEMBER) } driver;
#undef MEMBER
extern driver cu;
#endif
