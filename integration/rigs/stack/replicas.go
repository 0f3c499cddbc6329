package stack

import (
	"context"
	"fmt"
	"strings"
)

// startHubs starts the hubs: one, or several behind balancers.
func (s *Stack) startHubs(ctx context.Context, o HubOptions) error {
	if s.options.Replicas > 1 {
		if err := s.startBalancers(); err != nil {
			return err
		}
		o.Internal, o.PublicURL, o.Agents = true, "http://"+s.Front.Address, s.Gate.Address
	}
	for i := range max(1, s.options.Replicas) {
		if s.Front != nil {
			o.Replica = fmt.Sprintf("replica-%d", i)
		}
		if i > 0 {
			o.Dir, o.MasterKey = s.file(fmt.Sprintf("hub-%d", i)), s.Hub.MasterKeyFile()
		}
		h, err := StartHub(ctx, o)
		if err != nil {
			return err
		}
		s.later(func() error { return h.Stop() })
		if s.Hubs = append(s.Hubs, h); i == 0 {
			s.Hub = h
		}
		if s.Front != nil {
			s.Front.Add(Backend{Address: strings.TrimPrefix(h.URL, "http://"), Health: h.URL + "/readyz"})
			s.Gate.Add(Backend{Address: h.Link, Health: h.URL + "/readyz"})
		}
	}
	return nil
}

// startBalancers puts plain TCP balancers before the replicas.
func (s *Stack) startBalancers() (err error) {
	for _, b := range []**Balancer{&s.Front, &s.Gate} {
		if *b, err = StartBalancer(); err != nil {
			return err
		}
		s.later((*b).Stop)
	}
	return nil
}

// URL is where people reach the hub.
func (s *Stack) URL() string {
	if s.Front != nil {
		return "http://" + s.Front.Address
	}
	return s.Hub.URL
}
