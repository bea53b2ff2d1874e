module github.com/sluicego/ratelimit/faults

go 1.25.0

require (
	github.com/redis/go-redis/v9 v9.22.0
	github.com/redis/rueidis v1.0.79
	github.com/sluicego/ratelimit v0.0.0
	github.com/sluicego/ratelimit/store/goredisstore v0.0.0
	github.com/sluicego/ratelimit/store/rueidisstore v0.0.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace (
	github.com/sluicego/ratelimit => ../
	github.com/sluicego/ratelimit/store/goredisstore => ../store/goredisstore
	github.com/sluicego/ratelimit/store/rueidisstore => ../store/rueidisstore
)
