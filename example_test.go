package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/memstore"
)

// A handClock is moved by hand, so that examples print the same every time. Programs leave memstore's Clock nil.
type handClock struct{ now time.Time }

func (c *handClock) Now() time.Time          { return c.now }
func (c *handClock) forward(d time.Duration) { c.now = c.now.Add(d) }

func newHandClock() *handClock { return &handClock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }

// say tells a decision in few words.
func say(res ratelimit.Result, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case res.Allowed:
		return fmt.Sprintf("allowed, %d remaining", res.Remaining)
	case res.RetryAfter == ratelimit.Never:
		return "denied for ever"
	default:
		return fmt.Sprintf("denied, retry after %v", res.RetryAfter)
	}
}

// A bucket of three that gains one token a second.
func ExampleNewTokenBucket() {
	clock := newHandClock()
	limiter, err := ratelimit.NewTokenBucket(memstore.New(memstore.Options{Clock: clock.Now}), ratelimit.Limit{Rate: 1, Period: time.Second, Burst: 3})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for range 4 {
		fmt.Println(say(limiter.Allow(ctx, "user-42", 1)))
	}
	clock.forward(time.Second)
	fmt.Println(say(limiter.Allow(ctx, "user-42", 1)))
	fmt.Println(say(limiter.Allow(ctx, "user-42", 4)))
	// Output:
	// allowed, 2 remaining
	// allowed, 1 remaining
	// allowed, 0 remaining
	// denied, retry after 1s
	// allowed, 0 remaining
	// denied for ever
}

// Two limits on every key. A call spends from both or from none, and the Result is that of the limit which decides: the
// longest wait, or the least that remains.
func ExampleNew() {
	clock := newHandClock()
	limiter, err := ratelimit.New(memstore.New(memstore.Options{Clock: clock.Now}),
		ratelimit.PerSecond(2).Named("second"),
		ratelimit.PerHour(3).Named("hour"),
	)
	if err != nil {
		panic(err)
	}
	for range 5 {
		res, err := limiter.Allow(context.Background(), "user-42", 1)
		fmt.Println(res.Name+":", say(res, err))
		if !res.Allowed {
			clock.forward(time.Second)
		}
	}
	// Output:
	// second: allowed, 1 remaining
	// second: allowed, 0 remaining
	// second: denied, retry after 500ms
	// hour: allowed, 0 remaining
	// hour: denied, retry after 19m59s
}

// No minute ever has more than three calls, and what was spent can be read back.
func ExampleNewSlidingLog() {
	clock := newHandClock()
	limiter, err := ratelimit.NewSlidingLog(memstore.New(memstore.Options{Clock: clock.Now}), ratelimit.PerMinute(3))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for _, cost := range []int64{1, 2, 1} {
		clock.forward(20 * time.Second)
		fmt.Println(say(limiter.Allow(ctx, "user-42", cost)))
	}
	entries, err := limiter.History(ctx, "user-42")
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		fmt.Println(e.Time.UTC().Format(time.TimeOnly), "cost", e.Cost)
	}
	// Output:
	// allowed, 2 remaining
	// allowed, 0 remaining
	// denied, retry after 20s
	// 00:00:20 cost 1
	// 00:00:40 cost 2
}

// At 30 % of a window 70 % of what was spent in the one before still counts.
func ExampleNewSlidingCounter() {
	clock := newHandClock()
	limiter, err := ratelimit.NewSlidingCounter(memstore.New(memstore.Options{Clock: clock.Now}), ratelimit.PerMinute(100))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	fmt.Println(say(limiter.Allow(ctx, "user-42", 80)))
	clock.forward(78 * time.Second)
	fmt.Println(say(limiter.Peek(ctx, "user-42")))
	fmt.Println(say(limiter.Allow(ctx, "user-42", 45)))
	// Output:
	// allowed, 20 remaining
	// allowed, 44 remaining
	// denied, retry after 750ms
}

// What is left, without spending.
func ExampleStoreLimiter_Peek() {
	clock := newHandClock()
	limiter, err := ratelimit.New(memstore.New(memstore.Options{Clock: clock.Now}), ratelimit.PerMinute(60))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	fmt.Println(say(limiter.Allow(ctx, "user-42", 10)))
	res, err := limiter.Peek(ctx, "user-42")
	fmt.Println(say(res, err))
	fmt.Println("as if unused in", res.ResetAfter)
	// Output:
	// allowed, 50 remaining
	// allowed, 50 remaining
	// as if unused in 10s
}

// A job that did less than was feared gives the rest back. More than was spent never comes back.
func ExampleStoreLimiter_Refund() {
	limiter, err := ratelimit.New(memstore.New(memstore.Options{}), ratelimit.PerDay(100))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	fmt.Println(say(limiter.Allow(ctx, "user-42", 50)))
	fmt.Println(say(limiter.Refund(ctx, "user-42", 20)))
	res, err := limiter.Refund(ctx, "user-42", 1000)
	fmt.Println(say(res, err), "after", -res.Taken, "more")
	// Output:
	// allowed, 50 remaining
	// allowed, 70 remaining
	// allowed, 100 remaining after 30 more
}

// Forgive a key all it has spent.
func ExampleStoreLimiter_Reset() {
	clock := newHandClock()
	limiter, err := ratelimit.New(memstore.New(memstore.Options{Clock: clock.Now}), ratelimit.PerDay(2))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	fmt.Println(say(limiter.Allow(ctx, "user-42", 2)))
	fmt.Println(say(limiter.Allow(ctx, "user-42", 1)))
	if err := limiter.Reset(ctx, "user-42"); err != nil {
		panic(err)
	}
	fmt.Println(say(limiter.Allow(ctx, "user-42", 1)))
	// Output:
	// allowed, 0 remaining
	// denied, retry after 12h0m0s
	// allowed, 1 remaining
}

