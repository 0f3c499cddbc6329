package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/rbac"
)

const (
	selectUsers = `
		SELECT id, tenant_id, name, roles, disabled, created_at, capabilities, origin, provider
		FROM   account
		WHERE  tenant_id = $1
		ORDER  BY name`
	selectUser = `
		SELECT id, tenant_id, name, roles, disabled, created_at, capabilities, origin, provider
		FROM   account
		WHERE  tenant_id = $1 AND id = $2`
	selectUserByName = `
		SELECT id, tenant_id, name, roles, disabled, created_at, capabilities, origin, provider, password_hash
		FROM   account
		WHERE  tenant_id = $1 AND name = $2`
	insertUser = `
		INSERT INTO account (tenant_id, id, name, password_hash, roles, disabled, created_at, capabilities, origin, provider, realm, subject)
		VALUES (@tenant, @id, @name, @password_hash, @roles, @disabled, @created, @capabilities, @origin, @provider, @realm, @subject)`
	updateUser = `
		UPDATE account
		SET    name = @name, roles = @roles, disabled = @disabled, capabilities = @capabilities, origin = @origin
		WHERE  tenant_id = @tenant AND id = @id`
	selectLanguage     = `SELECT language FROM account WHERE tenant_id = $1 AND id = $2`
	updateLanguage     = `UPDATE account SET language = $3 WHERE tenant_id = $1 AND id = $2`
	updatePassword     = `UPDATE account SET password_hash = $3 WHERE tenant_id = $1 AND id = $2`
	upgradePassword    = `UPDATE account SET password_hash = $4 WHERE tenant_id = $1 AND id = $2 AND password_hash = $3`
	selectOldPasswords = `SELECT EXISTS (SELECT FROM account WHERE tenant_id = $1 AND starts_with(password_hash, '$2'))`
	deleteUser         = `DELETE FROM account WHERE tenant_id = $1 AND id = $2`
	endAccount         = `SELECT directory.end_account($1, $2)`

	bumpPolicy = `UPDATE organisation SET policy_version = policy_version + 1 WHERE tenant_id = $1 RETURNING policy_version`

	insertAPIToken = `
		INSERT INTO api_token (tenant_id, id, account_id, name, prefix, created_at, expires_at)
		VALUES (@tenant, @id, @account, @name, @prefix, @created, @expires)`
	putToken        = `SELECT directory.put_token($1, $2, $3, $4)`
	selectAPITokens = `
		SELECT k.id, k.tenant_id AS tenant, k.account_id AS "user", k.name, k.prefix, k.created_at, k.expires_at, u.used_at
		FROM   api_token k
		LEFT   JOIN directory.token_uses() u ON u.id = k.id
		WHERE  k.tenant_id = $1 AND k.account_id = $2
		ORDER  BY k.created_at, k.id`
	deleteAPIToken = `DELETE FROM api_token WHERE tenant_id = $1 AND account_id = $2 AND id = $3`
	dropToken      = `SELECT directory.drop_token($1)`

	selectSessions = `
		SELECT id, hash, created_at, seen_at, expires_at, address, client, provider
		FROM   directory.sessions_of($1)
		ORDER  BY seen_at DESC, id
		LIMIT  $2`
	endSessions = `SELECT directory.end_sessions($1, $2, $3)`
)

func scanUser(row pgx.CollectableRow) (u hub.User, err error) {
	err = row.Scan(&u.ID, &u.Tenant, &u.Name, &u.Roles, &u.Disabled, &u.CreatedAt, &u.Capabilities, &u.Origin, &u.Provider)
	return u, err
}

func noUser() error { return fault.New(fault.Missing, "there is no such user") }

// Users returns the accounts in order of name.
func (t *Tenant) Users(ctx context.Context) ([]hub.User, error) {
	return list(ctx, t.tx, "users", scanUser, selectUsers, t.id)
}

// User returns one account.
func (t *Tenant) User(ctx context.Context, id hub.UserID) (hub.User, error) {
	if !hub.ValidID(string(id)) {
		return hub.User{}, noUser()
	}
	u, err := one(ctx, t.tx, "user", scanUser, selectUser, t.id, id)
	return u, missing(err, "there is no such user")
}

// UserByName returns one account with the hash of its password.
func (t *Tenant) UserByName(ctx context.Context, name string) (hub.User, string, error) {
	var hash string
	u, err := one(ctx, t.tx, "user", func(row pgx.CollectableRow) (u hub.User, err error) {
		err = row.Scan(&u.ID, &u.Tenant, &u.Name, &u.Roles, &u.Disabled, &u.CreatedAt, &u.Capabilities, &u.Origin, &u.Provider, &hash)
		return u, err
	}, selectUserByName, t.id, name)
	return u, hash, missing(err, "there is no user %q", name)
}

