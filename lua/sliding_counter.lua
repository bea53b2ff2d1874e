-- Sliding counter: one decision on one key.
--
-- KEYS[1]  the counter
-- ARGV[1]  spec "period:rate:win", the period in microseconds
-- ARGV[2]  cost; 0 looks, below 0 gives back
-- ARGV[3]  now in microseconds; absent or "" means the server's TIME
-- ARGV[4]  extra: up to so many units more; absent means 0
-- Reply    five numbers, see prelude.lua: time is the start of the window relative to now, units the count of that
--          window, part the count of the one before
-- State    a hash. The field named by the period: when the window starts, a multiple of the period. "current": the
--          count of that window. "previous": the count of the one before. A key that does not exist is unused. A
--          period that is not there is a limit that was changed.
-- TTL      set by the first write of each window to the end of the next one and a second

-- look
local field, rate = match(spec, '(%d+):(%d+)')
local period = field + 0
local got = pcall('HMGET', key, field, 'current', 'previous')
local replace, renew, healed = false, true, false
if got.err then
  if not match(got.err, 'WRONGTYPE') then call('HMGET', key, field) end
  replace = true
end
local at, current, previous = tonumber(got[1]), tonumber(got[2]), tonumber(got[3])
local known = current and previous and current >= 0 and current <= 1000000000 and previous >= 0 and previous <= 1000000000
local was = period
if known and not at then -- another period, and its field
  replace = true
  local all = call('HGETALL', key)
  for i = 1, #all, 2 do
    if match(all[i], '^[1-9]%d*$') then was, at = all[i] + 0, tonumber(all[i + 1]) end
  end
end
known = known and at and at >= 0 and at < 9007199254740992 and at % was == 0
if known then
  local start = now - now % was
  renew = replace or start ~= at
  if start == at + was then
    at, previous, current = start, current, 0
  elseif start > at then
    at, current, previous = start, 0, 0
  elseif at - now > was + 60000000 then
    at, current, previous, healed = start, current + previous, 0, cost <= rate + 0
    if current > 1000000000 then current = 1000000000 end
  end
else
  was, at, current, previous = period, now - now % period, 0, 0
end
local share = 0 -- what the window before still counts for, rounded up
if previous > 0 then
  local rest
  share, rest = muldiv(was - (now > at and now - at or 0), previous, was)
  if rest > 0 then share = share + 1 end
end
if was ~= period then
  at, current, previous, share = now - now % period, current + share, 0, 0
  if current > 1000000000 then current = 1000000000 end
end
local room = rate - current - share
if room < 0 then room = 0 end
local fits = cost <= room

-- finish with field, period, at, current, previous, room, healed, renew, replace
local taken = 0
if fits then
  if cost < 0 then
    local back = -cost < previous and -cost or previous
    previous, taken = previous - back, -back
    back = -cost - back < current and -cost - back or current
    current, taken = current - back, taken - back
  else
    taken = cost
    if extra then taken = extra < room - cost and cost + extra or room end
    current = current + taken
  end
end
if taken ~= 0 or healed then
  if replace then call('DEL', key) end
  if renew or taken < 0 then
    call('HSET', key, field, format('%d', at), 'current', format('%d', current), 'previous', format('%d', previous))
  else
    call('HSET', key, 'current', format('%d', current))
  end
  if renew then
    local time = (at + 2 * period - now + 1000999) / 1000
    if passed and time < 60000 then time = 60000 end
    call('PEXPIRE', key, format('%d', time))
  end
end
local reply = format('%d %d %d %d %d', fits and 1 or 0, taken, at - now, current, previous)
