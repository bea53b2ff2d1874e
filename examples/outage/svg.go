package main

import (
	"bytes"
	"fmt"
	"time"
)

// The drawing: bars of what was admitted each second, by who decided, against the limit; the time the server was gone is
// shaded; below, the p99 of a decision on a scale to 10 ms.
const (
	width, height   = 900, 420
	left, right     = 60, 20
	top, base       = 50, 280 // of the bars
	lower, lowerTop = 380, 310
	most            = 10 * time.Millisecond
)

func draw(o options, lines []line) []byte {
	var b bytes.Buffer
	span := 2*o.up + o.down
	x := func(at time.Duration) float64 {
		return left + float64(width-left-right)*float64(at)/float64(span)
	}
	peak := float64(o.limit) * 2
	for _, l := range lines {
		peak = max(peak, rate(l.admitted()))
	}
	y := func(perSecond float64) float64 { return base - (base-top)*perSecond/peak }
	rect := func(x0, y0, x1, y1 float64, color string) {
		fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x0, y0, x1-x0, y1-y0, color)
	}
	text := func(x, y float64, anchor, s string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, s)
	}

	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	rect(0, 0, width, height, "white")
	text(left, 20, "start", fmt.Sprintf("%d instances, %d units a second between them, %d calls a second", o.instances, o.limit, o.offered))
	rect(x(o.up), top-10, x(o.up+o.down), lower, "#f2f2f2")
	text(x(o.up+o.down/2), top-16, "middle", "Redis killed")
	for _, l := range lines {
		x0, x1 := x(l.at-step)+1, x(l.at)-1
		local := rate(l.local.admitted)
		rect(x0, y(local), x1, base, "#e08a1e")
		rect(x0, y(rate(l.admitted())), x1, y(local), "#3a7ca5")
		high := float64(min(l.p99, most)) / float64(most) * (lower - lowerTop)
		rect(x0, lower-high, x1, lower, "#888888")
	}
	fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#c0392b" stroke-dasharray="6 3"/>`+"\n", left, width-right, y(float64(o.limit)), y(float64(o.limit)))
	text(left-6, y(float64(o.limit))+4, "end", fmt.Sprint(o.limit))
	text(left-6, base, "end", "0")
	text(left-6, lowerTop+4, "end", fmt.Sprint(most))
	text(left-6, lower, "end", "0")
	text(left+4, lowerTop-2, "start", "p99 of a decision")
	rect(width-330, 10, width-318, 22, "#3a7ca5")
	text(width-312, 20, "start", "admitted/s, by the store")
	rect(width-160, 10, width-148, 22, "#e08a1e")
	text(width-142, 20, "start", "by local shares")
	for at := time.Duration(0); at <= span; at += max(time.Second, span/10).Truncate(time.Second) {
		text(x(at), lower+16, "middle", at.String())
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
