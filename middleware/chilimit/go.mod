module github.com/sluicego/ratelimit/middleware/chilimit

go 1.25.0

require (
	github.com/go-chi/chi/v5 v5.5.0
	github.com/sluicego/ratelimit v0.0.0
)

require github.com/sony/gobreaker/v2 v2.4.0 // indirect

replace github.com/sluicego/ratelimit => ../../
