package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
)

// tenants knows whose an API key is. Only hashes are kept, so that neither memory nor the time of a look-up tells a key.
type tenants map[[sha256.Size]byte]string

// loadTenants reads {"API key": "tenant", …}.
func loadTenants(path string) (tenants, error) {
	keys := map[string]string{"demo-a": "shop-a", "demo-b": "shop-b"}
	if path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		clear(keys)
		if err := json.Unmarshal(data, &keys); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	t := tenants{}
	for key, tenant := range keys {
		if key == "" || tenant == "" {
			return nil, fmt.Errorf("%s: an empty API key or tenant", path)
		}
		t[sha256.Sum256([]byte(key))] = tenant
	}
	return t, nil
}

const apiKey = "X-Api-Key"

// of returns the tenant that a request is of, if it has one.
func (t tenants) of(r *http.Request) (tenant string, ok bool) {
	tenant, ok = t[sha256.Sum256([]byte(r.Header.Get(apiKey)))]
	return tenant, ok
}
