package main

import (
	"testing"

	"github.com/sluicego/ratelimit/examples/internal/curl"
)

func TestCurl(t *testing.T) {
	t.Parallel()
	if err := curl.Play("main.go", run); err != nil {
		t.Error(err)
	}
}
