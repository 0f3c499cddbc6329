package main

import (
	"context"
	"fmt"
	"math"
	"strings"
)

// A point is what an installation of one size cost.
type point struct {
	n      float64
	memory float64 // KiB for each
	cpu    float64 // cores while idle, or CPU seconds of a change
}

// exponent fits cost = a·n^k and gives k.
func exponent(of []point, cost func(point) float64) float64 {
	var sx, sy, sxx, sxy, n float64
	for _, p := range of {
		c := cost(p)
		if c <= 0 {
			continue
		}
		x, y := math.Log(p.n), math.Log(c)
		sx, sy, sxx, sxy, n = sx+x, sy+y, sxx+x*x, sxy+x*y, n+1
	}
	if n < 2 {
		return math.NaN()
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}

func series(of []point, cost func(point) float64, format string) string {
	var parts []string
	for _, p := range of {
		parts = append(parts, fmt.Sprintf("%.0f: "+format, p.n, cost(p)))
	}
	return strings.Join(parts, ", ")
}

// curves prints how cost grows with the number of agents.
func (x *scale) curves(context.Context) error {
	memory := func(p point) float64 { return p.memory * p.n / 1024 }
	cpu := func(p point) float64 { return 100 * p.cpu }
	x.add("B28", "agents → memory of the hub beyond its base (k ≤ 1.0)", fmt.Sprintf("k = %.2f", exponent(x.at, memory)), series(x.at, memory, "%.1f MiB"))
	x.add("B28", "agents → CPU of the idle hub (k ≤ 1.0)", fmt.Sprintf("k = %.2f", exponent(x.at, cpu)), series(x.at, cpu, "%.2f%%"))
	return nil
}
