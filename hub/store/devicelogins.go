package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	insertDeviceLogin = `
		INSERT INTO device_login (tenant_id, hash, user_code, address, client, created_at, expires_at, pace)
		VALUES (@tenant, @hash, @code, @address, @client, @created, @expires, @pace)`
	countDeviceLogins = `
		SELECT count(*), count(*) FILTER (WHERE address = $2)
		FROM   device_login
		WHERE  tenant_id = $1 AND expires_at > $3`
	selectDeviceLogin = `
		SELECT hash, address, client, created_at, expires_at, pace, decision, coalesce(account_id::text, ''), session
		FROM   device_login
		WHERE  tenant_id = $1 AND user_code = $2 AND decision = '' AND expires_at > $3`
	decideDeviceLogin = `
		UPDATE device_login
		SET    decision = @decision, account_id = @account, session = @session
		WHERE  tenant_id = @tenant AND hash = @hash AND decision = '' AND expires_at > @now`
	// A second of grace: the clocks of two replicas differ a little.
	pollDeviceLogin = `
		WITH old AS MATERIALIZED (
			SELECT hash, coalesce(polled_at > $3::timestamptz - make_interval(secs => pace - 1), false) AS early
			FROM   device_login
			WHERE  tenant_id = $1 AND hash = $2 FOR UPDATE
		)
		UPDATE device_login d
		SET    polled_at = $3::timestamptz, pace = CASE WHEN old.early THEN least(d.pace + $4, 60) ELSE d.pace END
		FROM   old
		WHERE  d.tenant_id = $1 AND d.hash = old.hash
		RETURNING d.hash, d.address, d.client, d.created_at, d.expires_at, d.pace, d.decision, coalesce(d.account_id::text, ''), d.session, old.early`
	deleteDeviceLogin   = `DELETE FROM device_login WHERE tenant_id = $1 AND hash = $2`
	collectDeviceLogins = `DELETE FROM device_login WHERE tenant_id = $1 AND hash IN (SELECT s.hash FROM device_login s WHERE s.tenant_id = $1 AND s.expires_at < $2 LIMIT $3)`
)

// PutDeviceLogin stores the sign-in of a device that begins. The error is
// fault.Conflict if another one has its code.
func (t *Tenant) PutDeviceLogin(ctx context.Context, d hub.DeviceLogin) error {
	_, err := exec(ctx, t.tx, "insert sign-in of a device", insertDeviceLogin, pgx.StrictNamedArgs{
		"tenant": t.id, "hash": d.Hash[:], "code": d.UserCode[:], "address": d.Address, "client": d.Client,
		"created": micro(d.CreatedAt), "expires": micro(d.ExpiresAt), "pace": d.Pace,
	})
	if violates(err, "device_login_user_code") {
		return fault.New(fault.Conflict, "another device has this code")
	}
	return err
}

// DeviceLogins returns how many sign-ins of devices have begun and not expired,
// in all and from an address.
func (t *Tenant) DeviceLogins(ctx context.Context, address string, now time.Time) (all, here int, err error) {
	err = t.tx.QueryRow(ctx, countDeviceLogins, t.id, address, micro(now)).Scan(&all, &here)
	return all, here, err
}

// DeviceLogin finds the sign-in of a device by the hash of its code. One that was
// decided or has expired is not found.
func (t *Tenant) DeviceLogin(ctx context.Context, code [32]byte, now time.Time) (hub.DeviceLogin, error) {
	d, err := one(ctx, t.tx, "sign-in of a device", func(row pgx.CollectableRow) (hub.DeviceLogin, error) {
		return scanDeviceLogin(row)
	}, selectDeviceLogin, t.id, code[:], micro(now))
	d.UserCode = code
	return d, missing(err, "there is no such code")
}

// DecideDeviceLogin stores what somebody has said, once. User and Session are
// those of who approves.
func (t *Tenant) DecideDeviceLogin(ctx context.Context, d hub.DeviceLogin, now time.Time) error {
	args := pgx.StrictNamedArgs{"tenant": t.id, "hash": d.Hash[:], "decision": string(d.Decision), "account": nil, "session": nil, "now": micro(now)}
	if d.Decision == hub.DeviceApproved {
		args["account"], args["session"] = d.User, d.Session[:]
	}
	n, err := exec(ctx, t.tx, "decide sign-in of a device", decideDeviceLogin, args)
	switch {
	case code(err) == foreignKeyViolation:
		return noUser()
	case code(err) == checkViolation:
		return fault.New(fault.Invalid, "this is no decision about a device")
	case err == nil && n == 0:
		return fault.New(fault.Missing, "there is no such code")
	}
	return err
}

// PollDeviceLogin returns the sign-in of a device to that device, also an expired
// one, and whether it asks too early. Who asks too early has to wait longer
// between two questions from then on.
func (t *Tenant) PollDeviceLogin(ctx context.Context, hash [32]byte, now time.Time) (d hub.DeviceLogin, early bool, err error) {
	d, err = one(ctx, t.tx, "sign-in of a device", func(row pgx.CollectableRow) (hub.DeviceLogin, error) {
		return scanDeviceLogin(row, &early)
	}, pollDeviceLogin, t.id, hash[:], micro(now), hub.DevicePace)
	return d, early, missing(err, "there is no such sign-in of a device")
}

// DeleteDeviceLogin removes the sign-in of a device. Removing one that is not
// there is fine.
func (t *Tenant) DeleteDeviceLogin(ctx context.Context, hash [32]byte) error {
	_, err := exec(ctx, t.tx, "delete sign-in of a device", deleteDeviceLogin, t.id, hash[:])
	return err
}

func scanDeviceLogin(row pgx.CollectableRow, more ...any) (d hub.DeviceLogin, err error) {
	var hash, session []byte
	err = row.Scan(append([]any{&hash, &d.Address, &d.Client, &d.CreatedAt, &d.ExpiresAt, &d.Pace, &d.Decision, &d.User, &session}, more...)...)
	copy(d.Hash[:], hash)
	copy(d.Session[:], session)
	return d, err
}
