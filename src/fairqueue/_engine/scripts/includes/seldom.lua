-- What most names have nothing of: one question for all of it, where each would be one more for every claim. A script
-- that itself sets one of these says so.
-- SHARES none_is_set
local none_is_set = call('EXISTS', k.dirty, k.pauses, k.rates, k.weights) == 0
