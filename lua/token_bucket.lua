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
-- State    a hash of one field, named by the spec: "at parts", when what is left was left, and what is left. Where the
--          parts of a full bucket pass 2^52 it is "at tokens parts", whole tokens and the parts of one more.
--          A key that does not exist is a full bucket. A field of another spec is a limit that was changed.
-- TTL      set by the first write of each refill period to twice that and a second, at most 50 years; where the stored
--          time lies ahead of now, by each write, and longer by as much

-- look at p, r, capacity in (%d+):(%d+):(%d+)
p = p + 0
r = r + 0
local top = capacity * p
local full = top
if r ~= 1 then
  full = top / r
  if full % 1 > 0 then full = full - full % 1 + 1 end
end
local at, part, fits, elapsed, left, behind, tokens, renew, replace, healed -- tokens only if wide
local got = pcall('HGET', key, spec)
if got and not got.err then at, part = match(got, '^(%d+) (%d+)$') end
if at and top < 4503599627370496 - r then
  part = part + 0
  if at ~= seen then seen, since = at, now - at end -- what was written together says the same
  elapsed = since
  if part <= top and elapsed >= 0 and cost > 0 and not extra then -- the usual case
    part = part + elapsed * r
    if part > top then part = top end
    left = part - cost * p
    fits = left >= 0
  end
end
if not left then
  local wide, known = top >= 4503599627370496 - r, false
  capacity = capacity + 0
  if wide then
    -- muldiv
    local rest
    full, rest = muldiv(p, capacity, r)
    if rest > 0 then full = full + 1 end
  end
  if not got then -- no key, or a limit that was changed
    local all = call('HGETALL', key)
    for i = 1, #all, 2 do
      local old = match(all[i], '^([1-9]%d*):%d+:%d+$')
      local time, n, wider = match(all[i + 1], '^(%d+) (%d+) ?(%d*)$')
      replace = true
      if old and time and time + 0 < 9007199254740992 and n + 0 < 9007199254740992 then
        known, at, n = true, time + 0, n + 0
        if wider == '' then n = (n - n % old) / old end
        if n > capacity then n = capacity end
        if wide then tokens, part = n, 0 else part = n * p end
      end
    end
  elseif got.err then
    if not match(got.err, 'WRONGTYPE') then call('HGET', key, spec) end
    replace = true
  else
    if wide then at, tokens, part = match(got, '^(%d+) (%d+) (%d+)$') end
    if at then
      at, part = at + 0, part + 0
      if wide then
        tokens = tokens + 0
        known = part < p and tokens <= capacity and at < 9007199254740992
      else
        known = part <= top and at < 9007199254740992
      end
    end
    replace = not known -- nothing of it is to be read under a limit to come
  end
  behind, renew = 0, true
  if known then
    elapsed = now - at
    if elapsed >= full then
      known = false
    elseif elapsed < 0 then
      if -elapsed <= full + 60000000 then behind = -elapsed else healed = cost <= capacity end
    elseif wide then
      -- muldiv
      local q, rest = muldiv(elapsed, r, p)
      tokens, part = tokens + q, part + rest
      if part >= p then tokens, part = tokens + 1, part - p end
      if tokens >= capacity then tokens, part = capacity, 0 end
    else
      part = part + elapsed * r
      if part > top then part = top end
    end
    renew = replace or elapsed < 0 or elapsed > now % full
  end
  if not known then
    if wide then tokens, part = capacity, 0 else part = top end
  end
  if wide then fits = tokens >= cost else fits = part >= cost * p end
end

-- finish
if left then
  if fits then
    stored = format('%d %d', now, left)
    call('HSET', key, spec, stored)
    reply = left
    if elapsed > now % full then renew = true end
  else
    reply = -1 - part
  end
else
  local taken = 0
  if fits then
    taken = cost
    if cost < 0 or extra then
      local there = tokens or (part - part % p) / p
      if cost < 0 then
        if -cost > capacity - there then taken = there - capacity end
      elseif extra > there - cost then
        taken = there
      else
        taken = cost + extra
      end
    end
    if tokens then
      tokens = tokens - taken
      if tokens == capacity then part = 0 end
    else
      part = part - taken * p
      if taken < 0 and part > top then part = top end
    end
  end
  if taken ~= 0 or healed then
    if replace then call('DEL', key) end
    if tokens then
      call('HSET', key, spec, format('%d %d %d', now + behind, tokens, part))
    else
      call('HSET', key, spec, format('%d %d', now + behind, part))
    end
  else
    renew = false
  end
  if tokens then
    text = format('%d %d %d %d %d', fits and 1 or 0, taken, behind, tokens, part)
  elseif behind > 0 or (fits and taken ~= cost) then
    text = format('%d %d %d %d %d', fits and 1 or 0, taken, behind, (part - part % p) / p, part % p)
  else
    reply = fits and part or -1 - part
  end
end
if renew then -- a write, the first of its refill period
  local time = (behind or 0) + 2 * full
  if time > 1576800000000000 then time = 1576800000000000 end
  time = (time + 1000999) / 1000
  if passed and time < 60000 then time = 60000 end
  call('PEXPIRE', key, format('%d', time))
end