// CreateUser makes an account with the hash of a password. An empty ID or
// time is filled in; nil capabilities are all.
func (t *Tenant) CreateUser(ctx context.Context, u hub.User, passwordHash string) (hub.User, error) {
	if u.ID == "" {
		u.ID = hub.NewID[hub.UserID]()
	}
	if u.CreatedAt.IsZero() {
		u.CreatedAt = time.Now()
	}
	if u.Capabilities == nil {
		u.Capabilities = hub.Capabilities()
	}
	u.Tenant, u.CreatedAt, u.Roles = t.id, micro(u.CreatedAt), nonNil(u.Roles)
	_, err := exec(ctx, t.tx, "insert user", insertUser, pgx.StrictNamedArgs{
		"tenant": t.id, "id": u.ID, "name": u.Name, "password_hash": passwordHash, "roles": u.Roles, "disabled": u.Disabled,
		"created": u.CreatedAt, "capabilities": u.Capabilities, "origin": u.Origin,
		"provider": u.Provider, "realm": u.Realm, "subject": u.Subject,
	})
	if err != nil {
		return hub.User{}, userFault(err, u.Name)
	}
	t.grows(hub.QuotaUsers)
	return u, t.bumpPolicy(ctx)
}

func userFault(err error, name string) error {
	switch {
	case violates(err, "account_name"):
		return taken("user " + name)
	case violates(err, "account_person"):
		return taken("account of the person " + name)
	case code(err) == checkViolation:
		return fault.New(fault.Invalid, "a user needs a name")
	}
	return err
}

// UpdateUser changes name, roles, capabilities, origin and whether the account
// is disabled; a disabled account loses its sessions at once.
func (t *Tenant) UpdateUser(ctx context.Context, u hub.User) error {
	if !hub.ValidID(string(u.ID)) {
		return noUser()
	}
	n, err := exec(ctx, t.tx, "update user", updateUser, pgx.StrictNamedArgs{
		"tenant": t.id, "id": u.ID, "name": u.Name, "roles": nonNil(u.Roles), "disabled": u.Disabled,
		"capabilities": nonNil(u.Capabilities), "origin": u.Origin,
	})
	if err != nil {
		return userFault(err, u.Name)
	}
	if n == 0 {
		return noUser()
	}
	if u.Disabled {
		if err := t.EndSessions(ctx, u.ID); err != nil {
			return err
		}
	}
	return t.bumpPolicy(ctx)
}

// UpgradePassword replaces the hash of a password by another one of the same
// password, if it is still that hash. Sessions stay.
func (t *Tenant) UpgradePassword(ctx context.Context, id hub.UserID, old, passwordHash string) error {
	if !hub.ValidID(string(id)) {
		return noUser()
	}
	_, err := exec(ctx, t.tx, "upgrade password", upgradePassword, t.id, id, old, passwordHash)
	return err
}

// HasOldPasswords reports whether an account of the tenant has a password hash
// in the form of Argo CD.
func (t *Tenant) HasOldPasswords(ctx context.Context) (bool, error) {
	var some bool
	if err := t.tx.QueryRow(ctx, selectOldPasswords, t.id).Scan(&some); err != nil {
		return false, fmt.Errorf("look for passwords in an older form: %w", err)
	}
	return some, nil
}

// SetPassword stores the hash of a new password and ends the account's
// sessions.
func (t *Tenant) SetPassword(ctx context.Context, id hub.UserID, passwordHash string) error {
	if !hub.ValidID(string(id)) {
		return noUser()
	}
	n, err := exec(ctx, t.tx, "update password", updatePassword, t.id, id, passwordHash)
	if err != nil {
		return err
	}
	if n == 0 {
		return noUser()
	}
	return t.EndSessions(ctx, id)
}

// Language returns the language in which an account reads the console; empty:
// none is chosen.
func (t *Tenant) Language(ctx context.Context, id hub.UserID) (string, error) {
	language, err := one(ctx, t.tx, "language of an account", pgx.RowTo[string], selectLanguage, t.id, id)
	return language, missing(err, "there is no such user")
}

// SetLanguage stores the language in which an account reads the console.
func (t *Tenant) SetLanguage(ctx context.Context, id hub.UserID, language string) error {
	n, err := exec(ctx, t.tx, "update language of an account", updateLanguage, t.id, id, language)
	if err == nil && n == 0 {
		return noUser()
	}
	return err
}

// DeleteUser removes an account with its sessions and tokens.
func (t *Tenant) DeleteUser(ctx context.Context, id hub.UserID) error {
	if !hub.ValidID(string(id)) {
		return noUser()
	}
	n, err := exec(ctx, t.tx, "delete user", deleteUser, t.id, id)
	if err != nil {
		return err
	}
	if n == 0 {
		return noUser()
	}
	if _, err := exec(ctx, t.tx, "end account", endAccount, id, true); err != nil {
		return err
	}
	return t.bumpPolicy(ctx)
}

// EndSessions signs a user out everywhere. Tokens stay.
func (t *Tenant) EndSessions(ctx context.Context, id hub.UserID) error {
	_, err := exec(ctx, t.tx, "end sessions", endAccount, id, false)
	return err
}

