-- How far one claim goes; what is left is for the next.
-- SHARES bounds
local bounds = {
  parks = 0, -- lanes that were parked
  stale = 0, -- entries and turns that were met and are no longer true
  barred = 0, -- lanes met at groups that must be reconciled first
}
local MAX_PARKS, MAX_STALE, MAX_BARRED = 200, 1000, 200

function bounds.many_stale() return bounds.stale >= MAX_STALE end

function bounds.exhausted() return bounds.parks >= MAX_PARKS or bounds.many_stale() end

-- Who is barred stays in the ring, in front of the others; the caller reconciles before it looks again.
function bounds.must_stop() return bounds.exhausted() or bounds.barred >= MAX_BARRED end
