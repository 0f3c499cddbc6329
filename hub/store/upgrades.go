package store

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

const (
	insertUpgrade = `UPDATE cluster SET upgrade = $3 WHERE tenant_id = $1 AND id = $2`
	// What is over stays as it is, and so does a newer order.
	updateUpgrade = `
		UPDATE cluster SET upgrade = $3
		WHERE  tenant_id = $1 AND id = $2 AND upgrade ->> 'id' = $4 AND upgrade ->> 'phase' IN ('` + hub.UpgradePending + `', '` + hub.UpgradeRunning + `')`
)

// OrderUpgrade stores an order in the place of the one before, and has it
// carried out once the transaction has committed.
func (t *Tenant) OrderUpgrade(ctx context.Context, cluster hub.ClusterID, u hub.Upgrade) error {
	n, err := t.putUpgrade(ctx, insertUpgrade, cluster, u)
	if err == nil && n == 0 {
		return noCluster()
	}
	if err == nil {
		t.enqueue(hub.WorkUpgrade, string(cluster), time.Now(), false)
	}
	return err
}

// PutUpgrade stores the state of an open request. It changes nothing if the
// request is over, or if a newer one has replaced it.
func (t *Tenant) PutUpgrade(ctx context.Context, cluster hub.ClusterID, u hub.Upgrade) error {
	_, err := t.putUpgrade(ctx, updateUpgrade, cluster, u, u.ID)
	return err
}

func (t *Tenant) putUpgrade(ctx context.Context, statement string, cluster hub.ClusterID, u hub.Upgrade, more ...any) (int64, error) {
	if !hub.ValidID(string(cluster)) {
		return 0, noCluster()
	}
	u.OrderedAt, u.ExpiresAt, u.Message, u.From = micro(u.OrderedAt), micro(u.ExpiresAt), clean(u.Message), clean(u.From)
	if u.EndedAt != nil {
		at := micro(*u.EndedAt)
		u.EndedAt = &at
	}
	n, err := exec(ctx, t.tx, "store upgrade", statement, append([]any{t.id, cluster, u}, more...)...)
	if err == nil && n > 0 {
		t.changed(changeCluster, string(cluster))
	}
	return n, err
}
