module github.com/sluicego/ratelimit/examples

go 1.25.0

require (
	github.com/redis/go-redis/v9 v9.22.0
	github.com/sluicego/ratelimit v0.0.0
	github.com/sluicego/ratelimit/store/goredisstore v0.0.0
	modernc.org/sqlite v1.59.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/ncruces/go-strftime v1.0.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	modernc.org/libc v1.75.7 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
)

replace github.com/sluicego/ratelimit => ../

replace github.com/sluicego/ratelimit/store/goredisstore => ../store/goredisstore
