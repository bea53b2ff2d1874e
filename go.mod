module github.com/sluicego/ratelimit

go 1.25.0
