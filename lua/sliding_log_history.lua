-- Reads a sliding log back, up to 500 entries a call, so that no call is long.
--
-- KEYS[1]  the log
-- ARGV[1]  the period in microseconds
-- ARGV[2]  only entries later than this, in microseconds; 0 for the first call
-- ARGV[3]  now in microseconds; absent or "" means the server's TIME
-- Reply    a list: time and total of the pair before the first entry, which does not count, then of each entry;
--          empty if there is none

local tail = pcall('LRANGE', key, '-2', '-1')
if tail.err then
  if not match(tail.err, 'WRONGTYPE') then call('LRANGE', key, '-2', '-1') end
  return {}
end
local newest, after = tonumber(tail[1]), ARGV[2] + 0
if not newest or call('LLEN', key) < 4 then return {} end
local window = (now > newest and now or newest) - ARGV[1]
if window > after then after = window end
if newest <= after then return {} end
local first = seek(key, 1, 0, after, 0, 0)
return call('LRANGE', key, format('%d', 2 * first - 2), format('%d', 2 * first + 999))
