-- What clusters should hold: snapshots, the log that carries them to the
-- agents, operations and their history.

-- +goose Up
-- The body of an object, stored once for each tenant. kept_until is moved on
-- whenever the object is used again; collection deletes only older rows.
CREATE TABLE object (
    tenant_id  uuid NOT NULL,
    digest     bytea NOT NULL CHECK (octet_length(digest) = 32),
    sealed     bytea NOT NULL,
    size       integer NOT NULL,
    kept_until timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, digest)
);
ALTER TABLE object ALTER COLUMN sealed SET STORAGE EXTERNAL;
CREATE INDEX object_age ON object (tenant_id, kept_until);

-- objects and inputs are zstd of JSON; digests are those of objects, in
-- order, each once, and that of the list blob if there is one.
CREATE TABLE snapshot (
    tenant_id      uuid NOT NULL,
    id             uuid NOT NULL,
    application_id uuid NOT NULL,
    revision       text NOT NULL,
    revisions      text[] NOT NULL DEFAULT '{}',
    params_hash    bytea NOT NULL CHECK (octet_length(params_hash) = 32),
    objects        bytea NOT NULL,
    object_count   integer NOT NULL,
    digests        bytea[] NOT NULL,
    list_digest    bytea,
    inputs         bytea NOT NULL,
    source_type    text NOT NULL,
    impure         boolean NOT NULL DEFAULT false,
    warnings       text[] NOT NULL DEFAULT '{}',
    commit         json NOT NULL DEFAULT '{}',
    created_at     timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, application_id) REFERENCES application ON DELETE CASCADE
);
ALTER TABLE snapshot ALTER COLUMN objects SET STORAGE EXTERNAL;
ALTER TABLE snapshot ALTER COLUMN inputs SET STORAGE EXTERNAL;
CREATE INDEX snapshot_recent ON snapshot (tenant_id, application_id, created_at DESC);

-- A snapshot that is compared with or enforced cannot be collected.
ALTER TABLE application_status
    ADD FOREIGN KEY (tenant_id, target_id) REFERENCES snapshot,
    ADD FOREIGN KEY (tenant_id, accepted_id) REFERENCES snapshot;
CREATE INDEX application_status_target ON application_status (tenant_id, target_id);
CREATE INDEX application_status_accepted ON application_status (tenant_id, accepted_id);

CREATE TABLE log_head (
    tenant_id   uuid NOT NULL,
    cluster_id  uuid NOT NULL,
    incarnation text NOT NULL,
    seq         bigint NOT NULL DEFAULT 0,
    chain       bytea NOT NULL,
    PRIMARY KEY (tenant_id, cluster_id),
    FOREIGN KEY (tenant_id, cluster_id) REFERENCES cluster ON DELETE CASCADE
);

CREATE TABLE log_row (
    tenant_id      uuid NOT NULL,
    cluster_id     uuid NOT NULL,
    seq            bigint NOT NULL,
    kind           smallint NOT NULL CHECK (kind BETWEEN 1 AND 4),
    application_id uuid NOT NULL,
    operation_id   uuid,
    body           bytea NOT NULL,
    chain          bytea NOT NULL CHECK (octet_length(chain) = 32),
    created_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, cluster_id, seq),
    FOREIGN KEY (tenant_id, cluster_id) REFERENCES log_head ON DELETE CASCADE
);

CREATE TABLE desired_head (
    tenant_id      uuid NOT NULL,
    cluster_id     uuid NOT NULL,
    application_id uuid NOT NULL,
    seq            bigint NOT NULL,
    leaf           bytea NOT NULL,
    PRIMARY KEY (tenant_id, cluster_id, application_id),
    FOREIGN KEY (tenant_id, cluster_id) REFERENCES log_head ON DELETE CASCADE
);
CREATE INDEX desired_head_application ON desired_head (tenant_id, application_id);

-- How far the agent's copy of the log goes.
CREATE TABLE log_ack (
    tenant_id    uuid NOT NULL,
    cluster_id   uuid NOT NULL,
    acked_seq    bigint NOT NULL DEFAULT 0,
    receipt_seq  bigint,
    receipt_root bytea,
    receipt_at   timestamptz,
    PRIMARY KEY (tenant_id, cluster_id),
    FOREIGN KEY (tenant_id, cluster_id) REFERENCES cluster ON DELETE CASCADE
) WITH (fillfactor = 70);

CREATE TABLE tombstone (
    tenant_id      uuid NOT NULL,
    application_id uuid NOT NULL,
    cluster_id     uuid NOT NULL,
    api_group      text NOT NULL,
    version        text NOT NULL,
    kind           text NOT NULL,
    namespace      text NOT NULL,
    name           text NOT NULL,
    wave           integer NOT NULL,
    since          bigint NOT NULL,
    PRIMARY KEY (tenant_id, application_id, cluster_id, api_group, kind, namespace, name),
    FOREIGN KEY (tenant_id, application_id) REFERENCES application ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, cluster_id) REFERENCES cluster ON DELETE CASCADE
);

CREATE TABLE operation (
    tenant_id      uuid NOT NULL,
    id             uuid NOT NULL,
    application_id uuid NOT NULL,
    cluster_id     uuid,
    kind           text NOT NULL,
    snapshot_id    uuid,
    revision       text NOT NULL DEFAULT '',
    fence          bigint NOT NULL,
    options        json NOT NULL,
    initiator      json NOT NULL,
    reason         text NOT NULL DEFAULT '',
    phase          text NOT NULL CHECK (phase IN ('Pending', 'Running', 'Terminating', 'Succeeded', 'Failed', 'Error')),
    message        text NOT NULL DEFAULT '',
    results        json,
    attempt        integer NOT NULL DEFAULT 0,
    retry_at       timestamptz,
    created_at     timestamptz NOT NULL,
    started_at     timestamptz,
    finished_at    timestamptz,
    healthy_at     timestamptz,
    deadline       timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, application_id) REFERENCES application ON DELETE CASCADE
);
CREATE INDEX operation_recent ON operation (tenant_id, application_id, created_at DESC, id DESC);
-- An application has one operation at a time, whoever tries to start another.
CREATE UNIQUE INDEX operation_running ON operation (tenant_id, application_id)
    WHERE phase IN ('Pending', 'Running', 'Terminating');

CREATE TABLE history (
    tenant_id      uuid NOT NULL,
    application_id uuid NOT NULL,
    id             bigint NOT NULL CHECK (id > 0),
    operation_id   uuid,
    snapshot_id    uuid,
    revision       text NOT NULL,
    revisions      text[] NOT NULL DEFAULT '{}',
    source         json,
    initiator      json NOT NULL,
    reason         text NOT NULL DEFAULT '',
    started_at     timestamptz NOT NULL,
    deployed_at    timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, application_id, id),
    FOREIGN KEY (tenant_id, application_id) REFERENCES application ON DELETE CASCADE
);
