package ratelimit

// Waiting is for how many keys l keeps a queue of waiters, and how many stand in them.
func (l *StoreLimiter) Waiting() (keys, standing int) {
	l.line.mu.Lock()
	defer l.line.mu.Unlock()
	for _, q := range l.line.keys {
		standing += q.standing.Len()
	}
	return len(l.line.keys), standing
}
