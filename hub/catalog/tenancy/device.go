package tenancy

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/shared/fault"
)

// How many sign-ins of devices may wait: of a tenant, and of an address there.
const (
	maxDevices     = 1000
	maxDevicesHere = 20
)

// userCode is the hash under which a code of a device is stored. It is keyed: the
// code is too short for a hash that anybody can compute.
func (c *Tenancy) userCode(ctx context.Context, tenant hub.TenantID, code string) ([32]byte, error) {
	keys, err := c.transact.Store.Keys(ctx, tenant)
	if err != nil {
		return [32]byte{}, err
	}
	mac := hmac.New(sha256.New, keys.Digest[:])
	mac.Write([]byte("code of a device\x00" + code))
	return [32]byte(mac.Sum(nil)), nil
}

// deviceName is how the audit log calls the sign-in of a device.
func deviceName(d hub.DeviceLogin) string { return "device " + hex.EncodeToString(d.Hash[:4]) }

func deviceDetail(d hub.DeviceLogin) map[string]any {
	return map[string]any{"address": d.Address, "client": d.Client, "expiresAt": d.ExpiresAt}
}

// AskDevice stores the sign-in of a device that begins; code is what people type.
// The error is fault.Conflict if another device shows that code.
func (c *Tenancy) AskDevice(ctx context.Context, tenant hub.TenantID, from hub.Caller, hash [32]byte, code string) (hub.DeviceLogin, error) {
	key, err := c.userCode(ctx, tenant, code)
	if err != nil {
		return hub.DeviceLogin{}, err
	}
	d := hub.DeviceLogin{Hash: hash, UserCode: key, Address: from.Address, Client: from.Client, Pace: hub.DevicePace}
	by := hub.Caller{Tenant: tenant, Username: deviceName(d), Via: "device", Address: from.Address, Request: from.Request}
	err = c.write(ctx, by, func(ctx context.Context, w *writer) error {
		all, here, err := w.DeviceLogins(ctx, d.Address, w.Now)
		if err != nil {
			return err
		}
		if all >= maxDevices || here >= maxDevicesHere {
			return fault.With(fault.New(fault.Exceeded, "too many devices wait for their sign-in"), "", "wait ten minutes, or sign in with --sso or a password")
		}
		d.CreatedAt, d.ExpiresAt = w.Now, w.Now.Add(hub.DeviceLoginLasts)
		w.Note("ask-device", access.Accounts, deviceName(d), "", nil, deviceDetail(d))
		return w.PutDeviceLogin(ctx, d)
	})
	return d, err
}

// errDevice is the one answer to codes that are wrong, decided, expired or of
// another tenant.
func errDevice() error {
	return fault.With(fault.New(fault.Missing, "no device waits with this code"), "", "compare it with the device; a code works once, and for ten minutes")
}

// DeviceLogin returns what waits with a code, to whoever has signed in to the
// tenant.
func (c *Tenancy) DeviceLogin(ctx context.Context, by hub.Caller, code string) (hub.DeviceLogin, error) {
	key, err := c.userCode(ctx, by.Tenant, code)
	if err != nil {
		return hub.DeviceLogin{}, err
	}
	var d hub.DeviceLogin
	err = c.read(ctx, by, func(ctx context.Context, r *reader) (err error) {
		d, err = r.Tx.DeviceLogin(ctx, key, c.transact.Now())
		return err
	})
	if fault.KindOf(err) == fault.Missing {
		err = errDevice()
	}
	return d, err
}

// DecideDevice approves or denies the sign-in of a device, once. Who approves
// lends the device their session, by its hash: it must be a recent one, and no
// token, which would outlive its end so.
func (c *Tenancy) DecideDevice(ctx context.Context, by hub.Caller, session [32]byte, code string, approve bool) error {
	key, err := c.userCode(ctx, by.Tenant, code)
	if err != nil {
		return err
	}
	action := "deny-device"
	if approve {
		action = "approve-device"
	}
	err = c.write(ctx, by, func(ctx context.Context, w *writer) error {
		d, err := w.Tx.DeviceLogin(ctx, key, w.Now)
		if err != nil {
			return err
		}
		switch {
		case by.Via != "session":
			return w.Refuse(access.Accounts, action, by.Username,
				fault.With(fault.New(fault.Denied, "a token decides about no device"), "", "sign in in a browser and do it there"))
		case approve && !by.Fresh(w.Now):
			return w.Stale(access.Accounts, action, by.Username)
		}
		d.Decision = hub.DeviceDenied
		if approve {
			d.Decision, d.User, d.Session = hub.DeviceApproved, by.User, session
		}
		w.Note(action, access.Accounts, by.Username, deviceName(d), nil, deviceDetail(d))
		return w.Tx.DecideDeviceLogin(ctx, d, w.Now)
	})
	if fault.KindOf(err) == fault.Missing {
		err = errDevice()
	}
	return err
}

// PollDevice returns the sign-in of a device to that device, and whether it asks
// too early. An approved one is returned once. The error is fault.Missing for
// secrets that are unknown or used.
func (c *Tenancy) PollDevice(ctx context.Context, tenant hub.TenantID, hash [32]byte) (d hub.DeviceLogin, early bool, err error) {
	err = c.transact.Store.InTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		d, early, err = tx.PollDeviceLogin(ctx, hash, c.transact.Now())
		if err != nil || early || d.Decision != hub.DeviceApproved {
			return err
		}
		return tx.DeleteDeviceLogin(ctx, hash)
	})
	return d, early, err
}
