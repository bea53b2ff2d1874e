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
-- TTL      set by the first write of each refill period to twice that and a second; at most 50 years

-- look
local p, r, capacity = match(spec, '(%d+):(%d+):(%d+)')
p, r, capacity = p + 0, r + 0, capacity + 0
local top = capacity * p
local wide = top >= 4503599627370496 - r
local got, full
if wide then
  got = pcall('HMGET', key, 'at', spec, 'tokens')
  local rest
  full, rest = muldiv(p, capacity, r)
  if rest > 0 then full = full + 1 end
else
  got = pcall('HMGET', key, 'at', spec)
  full = top / r
  if full % 1 > 0 then full = full - full % 1 + 1 end
end
local replace, renew, healed, behind = false, true, false, 0
if got.err then
  if not match(got.err, 'WRONGTYPE') then call('HMGET', key, 'at') end
  replace = true
end
local at, part, tokens = tonumber(got[1]), tonumber(got[2]), 0
local known = at and at >= 0 and at < 9007199254740992
if known and part then
  if wide then
    tokens = tonumber(got[3])
    known = part >= 0 and part < p and tokens and tokens >= 0 and tokens <= capacity
  else
    known = part >= 0 and part <= top
  end
elseif known then
  known, replace, tokens, part = false, true, 0, 0
  local all = call('HGETALL', key)
  for i = 1, #all, 2 do
    local old, n = match(all[i], '^([1-9]%d*):%d+:%d+$'), tonumber(all[i + 1])
    if n and n >= 0 and n < 9007199254740992 then
      if all[i] == 'tokens' then
        tokens = tokens + n
      elseif old then
        known, tokens = true, tokens + (n - n % old) / old
      end
    end
  end
  if tokens > capacity then tokens = capacity end
  if not wide then part, tokens = tokens * p, 0 end
end
if not known and (got[1] or got[2]) then replace = true end -- nothing of it is to be read under a limit to come
if known then
  local elapsed = now - at
  if elapsed >= full then
    known = false
  elseif elapsed < 0 then
    if -elapsed <= full + 60000000 then behind = -elapsed else healed = cost <= capacity end
  elseif wide then
    local q, rest = muldiv(elapsed, r, p)
    tokens, part = tokens + q, part + rest
    if part >= p then tokens, part = tokens + 1, part - p end
    if tokens >= capacity then tokens, part = capacity, 0 end
  else
    part = part + elapsed * r
    if part > top then part = top end
  end
  renew = replace or now - now % full ~= at - at % full
end
if not known then
  if wide then tokens, part = capacity, 0 else part = top end
end
local fits
if wide then fits = tokens >= cost else fits = part >= cost * p end

-- finish with spec, p, r, capacity, top, wide, full, part, tokens, behind, healed, renew, replace
local taken, left = 0, nil
if fits then
  taken = cost
  if cost < 0 or extra then
    local there = wide and tokens or (part - part % p) / p
    if cost < 0 then
      if -cost > capacity - there then taken = there - capacity end
    elseif extra > there - cost then
      taken = there
    else
      taken = cost + extra
    end
  end
  if wide then
    tokens = tokens - taken
    if tokens == capacity then part = 0 end
  else
    part = part - taken * p
    if part > top then part = top end
  end
end
if taken ~= 0 or healed then
  if replace then call('DEL', key) end
  stamp, left = stamp or format('%d', now), format('%d', part)
  call('HSET', key, 'at', behind > 0 and format('%d', now + behind) or stamp, spec, left)
  if wide then call('HSET', key, 'tokens', format('%d', tokens)) end
  if renew then
    local time = behind + 2 * full
    if time > 1576800000000000 then time = 1576800000000000 end
    time = (time + 1000999) / 1000
    if passed and time < 60000 then time = 60000 end
    call('PEXPIRE', key, format('%d', time))
  end
end
local reply
if wide then
  reply = format('%d %d %d %d %d', fits and 1 or 0, taken, behind, tokens, part)
elseif behind > 0 or (fits and taken ~= cost) then
  reply = format('%d %d %d %d %d', fits and 1 or 0, taken, behind, (part - part % p) / p, part % p)
else
  reply = fits and part or -1 - part
end
