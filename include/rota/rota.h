/* rota: collective communication primitives. Includes the whole public API. */
#ifndef ROTA_ROTA_H
#define ROTA_ROTA_H

#include <rota/algorithm.h>
#include <rota/collectives.h>
#include <rota/comm.h>
#include <rota/doctor.h>
#include <rota/group.h>
#include <rota/info.h>
#include <rota/memory.h>
#include <rota/operator.h>
#include <rota/p2p.h>
#include <rota/plan.h>
#include <rota/recording.h>
#include <rota/request.h>
#include <rota/schedule.h>
#include <rota/selection.h>
#include <rota/status.h>
#include <rota/topology.h>
#include <rota/types.h>

#endif