// SetPolicy stores policy lines as key policy.csv of argocd-rbac-cm, as the
// catalog does after its checks.
func (t *Tenant) SetPolicy(ctx context.Context, text string) error {
	if err := t.LockSettings(ctx); err != nil {
		return err
	}
	policy := hub.Setting{Map: rbac.Map, Key: rbac.PolicyKey, Value: text, UpdatedAt: time.Now()}
	if err := t.ChangeSettings(ctx, []hub.Setting{policy}, nil); err != nil {
		return err
	}
	return t.bumpPolicy(ctx)
}

// RaisePolicy makes compiled rights stale after a change of settings that they
// depend on.
func (t *Tenant) RaisePolicy(ctx context.Context) error { return t.bumpPolicy(ctx) }

// bumpPolicy makes compiled rights stale after a change that they depend on.
func (t *Tenant) bumpPolicy(ctx context.Context) error {
	if err := t.tx.QueryRow(ctx, bumpPolicy, t.id).Scan(&t.policyVersion); err != nil {
		return fmt.Errorf("raise policy version: %w", err)
	}
	return nil
}

// PutToken stores an API token. Its secret is known by hash only.
func (t *Tenant) PutToken(ctx context.Context, k hub.APIToken) error {
	if k.CreatedAt.IsZero() {
		k.CreatedAt = time.Now()
	}
	_, err := exec(ctx, t.tx, "insert token", insertAPIToken, pgx.StrictNamedArgs{
		"tenant": t.id, "id": k.ID, "account": k.User, "name": k.Name, "prefix": k.Prefix, "created": micro(k.CreatedAt),
		"expires": k.ExpiresAt,
	})
	switch {
	case violates(err, "api_token_name"):
		return taken("token " + k.Name)
	case code(err) == foreignKeyViolation:
		return noUser()
	case err != nil:
		return err
	}
	t.grows(hub.QuotaTokens)
	_, err = exec(ctx, t.tx, "list token", putToken, k.Hash[:], k.ID, k.User, k.ExpiresAt)
	return err
}

// Tokens returns the API tokens of a user, without their hashes.
func (t *Tenant) Tokens(ctx context.Context, user hub.UserID) ([]hub.APIToken, error) {
	if !hub.ValidID(string(user)) {
		return nil, nil
	}
	return list(ctx, t.tx, "tokens", pgx.RowToStructByNameLax[hub.APIToken], selectAPITokens, t.id, user)
}

// DeleteToken ends an API token of a user.
func (t *Tenant) DeleteToken(ctx context.Context, user hub.UserID, id hub.TokenID) error {
	if !hub.ValidID(string(user)) || !hub.ValidID(string(id)) {
		return fault.New(fault.Missing, "there is no such token")
	}
	n, err := exec(ctx, t.tx, "delete token", deleteAPIToken, t.id, user, id)
	if err != nil {
		return err
	}
	if n == 0 {
		return fault.New(fault.Missing, "there is no such token")
	}
	_, err = exec(ctx, t.tx, "unlist token", dropToken, id)
	return err
}

// maxSessions bounds a list of sessions, which has the latest ones.
const maxSessions = 200

// Sessions returns the sessions of an account that have not ended, also not
// because nobody used them. The one that was used last comes first.
func (t *Tenant) Sessions(ctx context.Context, user hub.UserID) ([]hub.Session, error) {
	if !hub.ValidID(string(user)) {
		return nil, nil
	}
	return list(ctx, t.tx, "sessions", func(row pgx.CollectableRow) (v hub.Session, err error) {
		var h []byte
		err = row.Scan(&v.ID, &h, &v.CreatedAt, &v.SeenAt, &v.ExpiresAt, &v.Address, &v.Client, &v.Provider)
		copy(v.Hash[:], h)
		v.Tenant, v.User = t.id, user
		return v, err
	}, selectSessions, user, maxSessions)
}

// EndSession ends one session of an account.
func (t *Tenant) EndSession(ctx context.Context, user hub.UserID, id hub.SessionID) error {
	if !hub.ValidID(string(user)) || !hub.ValidID(string(id)) {
		return noSession()
	}
	var n int
	if err := t.tx.QueryRow(ctx, endSessions, user, id, nil).Scan(&n); err != nil {
		return fmt.Errorf("end a session: %w", err)
	}
	if n == 0 {
		return noSession()
	}
	return nil
}

func noSession() error { return fault.New(fault.Missing, "there is no such session") }

// EndOtherSessions signs a user out everywhere but in one session, and returns
// how many sessions have ended. Tokens stay.
func (t *Tenant) EndOtherSessions(ctx context.Context, user hub.UserID, but hub.SessionID) (n int, err error) {
	if !hub.ValidID(string(user)) {
		return 0, noUser()
	}
	var spared any
	if hub.ValidID(string(but)) {
		spared = but
	}
	if err := t.tx.QueryRow(ctx, endSessions, user, nil, spared).Scan(&n); err != nil {
		return 0, fmt.Errorf("end sessions: %w", err)
	}
	return n, nil
}
