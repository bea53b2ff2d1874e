-- Sliding counter: one decision on one key.
--
-- KEYS[1]  the counter
-- ARGV[1]  spec "period:rate:win", the period in microseconds
-- ARGV[2]  cost; 0 looks, below 0 gives back
-- ARGV[3]  now in microseconds; absent or "" means the server's TIME
-- ARGV[4]  extra: up to so many units more; absent means 0
-- Reply    an integer where just cost was taken, and that is above 0: microseconds since the window's start, times
--          rate + 1, plus the units that are spent. Else, and where that would pass 2^53, five numbers, see
--          prelude.lua: time is the start of the window relative to now, units the count of that window, part the
--          count of the one before
-- State    a hash of one field, named by the period: "start current previous", when the window starts, a multiple of
--          the period, its count, and the count of the one before. A key that does not exist is unused. A field of
--          another period is a limit that was changed.
-- TTL      set by the first write of each window to the end of the next one and a second

-- look
local field, rate = match(spec, '(%d+):(%d+)')
local period = field + 0
rate = rate + 0
local got = pcall('HGET', key, field)
local known, replace, renew, healed = false, false, true, false
local was, at, current, previous = period, nil, nil, nil
if not got then -- no key, or another period
  local all = call('HGETALL', key)
  for i = 1, #all, 2 do
    replace = true
    if match(all[i], '^[1-9]%d*$') then
      was, at, current, previous = all[i] + 0, match(all[i + 1], '^(%d+) (%d+) (%d+)$')
    end
  end
elseif got.err then
  if not match(got.err, 'WRONGTYPE') then call('HGET', key, field) end
  replace = true
else
  at, current, previous = match(got, '^(%d+) (%d+) (%d+)$')
end
if at then
  at, current, previous = at + 0, current + 0, previous + 0
  known = at < 9007199254740992 and at % was == 0 and current <= 1000000000 and previous <= 1000000000
end
replace = replace or not known and got
if known then
  local start = now - now % was
  renew = replace or start ~= at
  if start == at + was then
    at, previous, current = start, current, 0
  elseif start > at then
    at, current, previous = start, 0, 0
  elseif at - now > was + 60000000 then
    at, current, previous, healed = start, current + previous, 0, cost <= rate
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

-- finish with field, period, rate, at, current, previous, room, healed, renew, replace
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
  call('HSET', key, field, format('%d %d %d', at, current, previous))
  if renew then
    local time = (at + 2 * period - now + 1000999) / 1000
    if passed and time < 60000 then time = 60000 end
    call('PEXPIRE', key, format('%d', time))
  end
end
reply = (now - at) * (rate + 1) + rate - room + taken
if not fits or taken ~= cost or cost <= 0 or now < at or reply >= 9007199254740992 then
  reply = format('%d %d %d %d %d', fits and 1 or 0, taken, at - now, current, previous)
end
