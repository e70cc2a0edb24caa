/* What people are told of RDMA on this machine. */
#ifndef VERBS_SURVEY_H
#define VERBS_SURVEY_H

#include "base/settings.h"
#include <rota/doctor.h>

/* One finding per port, with why it is used or not; and of those that are used what would be in
 * the way: limits, small packets, the connection manager, counters of errors. */
void verbs_survey(const struct settings *settings, rota_finding_fn tell, void *arg);

#endif
