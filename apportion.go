package ratelimit

import "fmt"

// apportion divides ShareParts by demand as D'Hondt divides seats, each part to whom it serves best, within the bounds
// of each region and a step of what it has now. Without any demand all stay as they are.
func apportion(regions []Region, now []int64, step int64, demand map[string]int64) ([]int64, error) {
	target := make([]int64, len(now))
	most := make([]int64, len(now))
	asked := make([]float64, len(now))
	left, idle := int64(ShareParts), true
	for i, reg := range regions {
		d, ok := demand[reg.Name]
		if !ok || d < 0 {
			return nil, fmt.Errorf("ratelimit: the demand of region %q is missing or below 0", reg.Name)
		}
		asked[i] = float64(d)
		idle = idle && d == 0
		target[i] = max(reg.Least, now[i]-step)
		most[i] = min(reg.Most, now[i]+step)
		left -= target[i]
	}
	if idle {
		return now, nil
	}
	for ; left > 0; left-- {
		best := -1
		for i := range target {
			if target[i] < most[i] && (best < 0 || asked[i]/float64(target[i]+1) > asked[best]/float64(target[best]+1)) {
				best = i
			}
		}
		if best < 0 {
			break // all are as far up as one step goes
		}
		target[best]++
	}
	return target, nil
}
