-- Reads a sliding log back, up to 500 entries a call, so that no call is long.
--
-- KEYS[1]  the log
-- ARGV[1]  the period in microseconds
-- ARGV[2]  only entries later than this, in microseconds; 0 for the first call
-- ARGV[3]  now in microseconds; absent or "" means the server's TIME
-- Reply    a list: time and total of the pair before the first entry, which does not count, then of each entry;
--          empty if there is none

local key, after = KEYS[1], tonumber(ARGV[2])
local tail = pcall('LRANGE', key, '-2', '-1')
if unusable(tail, 'LRANGE', key, '-2', '-1') then return {} end
local newest, now = tonumber(tail[1]), clock(ARGV[3] ~= '' and ARGV[3])
if not whole(newest, 9007199254740991) then return {} end
local window = (now > newest and now or newest) - ARGV[1]
if window > after then after = window end
if newest <= after or call('LLEN', key) < 4 then return {} end
local first = seek(key, 1, 0, function(time) return time > after end)
return call('LRANGE', key, format('%d', 2 * first - 2), format('%d', 2 * first + 999))
