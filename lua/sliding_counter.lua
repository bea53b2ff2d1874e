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

local function shift(at, current, previous, period, now)
  local start = now - now % period
  if start == at then return at, current, previous, false end
  if start == at + period then return start, 0, current, false end
  if start > at then return start, 0, 0, false end
  if at - now > period + MINUTE then
    local all = current + previous
    return start, all < 1000000000 and all or 1000000000, 0, true
  end
  return at, current, previous, false
end

-- share is what the count of the window before still counts for, rounded up.
local function share(at, previous, period, now)
  if previous == 0 then return 0 end
  local left = period - (now > at and now - at or 0)
  local q, rest = muldiv(left, previous, period)
  return rest > 0 and q + 1 or q
end

local function look_counter(key, spec, cost, extra, now, passed)
  local field, rate = match(spec, '(%d+):(%d+)')
  local period = tonumber(field)
  local got = pcall('HMGET', key, field, 'current', 'previous')
  local replace = unusable(got, 'HMGET', key, field)
  local at, current, previous, healed = tonumber(got[1]), tonumber(got[2]), tonumber(got[3]), false
  local known = whole(current, 1000000000) and whole(previous, 1000000000)
  local renew = true
  if known and got[1] then
    known = whole(at, 9007199254740991) and at % period == 0
    if known then
      local before = at
      at, current, previous, healed = shift(at, current, previous, period, now)
      renew = at ~= before
    end
  elseif known then
    known, replace = false, true
    local all = call('HGETALL', key)
    for i = 1, #all, 2 do
      local was = match(all[i], '^[1-9]%d*$') and tonumber(all[i])
      at = tonumber(all[i + 1])
      if was and whole(at, 9007199254740991) then
        at, current, previous, healed = shift(at, current, previous, was, now)
        current = current + share(at, previous, was, now)
        if current > 1000000000 then current = 1000000000 end
        at, previous, known = now - now % period, 0, true
        break
      end
    end
  end
  if not known then at, current, previous = now - now % period, 0, 0 end
  local room = rate - current - share(at, previous, period, now)
  if room < 0 then room = 0 end
  return cost <= room, key, field, cost, extra, now, passed, period, at, current, previous, room, healed, renew, replace
end

local function finish_counter(fits, key, field, cost, extra, now, passed, period, at, current, previous, room, healed, renew, replace)
  local taken = 0
  if fits then
    if cost < 0 then
      local back = -cost < previous and -cost or previous
      taken = -back
      previous, back = previous - back, -cost - back
      if back > current then back = current end
      taken, current = taken - back, current - back
    else
      taken = cost
      if extra > 0 then taken = cost + (extra < room - cost and extra or room - cost) end
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
    if renew then expire(key, at + 2 * period - now, passed) end
  end
  return format('%d %d %d %d %d', fits and 1 or 0, taken, at - now, current, previous)
end
