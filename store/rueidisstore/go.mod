module github.com/sluicego/ratelimit/store/rueidisstore

go 1.25.0

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/redis/rueidis v1.0.79
	github.com/sluicego/ratelimit v0.0.0
)

require (
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace github.com/sluicego/ratelimit => ../../
