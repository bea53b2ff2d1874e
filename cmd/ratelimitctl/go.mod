module github.com/sluicego/ratelimit/cmd/ratelimitctl

go 1.25.0

require (
	github.com/jackc/pgx/v5 v5.9.2
	github.com/redis/go-redis/v9 v9.22.0
	github.com/sluicego/ratelimit v0.0.0
	github.com/sluicego/ratelimit/store/goredisstore v0.0.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.2 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sync v0.17.0 // indirect
	golang.org/x/sys v0.30.0 // indirect
	golang.org/x/text v0.29.0 // indirect
)

replace github.com/sluicego/ratelimit => ../../

replace github.com/sluicego/ratelimit/store/goredisstore => ../../store/goredisstore
