package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/integration/rigs/simagent"
)

// Live state that changes all the time: a fifth of it in one cluster.
const (
	eventsASecond = 5000
	loudPart      = 5
	loudRound     = 10 // reports a second of the loud agent
)

// ingest lets all agents report that objects change.
func (x *scale) ingest(ctx context.Context) error {
	before, err := x.f.gauge(ctx)
	if err != nil {
		return err
	}
	loud := eventsASecond / loudPart
	quiet := max(1, (eventsASecond-loud)/max(1, len(x.f.Agents)-1))
	seconds := int(x.events / time.Second)
	begin, sent := time.Now(), 0
	for second := range seconds {
		sent += x.second(begin.Add(time.Duration(second)*time.Second), second+1, loud, quiet)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	lasted := time.Since(begin)
	wait, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	err = x.f.All(wait, 5*time.Minute, "rid of their reports", (*simagent.Agent).Drained)
	if err != nil {
		return err
	}
	drained := time.Since(begin)
	after, err := x.f.gauge(ctx)
	if err != nil {
		return err
	}
	if err := x.newest(ctx, seconds, loud/loudRound+quiet*(len(x.f.Agents)-1)); err != nil {
		return err
	}
	var all, of []time.Duration
	for i, a := range x.f.Agents {
		if i == 0 {
			of = a.StoreTimes()
		}
		all = append(all, a.StoreTimes()...)
	}
	slices.Sort(all)
	slices.Sort(of)
	t := after.since(before)
	x.add("B10", fmt.Sprintf("%d agents report %d changes/s, %d/s of them one agent, for %s", len(x.f.Agents), eventsASecond, loud, x.events),
		fmt.Sprintf("stored p50 %s, p99 %s ms; loud agent p99 %s", ms(all[len(all)/2]), ms(all[len(all)*99/100]), ms(of[len(of)*99/100])),
		fmt.Sprintf("%d events sent in %.1f s, all stored after %.1f s, 0 lost; %.2f rows written and %.2f transactions per event; hub %.0f µs/event, Postgres %.0f µs/event; %s",
			sent, lasted.Seconds(), drained.Seconds(), float64(t.written)/float64(sent), float64(t.commits)/float64(sent),
			1e6*t.hub/float64(sent), 1e6*t.pg/float64(sent), t))
	return nil
}

// second spreads one second's events over it.
func (x *scale) second(begin time.Time, round, loud, quiet int) (sent int) {
	n := len(x.f.Agents)
	for part := range loudRound {
		time.Sleep(time.Until(begin.Add(time.Second * time.Duration(part) / loudRound)))
		x.f.Agents[0].Change(loud/loudRound, restarted(round*loudRound+part))
		sent += loud / loudRound
		for _, a := range x.f.Agents[1+(n-1)*part/loudRound : 1+(n-1)*(part+1)/loudRound] {
			a.Change(quiet, restarted(round))
			sent += quiet
		}
	}
	return sent
}

// newest checks that the hub holds the last value of every object.
func (x *scale) newest(ctx context.Context, round, want int) error {
	db, err := pgx.Connect(ctx, x.s.Postgres.Superuser("capstan"))
	if err != nil {
		return err
	}
	defer db.Close(context.WithoutCancel(ctx))
	var got int
	err = db.QueryRow(ctx, `SELECT count(*) FROM resource WHERE kind = 'Pod' AND message IN ($1, $2)`,
		restarted(round), restarted(round*loudRound+loudRound-1)).Scan(&got)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("the hub holds the newest value of %d objects, not of %d", got, want)
	}
	return nil
}

func restarted(times int) string { return fmt.Sprintf("restarted %d times", times) }
