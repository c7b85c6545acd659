-- What was served to whom, minute by minute, for the fairness report: a hash for each of the last 64 minutes, and in it
-- a field for each pool and tenant that a claim served, or kept out by its own limit or a pause, or whose charge was
-- put right. One read and one write a script. It is a record for people: what cannot be written stops nothing.
-- A record is a JSON list: millionths of what was charged, 1 if kept out, since when the longest wait began, the
-- longest wait (ms), millionths of what was charged while the tenant held less than it is guaranteed, and then pairs:
-- a bucket, and how many messages waited so long. Bucket b holds waits below 2^(b/2) ms.
-- SHARES service
local service = {}
local MINUTE, KEPT, BUCKETS = 60000, 64, 90
local CHARGED, KEPT_OUT, SINCE, LONGEST, PROMISED, FIRST = 1, 2, 3, 4, 5, 6
local noted = {}

local function record_of(lane)
  local field = lane.pool .. US .. lane.tenant
  local record = noted[field]
  if not record then
    record = { 0, 0, now, 0, 0 }
    noted[field] = record
  end
  return record
end

local function millionths(charge) return math.floor(charge * 1000000 + 0.5) end

local function bucket_of(wait)
  return wait < 1 and 0 or math.min(BUCKETS, math.floor(2 * math.log(wait) / math.log(2)) + 1)
end

local function count_in_bucket(record, bucket, count)
  for at = FIRST, #record, 2 do
    if record[at] == bucket then
      record[at + 1] = record[at + 1] + count
      return
    end
  end
  record[#record + 1] = bucket
  record[#record + 1] = count
end

-- A message starts that has been ready since the instant its header says; `promised` by its tenant's guarantee.
function service.note(lane, h, charge, promised)
  local record, charged = record_of(lane), millionths(charge)
  local wait = math.max(0, now - tonumber(h.moved_at))
  record[CHARGED] = record[CHARGED] + charged
  if promised then record[PROMISED] = record[PROMISED] + charged end
  record[SINCE], record[LONGEST] = math.min(record[SINCE], now - wait), math.max(record[LONGEST], wait)
  count_in_bucket(record, bucket_of(wait), 1)
end

-- It was charged so much more, or less, than the claim noted.
function service.correct(lane, by)
  local record = record_of(lane)
  record[CHARGED] = record[CHARGED] + millionths(by)
end

-- Its tenant has work, and competes with nobody for now.
function service.keeps_out(lane) record_of(lane)[KEPT_OUT] = 1 end

-- What was noted in this minute before is added; nothing of what was damaged.
local function add(text, record)
  local ok, stored = pcall(cjson.decode, text or '')
  if not ok or type(stored) ~= 'table' or #stored < PROMISED then return end
  for at = 1, #stored do
    if type(stored[at]) ~= 'number' then return end
  end
  record[CHARGED], record[PROMISED] = record[CHARGED] + stored[CHARGED], record[PROMISED] + stored[PROMISED]
  record[KEPT_OUT] = math.max(record[KEPT_OUT], stored[KEPT_OUT])
  record[SINCE] = math.min(record[SINCE], stored[SINCE])
  record[LONGEST] = math.max(record[LONGEST], stored[LONGEST])
  for at = FIRST, #stored - 1, 2 do count_in_bucket(record, stored[at], stored[at + 1]) end
end

function service.write()
  local names = {}
  for field in pairs(noted) do names[#names + 1] = field end
  if #names == 0 then return end
  local minute = int(math.floor(now / MINUTE))
  local key = k.service(int(math.floor(now / MINUTE) % KEPT))
  local stored = try('HMGET', key, '', unpack(names))
  local known = not failed(stored) and stored[1] == minute -- else it is the minute of an hour ago, or damaged
  if not known then try('UNLINK', key) end
  local fields = { '', minute }
  for i, field in ipairs(names) do
    local record = noted[field]
    if known and stored[i + 1] then add(stored[i + 1], record) end
    fields[i * 2 + 1], fields[i * 2 + 2] = field, cjson.encode(record)
  end
  try('HSET', key, unpack(fields))
  if not known then try('PEXPIRE', key, int(2 * KEPT * MINUTE)) end
end
