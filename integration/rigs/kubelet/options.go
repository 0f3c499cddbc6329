package kubelet

import (
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// logOptions are those of a request for a log.
type logOptions struct {
	follow, previous, timestamps bool
	tail                         int // -1: all
	since                        time.Time
}

func readLogOptions(q url.Values) (o logOptions, err error) {
	o.tail = -1
	for name, to := range map[string]*bool{"follow": &o.follow, "previous": &o.previous, "timestamps": &o.timestamps} {
		if v := q.Get(name); v != "" {
			if *to, err = strconv.ParseBool(v); err != nil {
				return o, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if v := q.Get("tailLines"); v != "" {
		if o.tail, err = strconv.Atoi(v); err != nil {
			return o, fmt.Errorf("tailLines: %w", err)
		}
	}
	if v := q.Get("sinceTime"); v != "" {
		if o.since, err = time.Parse(time.RFC3339, v); err != nil {
			return o, fmt.Errorf("sinceTime: %w", err)
		}
	}
	if v := q.Get("sinceSeconds"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			return o, fmt.Errorf("sinceSeconds: %w", err)
		}
		o.since = time.Now().Add(-time.Duration(n) * time.Second)
	}
	return o, nil
}

// first is the first line that was asked for.
func (o logOptions) first(lines []line) int {
	at := 0
	if o.tail >= 0 {
		at = max(0, len(lines)-o.tail)
	}
	for at < len(lines) && lines[at].at.Before(o.since) {
		at++
	}
	return at
}
