-- Take all: decisions on several keys and limits, of any algorithms, all or nothing.
--
-- KEYS[i]      the state of the i-th decision, each key once
-- ARGV[1]      the specs, separated by spaces
-- ARGV[2]      now in microseconds; absent or "" means the server's TIME
-- ARGV[2i+1]   the i-th cost and
-- ARGV[2i+2]   the i-th extra; absent where all costs are 1 and all extras 0
-- Reply        the algorithms' own replies as text, separated by commas. For the integer of a token bucket there may be
--              two numbers, its state as it was written: the second is the parts that are left
-- State        as the algorithms' own scripts keep it
--
-- Between look and finish of a decision stands the next one. So all have looked when the last one, in the middle, is the
-- first to finish, and what each of them saw is still there in its locals. Up to four are written out, in a script for
-- just these algorithms, which costs least. More are a function that calls itself. shapes.go puts both together.

-- begin
local keys, all, each, seen, since = KEYS, true, given and ARGV[3]
local stamp = format('%d %%d', now) -- half of what is written to a bucket

-- decide
local key, cost, extra, reply, text, stored = keys[i], 1
if each then cost, extra = ARGV[2 * i + 1] + 0, ARGV[2 * i + 2] ~= '0' and ARGV[2 * i + 2] + 0 end
-- (look)
all = all and fits
-- (next)
fits = all
-- (finish)
keys[i] = stored or text or format('%d', reply) -- the key has been used

-- any number
local n = #keys
local function decide(i, from)
  local spec, a, b, c, after = match(ARGV[1], '((%d+):(%d+):(%w+)) ?()', from)
  if c == 'log' then
    -- (log)
  elseif c == 'win' then
    -- (counter)
  else
    -- (bucket)
  end
end
decide(1, 1)

-- end
return table.concat(keys, ',')
