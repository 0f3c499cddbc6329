package dispatch

import (
	"context"
	"maps"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/dispatch/wire"
	"github.com/capstan-cd/capstan/shared/fault"
)

// settingsClusters are the clusters whose rows are written by one statement.
const settingsClusters = 500

// Settings appends settings to the desired logs of clusters, inside the
// caller's transaction, which has locked the tenant's settings.
func Settings(ctx context.Context, tx LogWriter, bodies map[hub.ClusterID][]byte) error {
	clusters := slices.Sorted(maps.Keys(bodies))
	for _, cluster := range clusters {
		if n := len(bodies[cluster]); n > wire.MaxSettings {
			return fault.With(fault.New(fault.Exceeded, "what agents need of them has %d bytes, and at most %d can be sent to a cluster at once", n, wire.MaxSettings),
				"settings", "shorten the customizations, such as scripts for health and actions")
		}
	}
	heads, err := tx.LockClusters(ctx, clusters)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(clusters, settingsClusters) {
		logs := make(map[hub.ClusterID][]hub.LogRow, len(part))
		for _, cluster := range part {
			head, there := heads[cluster]
			if !there {
				continue // it went while we waited for the lock
			}
			log := &wire.Appender{Head: head}
			if err := log.Add(hub.LogRow{Kind: hub.RowSettings, Application: hub.SettingsRow, Body: bodies[cluster]}); err != nil {
				return err
			}
			logs[cluster] = log.Rows
		}
		if err := tx.AppendLogs(ctx, logs); err != nil {
			return err
		}
	}
	return nil
}
