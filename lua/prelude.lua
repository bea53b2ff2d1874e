-- What the scripts share; lua.go puts it before each of them.
--
-- Numbers are doubles, so everything here stays a whole number below 2^53 and becomes text by %d alone. Times are
-- microseconds since the Unix epoch. No key is touched that is not in KEYS.
--
-- An algorithm's file is one decision in two steps. "look" reads the state and works out what it is now; it leaves fits,
-- whether there is room for cost. "finish" writes if fits still stands. A script for one decision runs one after the
-- other; in take_all.lua all look before any finishes. They find these locals: key; spec, and what the line that begins
-- "look at" names of it, as text; cost; extra, if any; now, and passed, whether the caller's clock says so; and
-- seen and since, nil at first, which decisions that are made together hand on to each other.
--
-- A reply is an integer in the usual case, which each algorithm defines, for text costs the server and the client more:
-- finish sets reply. Else it sets text, which goes before reply: five numbers, separated by spaces: 1 if admitted or 0;
-- the units taken; and the state after the decision as ratelimit.Outcome has it: time relative to now, units, part (of
-- a log: wait). Where reply is part of what it wrote, it sets stored to that: it is text already, which take_all.lua needs.
--
-- A read uses pcall, so that a key of another type counts as an unused one; any other error is raised by reading again.

local call, pcall, format, match = redis.call, redis.pcall, string.format, string.match
