module github.com/sluicego/ratelimit

go 1.25.0

require github.com/sony/gobreaker/v2 v2.4.0