// A batch of work takes as much as there is room for.
func ExampleStoreLimiter_TakeUpTo() {
	limiter, err := ratelimit.New(memstore.New(memstore.Options{}), ratelimit.PerDay(100))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for range 3 {
		res, err := limiter.TakeUpTo(ctx, "import", 60)
		fmt.Println(res.Taken, "taken,", say(res, err))
	}
	// Output:
	// 60 taken, allowed, 40 remaining
	// 40 taken, allowed, 0 remaining
	// 0 taken, allowed, 0 remaining
}

// Wait sleeps until there is room, and says at once if there will be none in time.
func ExampleWait() {
	limiter, err := ratelimit.New(memstore.New(memstore.Options{}), ratelimit.Limit{Rate: 1, Period: 20 * time.Millisecond, Burst: 2})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	start := time.Now()
	for range 4 {
		if _, err := ratelimit.Wait(ctx, limiter, "mailer", 1); err != nil {
			panic(err)
		}
	}
	fmt.Println("two at once, two more after 40ms:", time.Since(start) >= 40*time.Millisecond)

	_, err = ratelimit.Wait(ctx, limiter, "mailer", 3)
	fmt.Println(err, errors.Is(err, ratelimit.ErrNever))
	// Output:
	// two at once, two more after 40ms: true
	// ratelimit: cost is above the limit's capacity true
}

// The client comes first. What users type may hold anything.
func ExampleKey() {
	fmt.Println(ratelimit.Key("user-123", "search", "v1"))
	fmt.Println(ratelimit.Key("a:b", "c"), ratelimit.Key("a", "b:c"))
	// Output:
	// {user-123}:search:v1
	// {a%3Ab}:c {a}:b%3Ac
}

func ExampleSplitKey() {
	first, rest, ok := ratelimit.SplitKey("{user-123}:search:v1")
	fmt.Println(first, rest, ok)
	_, _, ok = ratelimit.SplitKey("user-123")
	fmt.Println(ok)
	// Output:
	// user-123 search:v1 true
	// false
}

// A token bucket admits its burst and, beside that, what comes back. Two calls a second for 30 seconds, with 17 per 30
// seconds: the bucket admits 17 and then one each time a token is back, 33 in all. A sliding log of the same numbers
// admits 17, never more in any 30 seconds.
func Example_burstPlusRefill() { // R25
	limit := ratelimit.Limit{Rate: 17, Period: 30 * time.Second}
	for _, algorithm := range []ratelimit.Algorithm{ratelimit.TokenBucket, ratelimit.SlidingLog} {
		limit.Algorithm = algorithm
		clock := newHandClock()
		limiter, err := ratelimit.New(memstore.New(memstore.Options{Clock: clock.Now}), limit)
		if err != nil {
			panic(err)
		}
		allowed := 0
		for range 30 {
			for _, pause := range []time.Duration{250 * time.Millisecond, 750 * time.Millisecond} {
				res, err := limiter.Allow(context.Background(), "user-42", 1)
				if err != nil {
					panic(err)
				}
				if res.Allowed {
					allowed++
				}
				clock.forward(pause)
			}
		}
		fmt.Println(limit, "allowed", allowed, "of 60")
	}
	// Output:
	// token-bucket 17 per 30s allowed 33 of 60
	// sliding-log 17 per 30s allowed 17 of 60
}

// A function is a Limiter too: this one lets the staff pass.
func ExampleLimiterFunc() {
	clock := newHandClock()
	limiter, err := ratelimit.New(memstore.New(memstore.Options{Clock: clock.Now}), ratelimit.PerMinute(1))
	if err != nil {
		panic(err)
	}
	polite := ratelimit.LimiterFunc(func(ctx context.Context, key string, cost int64) (ratelimit.Result, error) {
		if first, _, ok := ratelimit.SplitKey(key); ok && first == "staff" {
			cost = 0
		}
		return limiter.Allow(ctx, key, cost)
	})
	ctx := context.Background()
	for _, key := range []string{ratelimit.Key("staff", "ann"), ratelimit.Key("staff", "ann"), ratelimit.Key("guest", "bob"), ratelimit.Key("guest", "bob")} {
		fmt.Println(key, say(polite.Allow(ctx, key, 1)))
	}
	// Output:
	// {staff}:ann allowed, 1 remaining
	// {staff}:ann allowed, 1 remaining
	// {guest}:bob allowed, 0 remaining
	// {guest}:bob denied, retry after 1m0s
}

// Limits are plain data, and say what is wrong with them.
func ExampleLimit_Validate() {
	fmt.Println(ratelimit.Limit{Name: "login", Rate: 10, Period: time.Minute, Burst: 20})
	fmt.Println(ratelimit.PerSecond(0).Validate())
	fmt.Println(ratelimit.Limit{Algorithm: ratelimit.SlidingLog, Rate: 200_000, Period: time.Hour}.Validate())
	// Output:
	// login: token-bucket 10 per 1m0s, burst 20
	// ratelimit: invalid limit: Rate 0 is outside 1 to 1000000000 for a token-bucket
	// ratelimit: invalid limit: Rate 200000 is outside 1 to 100000 for a sliding-log
}
