-- Who is next: the smallest tag. A policy is the four functions of a turn, which somebody takes in a scope: a tenant in
-- its pool ('p'), a lane in its tenant ('t'), a tenant among those who wait at a full group ('g').
--   enters(scope, last, oldest)          the tag at which somebody begins to take turns; `last`: the one it left with
--   waits(scope, member, tag, charge, oldest)  its turn has come: nil, or a later tag for who is not to be served yet
--   served(scope, member, tag, charge, oldest) the tag of its next turn; what it was charged is divided by its weight
--   leaves(scope, member, tag)           it takes no turns any more
-- `oldest` is the place in the order of acceptance of what stands next behind the turn, or a function that gives it,
-- or nil where what was charged is corrected. To others a tag is what was charged so far, unless the policy says
--   by_seq     a tag is the place in the order of acceptance of what stands next: nothing charged moves it
--   in_rounds  in a pool it is a round, and what was charged lies in `deficits`
-- SHARES policy
local policies = {}
-- @include policy_fair
-- @include policy_fifo
-- @include policy_drr
local policy = policies[settings.scheduler] or policies.fair
