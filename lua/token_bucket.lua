-- Token bucket: one decision on one key.
--
-- KEYS[1]  the bucket
-- ARGV[1]  spec "p:r:capacity": a token is p parts, r parts come back each microsecond (Period/Rate in lowest terms)
-- ARGV[2]  cost in tokens; 0 looks, below 0 gives back
-- ARGV[3]  now in microseconds; absent or "" means the server's TIME
-- ARGV[4]  extra: up to so many tokens more; absent means 0
-- Reply    an integer in the usual case: the parts that are left if admitted, or -1 minus the parts that are there if
--          denied. Else five numbers, see prelude.lua: where the stored time lies ahead of now, where something else
--          than cost was taken, and where the parts of a full bucket pass 2^52.
-- State    a hash. "at": when what is left was left. The field named by the spec: what is left, in parts; where the
--          parts of a full bucket pass 2^52, only the part of one token, and "tokens" has the whole ones.
--          A key that does not exist is a full bucket. A spec that is not there is a limit that was changed.

local function look_bucket(key, spec, cost, extra, now, passed)
  local p, r, capacity = match(spec, '(%d+):(%d+):(%d+)')
  p, r, capacity = tonumber(p), tonumber(r), tonumber(capacity)
  local top = capacity * p
  local wide = top >= 4503599627370496 - r
  local got, full
  if wide then
    got = pcall('HMGET', key, 'at', spec, 'tokens')
    local q, rest = muldiv(p, capacity, r)
    if rest > 0 then q = q + 1 end
    full = q < 9007199254740991 and q or 9007199254740991
  else
    got = pcall('HMGET', key, 'at', spec)
    full = ceil(top / r)
  end
  local replace = unusable(got, 'HMGET', key, 'at')
  local at, tokens, part = tonumber(got[1]), 0, tonumber(got[2])
  local known = whole(at, 9007199254740991)
  if known and got[2] then
    if wide then tokens = tonumber(got[3]) end
    known = whole(part, wide and p - 1 or top) and whole(tokens, capacity)
  elseif known then
    known, replace = false, true
    local all = call('HGETALL', key)
    tokens, part = 0, 0
    for i = 1, #all, 2 do
      local n = tonumber(all[i + 1])
      local old = match(all[i], '^(%d+):%d+:%d+$')
      if not whole(n, 9007199254740991) then
        known = false
        break
      elseif all[i] == 'tokens' then
        tokens = tokens + n
      elseif old and tonumber(old) > 0 then
        known, tokens = true, tokens + floor(n / old)
      end
    end
    if tokens > capacity then tokens = capacity end
  end

  local behind, healed, renew = 0, false, true
  if known then
    local elapsed = now - at
    if elapsed >= full then
      tokens, part = capacity, 0
    elseif elapsed > 0 then
      local q, rest = muldiv(elapsed, r, p)
      tokens, part = tokens + q, part + rest
    elseif -elapsed > full + MINUTE then
      healed = true
    else
      behind = -elapsed
    end
    if part >= p then
      local rest = part % p
      tokens, part = tokens + (part - rest) / p, rest
    end
    if tokens >= capacity then tokens, part = capacity, 0 end
    local age = full < SECOND and SECOND or full
    renew = replace or now - now % age ~= at - at % age
  else
    tokens, part = capacity, 0
  end
  return cost <= tokens, key, spec, cost, extra, now, passed, p, capacity, wide, full, tokens, part, behind, healed, renew, replace
end

local function finish_bucket(fits, key, spec, cost, extra, now, passed, p, capacity, wide, full, tokens, part, behind, healed, renew, replace)
  local taken = 0
  if fits then
    taken = cost
    if cost < 0 then
      if -cost > capacity - tokens then taken = tokens - capacity end
    elseif extra > 0 then
      taken = cost + (extra < tokens - cost and extra or tokens - cost)
    end
    tokens = tokens - taken
    if tokens == capacity then part = 0 end
  end
  if taken ~= 0 or healed then
    if replace then call('DEL', key) end
    if wide then
      call('HSET', key, 'at', format('%d', now + behind), spec, format('%d', part), 'tokens', format('%d', tokens))
    else
      call('HSET', key, 'at', format('%d', now + behind), spec, format('%d', tokens * p + part))
    end
    if renew then expire(key, behind + full + (full < SECOND and SECOND or full), passed) end
  end
  if wide or behind > 0 or (fits and taken ~= cost) then
    return format('%d %d %d %d %d', fits and 1 or 0, taken, behind, tokens, part)
  end
  local parts = tokens * p + part
  return fits and parts or -1 - parts
end
