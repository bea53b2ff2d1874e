package ratelimit

// Kept is of how many states it is kept what the primary said, and what it is owed.
func (f *Fallback) Kept() (known, owed int) { return f.known.len(), f.debts.table.len() }
