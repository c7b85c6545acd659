-- Who is next: a policy is four functions that give the tag at which a lane (among its tenant's lanes) or a
-- tenant (among its pool's or a full group's tenants) enters, and the tag of its next turn after one was
-- served. The smallest tag is next. `least` is the smallest tag among the tenant's lanes (a function: fair
-- never asks).
local policies = {}
-- @include policy_fair
-- @include policy_fifo
local policy = policies[settings.scheduler] or policies.fair
