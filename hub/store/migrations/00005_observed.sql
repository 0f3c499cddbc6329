-- What agents report, what followers of the feed are told, and the record of
-- who did what.

-- +goose Up
-- How far the reports of a cluster go. mark grows with each snapshot; rows
-- that a complete snapshot did not touch have an older one and are swept.
CREATE TABLE observed (
    tenant_id  uuid NOT NULL,
    cluster_id uuid NOT NULL,
    epoch      text NOT NULL DEFAULT '',
    seq        bigint NOT NULL DEFAULT 0,
    snapshot   bigint NOT NULL DEFAULT 0,
    mark       bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, cluster_id),
    FOREIGN KEY (tenant_id, cluster_id) REFERENCES cluster ON DELETE CASCADE
) WITH (fillfactor = 70);

CREATE TABLE resource (
    tenant_id      uuid NOT NULL,
    application_id uuid NOT NULL,
    cluster_id     uuid NOT NULL,
    api_group      text NOT NULL,
    kind           text NOT NULL,
    namespace      text NOT NULL,
    name           text NOT NULL,
    version        text NOT NULL,
    uid            text NOT NULL,
    parent         text NOT NULL,
    managed        boolean NOT NULL,
    sync           text NOT NULL,
    health         text NOT NULL,
    message        text NOT NULL,
    requires_prune boolean NOT NULL,
    hook           boolean NOT NULL,
    wave           integer NOT NULL,
    diff           text NOT NULL,
    info           json,
    born_at        timestamptz,
    updated_at     timestamptz NOT NULL,
    hash           bytea NOT NULL,
    mark           bigint NOT NULL,
    PRIMARY KEY (tenant_id, application_id, cluster_id, kind, namespace, name, api_group),
    FOREIGN KEY (tenant_id, application_id) REFERENCES application ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, cluster_id) REFERENCES cluster ON DELETE CASCADE
) WITH (fillfactor = 80);
CREATE INDEX resource_cluster ON resource (tenant_id, cluster_id);

-- One row for each thing that a transaction touched. xid orders them: once a
-- transaction is below the oldest that still runs, nothing can appear before it.
CREATE TABLE change (
    tenant_id uuid NOT NULL,
    xid       xid8 NOT NULL DEFAULT pg_current_xact_id(),
    kind      text COLLATE "C" NOT NULL,
    ref       uuid NOT NULL,
    gone      boolean NOT NULL DEFAULT false,
    at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, xid, kind, ref)
);

CREATE TABLE audit_head (
    tenant_id uuid PRIMARY KEY,
    seq       bigint NOT NULL,
    hash      bytea NOT NULL
);

CREATE TABLE audit_record (
    tenant_id uuid NOT NULL,
    seq       bigint NOT NULL CHECK (seq > 0),
    at        timestamptz NOT NULL,
    actor     text NOT NULL,
    via       text NOT NULL,
    address   text NOT NULL,
    action    text NOT NULL,
    resource  text NOT NULL,
    object    text NOT NULL,
    result    text NOT NULL,
    reason    text NOT NULL,
    detail    json,
    request   text NOT NULL,
    prev      bytea NOT NULL,
    hash      bytea NOT NULL,
    PRIMARY KEY (tenant_id, seq)
);

CREATE TABLE idempotency (
    tenant_id    uuid NOT NULL,
    caller       text NOT NULL,
    key          text NOT NULL,
    request_hash bytea NOT NULL,
    status       integer,
    body         bytea,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, caller, key)
);
CREATE INDEX idempotency_age ON idempotency (tenant_id, created_at);
