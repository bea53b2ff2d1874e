module github.com/sluicego/ratelimit/store/rueidisstore

go 1.25.0

require (
	github.com/redis/rueidis v1.0.79
	github.com/sluicego/ratelimit v0.0.0
)

require golang.org/x/sys v0.47.0 // indirect

replace github.com/sluicego/ratelimit => ../../
