package memstore

// A queue is a heap of the entries of a table, the smallest rank first. A rank is what it was when the entry came in: whoever takes it
// out looks whether that still holds, and whether the entry is still in use, or again.
type queue []ranked

type ranked struct {
	rank  int64
	entry int
}

// order makes q a heap, whatever it was.
func (q queue) order() {
	for i := len(q)/2 - 1; i >= 0; i-- {
		q.down(i)
	}
}

func (q *queue) push(r ranked) {
	*q = append(*q, r)
	h := *q
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].rank <= r.rank {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = r
}

func (q *queue) pop() ranked {
	h := *q
	first, last := h[0], len(h)-1
	h[0] = h[last]
	*q = h[:last]
	if last > 0 {
		(*q).down(0)
	}
	return first
}

func (q queue) down(i int) {
	r := q[i]
	for {
		child := 2*i + 1
		if child >= len(q) {
			break
		}
		if child+1 < len(q) && q[child+1].rank < q[child].rank {
			child++
		}
		if r.rank <= q[child].rank {
			break
		}
		q[i] = q[child]
		i = child
	}
	q[i] = r
}
