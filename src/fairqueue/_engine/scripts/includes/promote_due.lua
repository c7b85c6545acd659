-- Moves what is due from `delayed` to its lane, at most `limit` of them. An index entry whose header says
-- otherwise is dropped: the header is the truth.
local function promote_due(limit)
  local due = call('ZRANGEBYSCORE', k.delayed, '-inf', int(now), 'LIMIT', 0, limit)
  if #due == 0 then return 0 end
  local heads = get_many(k.head, due)
  local done = {}
  for i, mid in ipairs(due) do
    local h = readable_header(mid, heads[i], 'd')
    local early = h and h.state == 'd' and tonumber(h.moved_at) > now -- the due time was damaged
    if early then call('ZADD', k.delayed, h.moved_at, mid) end
    local state = early and 'd' or h and h.state == 'd' and make_ready(mid, h)
    if state == 'r' then moved_between(tenant_of(mid), 'd', 'r') end
    if not heads[i] then drop_remains(mid) end -- an enqueue that was cut before its commit mark
    -- what can be neither read nor buried has been put off, and stays
    local unread = heads[i] and not h
    if unread and tonumber(call('ZSCORE', k.delayed, mid)) > now then state = 'd' end
    if state ~= 'd' then done[#done + 1] = mid end
  end
  many('ZREM', k.delayed, done)
  many('ZREM', k.delayed_names, done)
  return #due
end
