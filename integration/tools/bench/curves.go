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

// A measure is one cost at growing sizes, for its exponent.
type measure struct {
	what   string
	most   float64 // the exponent that is aimed at
	format string  // of a cost
	at     []sample
}

type sample struct{ n, cost float64 }

func (m *measure) add(n, cost float64) { m.at = append(m.at, sample{n, cost}) }

// exponent fits cost = a·n^k and gives k.
func (m *measure) exponent() float64 {
	var sx, sy, sxx, sxy, n float64
	for _, s := range m.at {
		if s.n <= 0 || s.cost <= 0 {
			continue
		}
		x, y := math.Log(s.n), math.Log(s.cost)
		sx, sy, sxx, sxy, n = sx+x, sy+y, sxx+x*x, sxy+x*y, n+1
	}
	if n < 2 {
		return math.NaN()
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}

// show adds the curves of measures to the table.
func (b *bench) show(measures ...*measure) {
	for _, m := range measures {
		parts := make([]string, len(m.at))
		for i, s := range m.at {
			parts[i] = fmt.Sprintf("%.0f: "+m.format, s.n, s.cost)
		}
		b.add("B28", fmt.Sprintf("%s (k ≤ %.2g)", m.what, m.most), fmt.Sprintf("k = %.2f", m.exponent()), strings.Join(parts, ", "))
	}
}

// curves prints how cost grows with the number of agents.
func (x *scale) curves(context.Context) error {
	memory := &measure{what: "agents → memory of the hub beyond its base", most: 1, format: "%.1f MiB"}
	cpu := &measure{what: "agents → CPU of the idle hub", most: 1, format: "%.2f%%"}
	for _, p := range x.at {
		memory.add(p.n, p.memory*p.n/1024)
		cpu.add(p.n, 100*p.cpu)
	}
	x.show(memory, cpu)
	return nil
}
