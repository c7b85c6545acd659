-- Reading lanes without changing them: { messages, instant of the next one or nil }.
local function look_at(name)
  local size = try('ZCARD', k.lane(name))
  if failed(size) or size == 0 then return 0, nil end
  local h = unpack_header(call('HGET', k.head, call('ZRANGE', k.lane(name), 0, 0)[1]))
  return size, h and tonumber(h.enqueued_at)
end

local function older(a, b)
  if a and b then return math.min(a, b) end
  return a or b
end
